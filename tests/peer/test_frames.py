"""Frames arrive as they were sent, however their bytes are cut; one that is not the next ends the connection."""

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.base.errors import InvalidRecordError, LogboomError, NotLeaderError
from logboom.base.units import KIB
from logboom.broker.peers import BODY_BYTES_MAX, PeerUnavailableError
from logboom.peer.failures import decode_failure, encode_failure
from logboom.peer.frames import PREFIX_BYTES, Frame, FrameError, FrameReader, FrameWriter, What

KEY = bytes(range(32))
Frames = list[tuple[What, bytes, int]]

bodies = st.one_of(st.binary(max_size=200), st.integers(0, 70_000).map(lambda size: bytes([size % 251]) * size))
sent_frames = st.lists(
    st.tuples(st.sampled_from([What.REQUEST, What.POST, What.ANSWER, What.FAILURE]), bodies, st.integers(0, 2**32 - 1)),
    max_size=8,
)


def written(frames: Frames, key: bytes = KEY) -> list[bytes]:
    writer = FrameWriter(key)
    return [
        writer.prefix(what, [body[:7], memoryview(body)[7:]], kind=3, number=number, timeout_ms=9) + body
        for what, body, number in frames
    ]


def read(reader: FrameReader, data: bytes, size_max: int) -> list[Frame]:
    """Bytes through the reader, as a socket would put them into its buffers."""
    frames: list[Frame] = []
    while data:
        buffer = reader.buffer()
        piece = data[: min(len(buffer), size_max)]
        buffer[: len(piece)] = piece
        frames += reader.received(len(piece))
        data = data[len(piece) :]
    return frames


def reader(scratch_bytes: int = 1_000) -> FrameReader:
    return FrameReader(KEY, memoryview(bytearray(scratch_bytes)))


