"""Credentials of sinks: texts of the environment or of files, read on the driver and kept out of whatever is written.

Knows files and the environment. Must not know sinks.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from logboom.base.errors import LogboomError
from logboom.pipeline.plan.nodes import KeyRef

_HIDDEN_MIN: Final = 4
"""Shorter texts are not secrets, and would be found everywhere."""


class SecretError(LogboomError):
    """A credential cannot be read."""


def read_secret(ref: KeyRef, *, environ: Mapping[str, str], directory: Path) -> str:
    """The text of a credential, without white space around it; relative paths are below `directory`.

    :raises SecretError: it is not there, empty, or no text that a header can hold.
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
    """A text of a server with `***` in place of each credential: some servers repeat what they were sent.

    >>> without_secrets("no such token: s3cr3t", ["s3cr3t"])
    'no such token: ***'
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _HIDDEN_MIN:
            text = text.replace(secret, "***")
    return text
