"""The secret keys of masks and of encryption, read where the pipeline is started; executors get the bytes.

Knows files and the environment.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from logboom.base.errors import LogboomError
from logboom.pipeline.plan.nodes import KeyRef

KEY_BYTES_MIN: Final = 16


class MaskKeyError(LogboomError):
    """A secret key cannot be read, or is too short to be one."""


def load_keys(
    refs: tuple[KeyRef, ...], environ: Mapping[str, str] = os.environ, directory: Path = Path()
) -> dict[str, bytes]:
    """The secret keys by `KeyRef.id`; MaskKeyError if one cannot be read. To be called on the driver.

    Relative paths are below `directory`, that of the pipeline's file.
    """
    return {ref.id: _load_key(ref, environ, directory) for ref in refs}


def _load_key(ref: KeyRef, environ: Mapping[str, str], directory: Path) -> bytes:
    if ref.env is not None:
        text = environ.get(ref.env)
        if text is None:
            raise MaskKeyError(f"set the environment variable {ref.env}: it holds a key of the pipeline")
        key = text.encode()
    else:
        try:
            key = (directory / str(ref.file)).read_bytes().strip()
        except (OSError, ValueError) as error:  # ValueError: a path with a null character
            reason = getattr(error, "strerror", None) or error
            raise MaskKeyError(f"the key cannot be read from {ref.file}: {reason}") from error
    if len(key) < KEY_BYTES_MIN:
        raise MaskKeyError(f"the key in {ref.id} is too short: give it at least {KEY_BYTES_MIN} bytes")
    return key
