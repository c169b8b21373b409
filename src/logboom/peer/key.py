"""The cluster's key, which every broker of a cluster has: 32 random bytes, kept as a line of hexadecimal digits.

Whoever has it can act as a broker, so its file may be read by its owner and at most its group.
"""

import stat
from pathlib import Path
from typing import Final

from logboom.base.errors import LogboomError

KEY_BYTES: Final = 32
_KEY_BYTES_MAX: Final = 1_024
_FORBIDDEN_MODE: Final = stat.S_IWGRP | stat.S_IRWXO
_HOW: Final = "make one with `logboom cluster key --out FILE`"


class ClusterKeyError(LogboomError):
    """The file of the cluster's key cannot be used."""


def format_cluster_key(key: bytes) -> str:
    """The text of the file."""
    return key.hex() + "\n"


def read_cluster_key(path: Path) -> bytes:
    """The key in a file. Raises ClusterKeyError, which says what to do; no message has any of the key."""
    try:
        mode = path.stat().st_mode
        with path.open("rb") as file:
            text = file.read(2 * _KEY_BYTES_MAX + 2)
    except OSError as error:
        raise ClusterKeyError(f"cannot read the cluster's key {path}: {error.strerror}; {_HOW}") from None
    if mode & _FORBIDDEN_MODE:
        raise ClusterKeyError(
            f"the cluster's key {path} can be read or changed by other users (mode {stat.S_IMODE(mode):04o}): "
            f"`chmod 600 {path}`, and make a new one if somebody may have read it"
        )
    try:
        key = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        raise ClusterKeyError(f"{path} is no key of a cluster: it should be hexadecimal digits; {_HOW}") from None
    if not KEY_BYTES <= len(key) <= _KEY_BYTES_MAX:
        raise ClusterKeyError(
            f"the key in {path} has {len(key)} bytes, and at least {KEY_BYTES} are needed (at most {_KEY_BYTES_MAX}); "
            f"{_HOW}"
        )
    return key
