"""Credentials of sinks: read from the environment or files on the driver, and removed from everything that is printed.

Knows files and the environment. Must not know sinks.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from logboom.base.errors import LogboomError
from logboom.pipeline.plan.nodes import KeyRef

_HIDDEN_MIN: Final = 4
"""Shorter texts are not replaced in messages: they are hardly secrets, and would match everywhere."""


class SecretError(LogboomError):
    """A credential cannot be read."""


def read_secret(ref: KeyRef, *, environ: Mapping[str, str], directory: Path) -> str:
    """The text of a credential without surrounding white space. Relative paths are relative to `directory`.

    :raises SecretError: it does not exist, is empty, or cannot be sent in a header.
    """
    if ref.env is not None:
        text = environ.get(ref.env)
        if text is None:
            raise SecretError(f"set the environment variable {ref.env}: it holds a credential of a sink")
    else:
        try:
            text = (directory / str(ref.file)).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a path with a null character
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise SecretError(f"the credential cannot be read from {ref.file}: {reason}") from error
    if not text.strip():
        raise SecretError(f"the credential in {ref.env or ref.file} is empty")
    return text.strip()


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """The text with `***` in place of each credential: some servers repeat in errors what they were sent.

    >>> without_secrets("no such token: s3cr3t", ["s3cr3t"])
    'no such token: ***'
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _HIDDEN_MIN:
            text = text.replace(secret, "***")
    return text
