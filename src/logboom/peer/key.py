"""The cluster's key, which every broker of a cluster has: 32 random bytes, kept as a line of hexadecimal digits.

A file may hold several, one a line: the first is the one that a broker uses when it connects to others, and all are
taken from those that connect to it. So a key is replaced while the cluster runs: the new one is put after the old one
in every broker's file, then before it, and then the old one is removed; brokers read the file when they start.

Whoever has a key can act as a broker, so its file may be read by its owner and at most its group.
"""

import stat
from pathlib import Path
from typing import Final, TypeAlias

from logboom.base.errors import LogboomError

KEY_BYTES: Final = 32
KEYS_MAX: Final = 4
_FILE_BYTES_MAX: Final = 4_096
_FORBIDDEN_MODE: Final = stat.S_IWGRP | stat.S_IRWXO
_HOW: Final = "make one with `logboom cluster key --out FILE`"


ClusterKeys: TypeAlias = tuple[bytes, ...]
"""At least one; the first is used, all are taken."""


class ClusterKeyError(LogboomError):
    """The file of the cluster's key cannot be used."""


def format_cluster_key(key: bytes) -> str:
    """The text of the file."""
    return key.hex() + "\n"


def read_cluster_keys(path: Path) -> ClusterKeys:
    """The keys in a file. Raises ClusterKeyError, which says what to do; no message has any of a key."""
    try:
        mode = path.stat().st_mode
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ClusterKeyError(f"cannot read the cluster's key {path}: {error.strerror}; {_HOW}") from None
    if mode & _FORBIDDEN_MODE:
        raise ClusterKeyError(
            f"the cluster's key {path} can be read or changed by other users (mode {stat.S_IMODE(mode):04o}): "
            f"`chmod 600 {path}`, and make a new one if somebody may have read it"
        )
    lines = text.split() if len(text) <= _FILE_BYTES_MAX else []
    if not 0 < len(lines) <= KEYS_MAX:
        raise ClusterKeyError(f"{path} should hold a key of a cluster, or {KEYS_MAX} at most, one a line; {_HOW}")
    return tuple(_key(path, line) for line in lines)


def _key(path: Path, line: bytes) -> bytes:
    try:
        key = bytes.fromhex(line.decode("ascii"))
    except ValueError:
        raise ClusterKeyError(f"{path} is not a key of a cluster: it should be hexadecimal digits; {_HOW}") from None
    if len(key) < KEY_BYTES:
        raise ClusterKeyError(f"a key in {path} has {len(key)} bytes, and at least {KEY_BYTES} are needed; {_HOW}")
    return key
