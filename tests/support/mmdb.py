"""A small file of MaxMind's format for tests, of networks of IPv4 addresses and plain data.

The format is that of https://maxmind.github.io/MaxMind-DB/ (version 2.0): a binary search tree over the bits of an
address, with records of 32 bits, 16 bytes of zeros, the data, and metadata behind a marker.
"""

import ipaddress
import struct
from collections.abc import Mapping
from typing import Any

_MARKER = b"\xab\xcd\xefMaxMind.com"


class _Short(int):
    """Written with two bytes."""


class _Long(int):
    """Written with eight bytes."""


def mmdb(networks: Mapping[str, Any]) -> bytes:
    """The file; each network is given as `192.0.2.0/24`."""
    nodes: list[list[int | None]] = [[None, None]]
    data, offsets = b"", {}
    for text, value in networks.items():
        offsets[text] = len(data)
        data += _encoded(value)
        network = ipaddress.IPv4Network(text)
        bits = [int(network.network_address) >> (31 - at) & 1 for at in range(network.prefixlen)]
        node = 0
        for bit in bits[:-1]:
            if nodes[node][bit] is None:
                nodes.append([None, None])
                nodes[node][bit] = len(nodes) - 1
            node = int(nodes[node][bit] or 0)
        nodes[node][bits[-1]] = -1 - offsets[text]
    count = len(nodes)
    tree = b"".join(struct.pack(">I", _record(side, count)) for node in nodes for side in node)
    metadata = {
        "node_count": count,
        "record_size": _Short(32),
        "ip_version": _Short(4),
        "database_type": "Test",
        "languages": ["en"],
        "binary_format_major_version": _Short(2),
        "binary_format_minor_version": _Short(0),
        "build_epoch": _Long(1_700_000_000),
        "description": {"en": "test"},
    }
    return tree + bytes(16) + data + _MARKER + _encoded(metadata)


def _record(side: int | None, count: int) -> int:
    """The number of a node, of nothing, or of data."""
    if side is None:
        return count
    return side if side >= 0 else count + 16 + (-1 - side)


def _encoded(value: Any) -> bytes:
    if isinstance(value, dict):
        inside = b"".join(_encoded(key) + _encoded(item) for key, item in value.items())
        return bytes([7 << 5 | len(value)]) + inside
    if isinstance(value, list):
        return bytes([len(value), 11 - 7]) + b"".join(map(_encoded, value))
    if isinstance(value, float):
        return bytes([3 << 5 | 8]) + struct.pack(">d", value)
    if isinstance(value, _Short):
        return bytes([5 << 5 | 2]) + struct.pack(">H", value)
    if isinstance(value, _Long):
        return bytes([8, 9 - 7]) + struct.pack(">Q", value)
    if isinstance(value, int):
        return bytes([6 << 5 | 4]) + struct.pack(">I", value)
    text = str(value).encode()
    head = bytes([2 << 5 | len(text)]) if len(text) < 29 else bytes([2 << 5 | 29, len(text) - 29])
    return head + text