@given(frames=sent_frames, size_max=st.integers(1, 90_000), scratch_bytes=st.integers(2 * PREFIX_BYTES, 300_000))
def test_frames_arrive_as_they_were_sent(
    frames: list[tuple[What, bytes, int]], size_max: int, scratch_bytes: int
) -> None:
    size_max = max(size_max, sum(len(body) for _, body, _ in frames) // 2_000)
    got = read(reader(scratch_bytes), b"".join(written(frames)), size_max)
    assert [(frame.what, bytes(frame.body), frame.number) for frame in got] == frames
    assert all((frame.kind, frame.timeout_ms) == (3, 9) for frame in got)


@given(frames=sent_frames, data=st.data())
def test_bytes_before_the_reader_was_there_come_first(
    frames: list[tuple[What, bytes, int]], data: st.DataObject
) -> None:
    stream = b"".join(written(frames))
    cut = data.draw(st.integers(0, len(stream)))
    one = reader()
    got = one.feed(stream[:cut]) + read(one, stream[cut:], 10_000)
    assert [(frame.what, bytes(frame.body), frame.number) for frame in got] == frames


@given(frames=sent_frames.filter(bool), data=st.data())
def test_a_changed_byte_anywhere_ends_it_at_that_frame(
    frames: list[tuple[What, bytes, int]], data: st.DataObject
) -> None:
    parts = written(frames)
    which = data.draw(st.integers(0, len(parts) - 1))
    # A length that is too great makes the reader wait for more, so the length is tried by itself below.
    at = data.draw(st.integers(4, len(parts[which]) - 1))
    part = parts[which]
    parts[which] = part[:at] + bytes([part[at] ^ data.draw(st.integers(1, 255))]) + part[at + 1 :]
    one = reader(300_000)
    assert len(read(one, b"".join(parts[:which]), 100_000)) == which
    with pytest.raises(FrameError, match="seal is wrong"):
        read(one, parts[which], 100_000)


@pytest.mark.parametrize("change", ["repeated", "left out", "swapped", "of the other direction"])
def test_frames_that_are_not_the_next_end_it(change: str) -> None:
    frames = [(What.POST, b"%d" % number, number) for number in range(3)]
    first, second, third = written(frames)
    streams = {
        "repeated": first + first,
        "left out": first + third,
        "swapped": second + first,
        "of the other direction": written(frames, bytes(32))[0],
    }
    with pytest.raises(FrameError, match="seal is wrong"):
        read(reader(), streams[change], 10_000)


@given(noise=st.binary(min_size=PREFIX_BYTES, max_size=2_000))
def test_noise_is_no_frame(noise: bytes) -> None:
    one = reader(4_000)
    with pytest.raises(FrameError):
        # A length within the limit is waited for.
        read(one, b"\0\0" + noise[2:] + bytes(70_000), 4_000)


def test_a_length_beyond_the_limit_reserves_nothing() -> None:
    with pytest.raises(FrameError, match="longer than the limit"):
        read(reader(), (BODY_BYTES_MAX + 1).to_bytes(4, "big") + bytes(PREFIX_BYTES), 100)


@pytest.mark.parametrize(
    "head",
    [
        "00000000 00000000 00 00 0000 00000000 00000000",
        "00000000 00000000 08 00 0000 00000000 00000000",
        "00000000 00000000 02 03 0001 00000000 00000000",
        "00000001 00000001 05 00 0000 00000000 00000000",
        "00000001 00000002 03 00 0000 00000000 00000000",
    ],
)
def test_a_sealed_frame_of_unknown_form_ends_it(head: str) -> None:
    raw = bytes.fromhex(head.replace(" ", ""))
    body = b"\0" * raw[3]
    seal = hmac.digest(KEY, bytes(8) + raw + body, "sha256")[:16]
    with pytest.raises(FrameError, match="unknown form"):
        read(reader(), raw + seal + body, 100)


def test_a_seal_may_cover_the_beginning_of_a_body_alone() -> None:
    frame = FrameWriter(KEY).prefix(What.ANSWER, [b"decides", b"records"], number=1, covered=1) + b"decidesrecords"
    (found,) = read(reader(), frame.replace(b"records", b"RECORDS"), 100)
    assert bytes(found.body) == b"decidesRECORDS"
    with pytest.raises(FrameError, match="seal is wrong"):
        read(reader(), frame.replace(b"decides", b"Decides"), 100)


def test_a_body_that_came_in_several_reads_may_be_kept_and_changed() -> None:
    frames = [(What.ANSWER, b"x" * 100 * KIB, 1), (What.ANSWER, b"y" * 100 * KIB, 2)]
    first, second = read(reader(1_000), b"".join(written(frames)), 50_000)
    first.body[0] = 0
    assert bytes(first.body[1:]) == b"x" * (100 * KIB - 1)
    assert bytes(second.body) == frames[1][1]


class OfHereError(NotLeaderError):
    """An error that the other broker does not know."""


def test_an_error_of_an_unknown_class_becomes_the_nearest_known() -> None:
    data = encode_failure(OfHereError("moved", limit="l"))
    found = decode_failure(data)
    assert type(found) is OfHereError
    unknown = decode_failure(data.replace(b"OfHereError", b"OfHereErroR"))
    assert type(unknown) is NotLeaderError
    assert (str(unknown), unknown.limit) == ("moved", "l")
    assert type(decode_failure(encode_failure(PeerUnavailableError("away")))) is PeerUnavailableError


def test_fields_that_are_not_plain_are_left_out() -> None:
    error = InvalidRecordError("wrong", record_indexes=(1,))
    error.__dict__["handle"] = object()
    found = decode_failure(encode_failure(error))
    assert isinstance(found, InvalidRecordError)
    assert list(found.record_indexes) == [1]
    assert not hasattr(found, "handle")
    assert isinstance(found, LogboomError)


@given(st.binary(max_size=64), st.lists(st.binary(max_size=200), max_size=4))
def test_the_seal_is_an_hmac_over_the_position_the_head_and_what_is_covered(key: bytes, body: list[bytes]) -> None:
    writer = FrameWriter(key)
    for position in range(2):
        frame = writer.prefix(What.REQUEST, body, kind=1)
        head, seal = frame[:20], frame[20:]
        assert seal == hmac.digest(key, position.to_bytes(8, "big") + head + b"".join(body), "sha256")[:16]
