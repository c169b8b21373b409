"""Files of MaxMind: checks whether a file is intact, and looks up addresses.

The format is https://maxmind.github.io/MaxMind-DB/: a tree over the bits of addresses, whose records refer to nodes or
to positions in the data that follows. The reader detects damage at each lookup, so a partly damaged file still answers
all other lookups. Knows that format. Must not know tables or batches.
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
"""The result of a lookup at a damaged place; compare by identity."""

_REMEMBERED_MAX: Final = 100_000
_LOOKED_AT_MAX: Final = 20_000
"""How many data positions are decoded before a file is accepted: takes a second; a file has some 100,000."""
_BETWEEN_BYTES: Final = 16
"""Zeros between tree and data."""
_ODD: Final = (struct.error, IndexError, RecursionError, UnicodeDecodeError, OverflowError, MemoryError, TypeError)
"""Exceptions that readers raise for damaged bytes, besides their own; TypeError: for a key that is not text."""


def open_geoip(path: str) -> Callable[[str], dict[str, Any] | None]:
    """Looks up networks of addresses, IPv4 and IPv6: None for a text that is not an address, DAMAGED for a damaged
    place."""
    import maxminddb

    reader = maxminddb.open_database(path)  # its C extension, if installed

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
            return None  # an IPv6 address, and the file has only IPv4
        return found if isinstance(found, dict) else None

    return find


def damage_of(path: Path) -> str | None:
    """The fault inside a file that could be opened, as the end of a sentence: tree records that refer to nothing, or
    data that cannot be decoded. It decodes a sample of the data, which takes a second."""
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
        return f"is damaged: {outside:,} of the {len(places):,} positions that its tree refers to do not exist"
    looked_at = places[:: max(1, len(places) // _LOOKED_AT_MAX)].tolist()
    bad = _unreadable(data, start + _BETWEEN_BYTES, looked_at)
    return f"is damaged: {bad:,} of {len(looked_at):,} positions cannot be decoded" if bad else None


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
    """All records of the tree, two for each node; None if the tree is incomplete."""
    whole = data[: nodes * bits // 4]
    if len(whole) < nodes * bits // 4 or bits not in (24, 28, 32):
        return None
    rows = np.frombuffer(whole, np.uint8).reshape(nodes, bits // 4).astype(np.int64)
    if bits == 28:  # the middle byte has the upper four bits of both
        left = (rows[:, 3] >> 4) << 24 | rows[:, 0] << 16 | rows[:, 1] << 8 | rows[:, 2]
        right = (rows[:, 3] & 15) << 24 | rows[:, 4] << 16 | rows[:, 5] << 8 | rows[:, 6]
        return np.concatenate([left, right])
    width = bits // 8
    sides = rows.reshape(nodes * 2, width)
    found = np.zeros(len(sides), np.int64)
    for at in range(width):
        found = found << 8 | sides[:, at]
    return found
