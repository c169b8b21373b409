"""Frames are cut out of any stream of bytes, however it arrives, and nobody gets room for what was only announced."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.units import MIB
from logboom.kafka.connection.frames import SCRATCH_BYTES, FrameReader


def reader(max_bytes: int = 100 * MIB) -> FrameReader:
    return FrameReader(memoryview(bytearray(SCRATCH_BYTES)), max_bytes)


def feed(frames: FrameReader, data: bytes, pieces: list[int]) -> list[bytearray]:
    """Give `data` in pieces, no bigger than the reader has room for."""
    out: list[bytearray] = []
    position = 0
    sizes = iter(pieces)
    while position < len(data):
        room = frames.buffer()
        size = min(next(sizes, len(data)), len(room), len(data) - position)
        room[:size] = data[position : position + size]
        position += size
        out += frames.received(size)
    return out


@settings(max_examples=200, deadline=None)
@given(
    bodies=st.lists(st.binary(min_size=8, max_size=300), max_size=12),
    pieces=st.lists(st.integers(1, 120), max_size=60),
)
def test_any_pieces_give_the_same_frames(bodies: list[bytes], pieces: list[int]) -> None:
    data = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    frames = reader()
    assert feed(frames, data, pieces) == bodies
    assert not frames.in_frame


@pytest.mark.parametrize("size", [SCRATCH_BYTES - 4, SCRATCH_BYTES, MIB, MIB + 1, 9 * MIB + 7])
def test_large_frames(size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    small = b"\0\0\0\x08" + b"smallone"
    data = struct.pack(">i", size) + body + small
    assert feed(reader(), data, []) == [body, b"smallone"]


def test_frames_share_no_memory() -> None:
    frames = reader()
    first, second = feed(frames, (b"\0\0\0\x08" + b"x" * 8) * 2, [])
    first[0] = 0
    assert second == b"x" * 8
    frames.buffer()[:4] = b"abcd"
    assert second == b"x" * 8


def test_an_announced_frame_has_no_room_before_its_bytes() -> None:
    frames = reader()
    room = frames.buffer()
    room[:5] = struct.pack(">i", 90 * MIB) + b"x"
    assert frames.received(5) == []
    assert len(frames.buffer()) <= MIB
    assert frames.in_frame


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\n", "HTTP/2"),
        (b"CONNECT {}\r\n", "NATS"),
        (struct.pack(">i", -1) + b"12345678", "cannot have a length of -1"),
        (struct.pack(">i", 7) + b"1234567", "cannot have a length of 7"),
        (struct.pack(">i", 1001) + b"12345678", "longer than the limit of 1000"),
    ],
)
def test_lengths_that_are_none(data: bytes, why: str) -> None:
    frames = reader(1000)
    good = b"\0\0\0\x08" + b"12345678"
    assert feed(frames, good + data, []) == [b"12345678"]
    assert frames.broken is not None
    assert why in frames.broken


def test_the_introduction_of_a_broker_is_known_at_once_and_at_the_beginning_alone() -> None:
    hello = b"\0\xb4" + b"logboom peer\0" + bytes(100)
    frames = reader()
    assert feed(frames, hello, []) == []
    assert frames.from_broker
    assert "peer.listen" in str(frames.broken)
    later = reader()
    assert feed(later, b"\0\0\0\x08" + b"smallone", []) == [b"smallone"]
    feed(later, hello, [])
    assert not later.from_broker
