"""Files of MaxMind: whether one is whole, and what it has for an address.

The format is https://maxmind.github.io/MaxMind-DB/: a tree over the bits of addresses, whose records name nodes or
places in the data behind it. The reader knows damage where it comes upon it, so that a file of which a part is damaged
answers all else. Knows that format. Must not know tables or batches.
"""

import ipaddress
import struct
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

DAMAGED: Final[dict[str, Any]] = {}
"""What is found, this very object, where the file is damaged."""

_REMEMBERED_MAX: Final = 100_000
_LOOKED_AT_MAX: Final = 20_000
"""How many of its places are decoded before a file is taken: a second's work, of some 100,000 that a file has."""
_BETWEEN_BYTES: Final = 16
"""Zeros between tree and data."""
_ODD: Final = (struct.error, IndexError, RecursionError, UnicodeDecodeError, OverflowError, MemoryError, TypeError)
"""What damaged bytes make readers raise beside their own error; TypeError: of a key that is not text."""


def open_geoip(path: str) -> Callable[[str], dict[str, Any] | None]:
    """Looks up networks of addresses, IPv4 and IPv6: a text that is not an address has nothing, a damaged place
    DAMAGED."""
    import maxminddb

    reader = maxminddb.open_database(path)  # its extension in C where that is installed

    @lru_cache(maxsize=_REMEMBERED_MAX)
    def find(key: str) -> dict[str, Any] | None:
        try:
            address = ipaddress.ip_address(key.strip().strip("[]"))
        except ValueError:
            return None
        try:
            found = reader.get(address)
        except (maxminddb.InvalidDatabaseError, *_ODD):
            return DAMAGED
        except ValueError:
            return None  # an address of IPv6 where the file has IPv4 alone
        return found if isinstance(found, dict) else None

    return find


def damage_of(path: Path) -> str | None:
    """What is wrong inside a file that could be opened, as the end of a sentence: records of its tree that lead
    nowhere, and of the places in its data those that cannot be read, of which so many are looked at that it takes a
    second."""
    import maxminddb

    with maxminddb.open_database(path, maxminddb.MODE_FILE) as reader:
        metadata = reader.metadata()
    data = path.read_bytes()
    places = _records(data, metadata.node_count, metadata.record_size)
    if places is None:
        return "is damaged: it ends before its tree does"
    start = metadata.node_count * metadata.record_size // 4
    places = np.unique(places[places > metadata.node_count]) - metadata.node_count + start
    outside = int(((places >= len(data)) | (places < start + _BETWEEN_BYTES)).sum())
    if outside:
        return f"is damaged: {outside:,} of the {len(places):,} places that its tree names are not there"
    looked_at = places[:: max(1, len(places) // _LOOKED_AT_MAX)].tolist()
    bad = _unreadable(data, start + _BETWEEN_BYTES, looked_at)
    return f"is damaged: {bad:,} of {len(looked_at):,} places cannot be read" if bad else None


def _unreadable(data: bytes, base: int, places: list[int]) -> int:
    from maxminddb import InvalidDatabaseError
    from maxminddb.decoder import Decoder

    decoder, bad = Decoder(data, base), 0
    for place in places:
        try:
            decoder.decode(place)
        except (InvalidDatabaseError, *_ODD):
            bad += 1
    return bad


def _records(data: bytes, nodes: int, bits: int) -> npt.NDArray[np.int64] | None:
    """All records of the tree, two of each node; None where it is not there as a whole."""
    whole = data[: nodes * bits // 4]
    if len(whole) < nodes * bits // 4 or bits not in (24, 28, 32):
        return None
    rows = np.frombuffer(whole, np.uint8).reshape(nodes, bits // 4).astype(np.int64)
    if bits == 28:  # the middle byte has the upper half bytes of both
        left = (rows[:, 3] >> 4) << 24 | rows[:, 0] << 16 | rows[:, 1] << 8 | rows[:, 2]
        right = (rows[:, 3] & 15) << 24 | rows[:, 4] << 16 | rows[:, 5] << 8 | rows[:, 6]
        return np.concatenate([left, right])
    width = bits // 8
    sides = rows.reshape(nodes * 2, width)
    found = np.zeros(len(sides), np.int64)
    for at in range(width):
        found = found << 8 | sides[:, at]
    return found
