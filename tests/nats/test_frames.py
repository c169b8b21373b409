"""The reader of NATS's protocol against a slow model, and against bytes that are nothing of the kind."""

import contextlib
import re
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.nats.link import frames
from logboom.nats.link.frames import (
    LINE_BYTES_MAX,
    Alike,
    Delivery,
    FrameError,
    FrameReader,
    Info,
    Notice,
    Ping,
    Pong,
    Refusal,
    Run,
)

_WORD = st.binary(min_size=1, max_size=12).filter(lambda word: not re.search(rb"[ \t\r\n]", word))
_DELIVERIES = st.builds(
    Delivery,
    st.integers(min_value=1, max_value=10**9),
    _WORD,
    st.one_of(st.just(b""), _WORD),
    st.one_of(st.just(b""), st.binary(max_size=30).map(lambda text: b"NATS/1.0\r\n" + text)),
    st.binary(max_size=60),
)
_NOTICES = st.one_of(
    st.just(Ping()), st.just(Pong()), st.just(Refusal("slow consumer")), st.just(Info(b'{"max_payload":1048576}'))
)


def written(event: Delivery | Notice) -> bytes:
    """The bytes of an event, as a server writes it."""
    match event:
        case Delivery(sid, subject, reply, header, payload):
            words = [subject, b"%d" % sid, *([reply] if reply else []), *([b"%d" % len(header)] if header else [])]
            line = b" ".join([b"HMSG" if header else b"MSG", *words, b"%d" % (len(header) + len(payload))])
            return line + b"\r\n" + header + payload + b"\r\n"
        case Ping():
            return b"PING\r\n"
        case Pong():
            return b"PONG\r\n"
        case Refusal(text):
            return f"-ERR '{text}'\r\n".encode()
        case Info(text=text):
            return b"INFO " + text + b"\r\n"


def fed(pieces: list[bytes]) -> list[Delivery | Notice]:
    """What a reader makes of bytes that arrive in these pieces."""
    reader = FrameReader()
    found: list[Delivery | Notice] = []
    for piece in pieces:
        for event in reader.feed(piece):
            found += event if isinstance(event, list | Alike) else [event]
            if isinstance(event, Alike):
                sizes = [(len(one.reply), len(one.payload)) for one in event]
                assert (event.are_of_one_size, event.size_bytes) == (len(set(sizes)) == 1, sum(of for _, of in sizes))
    return found


@given(st.lists(st.one_of(_DELIVERIES, _NOTICES), max_size=12), st.data())
def test_frames_are_read_in_their_order_however_they_arrive(
    events: list[Delivery | Notice], data: st.DataObject
) -> None:
    stream = b"+OK\r\n".join(map(written, events))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert fed(pieces) == events


_FEW_SUBJECTS = st.builds(
    Delivery,
    st.integers(1, 2),
    st.sampled_from([b"a", b"a.b"]),
    st.sampled_from([b"", b"", b"", b"r", b"_INBOX.1.22"]),
    st.sampled_from([b"", b"", b"", b"", b"", b"NATS/1.0\r\n\r\n"]),
    st.one_of(
        st.sampled_from([b"", b"12345", b"\r\n", b"\r\nMSG a 1 ", b"x\r\nMSG a 1 0\r\n\r\nMSG a 1 2\r\nyy\r\n"]),
        st.binary(max_size=9),
    ),
)


@given(st.lists(st.tuples(_FEW_SUBJECTS, st.sampled_from([1, 1, 2, 40])), max_size=8), st.data())
def test_messages_of_one_subject_are_read_in_their_order(
    repeated: list[tuple[Delivery, int]], data: st.DataObject
) -> None:
    events = [one for one, times in repeated for _ in range(times)]
    stream = b"".join(map(written, events))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    pieces = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert fed(pieces) == events


@given(st.lists(st.tuples(_FEW_SUBJECTS, st.integers(1, 20)), min_size=1, max_size=4), st.data())
def test_changed_bytes_between_messages_of_one_subject(
    repeated: list[tuple[Delivery, int]], data: st.DataObject
) -> None:
    """They are read, or refused with the protocol's error; nothing else is raised."""
    stream = bytearray(b"".join(written(one) * times for one, times in repeated))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FrameError):
        fed([bytes(stream)])


def outcome(pieces: list[bytes]) -> list[Delivery | Notice] | None:
    """What a reader makes of these pieces; None where it refuses them."""
    try:
        return fed(pieces)
    except FrameError:
        return None


@given(
    st.integers(0, 12),
    st.integers(0, 30),
    st.integers(16, 70),
    st.lists(st.tuples(st.integers(0, 5_000), st.sampled_from(b"\x00\t\v\f\r\n 019MxQ")), max_size=3),
    st.data(),
)
def test_rows_of_one_size_are_read_as_if_each_came_alone(
    reply_bytes: int, payload_bytes: int, count: int, changes: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Whatever is changed between them or in them."""
    made = data.draw(st.binary(min_size=count * payload_bytes, max_size=count * payload_bytes))
    rows = [
        Delivery(3, b"a.b", (b"%012d" % n)[12 - reply_bytes :], b"", made[n * payload_bytes : (n + 1) * payload_bytes])
        for n in range(count)
    ]
    stream = bytearray(b"".join(map(written, rows)))
    assert fed([bytes(stream)]) == rows
    for at, byte in changes:
        stream[at % len(stream)] = byte
    assert outcome([bytes(stream)]) == outcome([bytes((byte,)) for byte in stream])


def test_rows_of_one_size_before_others_come_as_one_run() -> None:
    """Where a number in reply subjects gets a digit more."""
    stream = b"".join(b"MSG a 1 r.%d 3\r\n%03d\r\n" % (n, n % 1_000) for n in range(960, 1_040))
    (run,) = FrameReader().feed(stream)
    assert isinstance(run, Alike)
    assert run.replies == [b"r.%d" % n for n in range(960, 1_040)]
    assert run.payloads == [b"%03d" % (n % 1_000) for n in range(960, 1_040)]
    assert (run.are_of_one_size, run.size_bytes) == (False, 240)
    (run,) = FrameReader().feed(stream[: stream.index(b"r.1000") - len(b"MSG a 1 ")])
    assert isinstance(run, Alike)
    assert (run.are_of_one_size, run.size_bytes) == (True, 120)


def test_a_burst_of_one_subject_comes_as_one_run() -> None:
    stream = b"".join(b"MSG a 1 %b3\r\n%03d\r\n" % (b"r " if n % 10 == 9 else b"", n) for n in range(1_000))
    (run,) = FrameReader().feed(stream)
    assert isinstance(run, Alike)
    assert len(run) == 1_000
    assert (run.are_of_one_size, run.size_bytes) == (False, 3_000)
    assert run[9] == Delivery(1, b"a", b"r", b"", b"009")
    assert [one.payload for one in run[5:7]] == [b"005", b"006"]
    assert run[-1].payload == b"999"


@given(st.lists(_DELIVERIES, min_size=1, max_size=4), st.data())
def test_changed_bytes_raise_nothing_but_the_protocols_error(events: list[Delivery], data: st.DataObject) -> None:
    """Any other exception fails the test."""
    stream = bytearray(b"".join(map(written, events)))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FrameError):
        fed([bytes(stream)])


@pytest.mark.parametrize(
    "line",
    [
        b"MSG a 1 x\r\n",
        b"MSG a 1\r\n",
        b"MSG a one 0\r\n\r\n",
        b"MSG a 1 -5\r\n",
        b"MSG a 1 99999999999\r\n",
        b"HMSG a 1 9 5\r\nNATS/\r\n",
        b"MSG a 1 1\r\nabc\r\n",
        b"MSG a\rb 1 1\r\nx\r\n",
        b"MSG a 1 r\nb 1\r\nx\r\n",
        b"HELLO\r\n",
        b"GET / HTTP/1.1\r\n",
        b"x" * (LINE_BYTES_MAX + 1),
    ],
)
def test_what_is_no_frame_is_refused(line: bytes) -> None:
    with pytest.raises(FrameError):
        fed([line])


@pytest.mark.parametrize("count", [1, 2, 40])
def test_subjects_may_hold_whatever_separates_no_words_for_a_server(count: int) -> None:
    """`bytes.split()` splits at some of it: one such message ended the connection, with all that was on it."""
    one = Delivery(1, b"a\vb.\f\x00", b"\v.r\f\x85", b"", b"x")
    assert fed([written(one) * count]) == [one] * count


@pytest.mark.parametrize("piece", [b"x", b"\n", b"\r"])
def test_a_line_that_drips_in_is_searched_once(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """To search it anew with each piece took 23 s of CPU time, and 60 s where it was of line feeds."""
    searched, whole = [0], frames._read

    def read(buffer: bytes, found: list[Run | Notice]) -> tuple[int, int]:
        searched[0] += len(buffer)
        return whole(buffer, found)

    monkeypatch.setattr(frames, "_read", read)
    reader = FrameReader()
    for _ in range(LINE_BYTES_MAX):
        assert reader.feed(piece) == []
    with pytest.raises(FrameError, match="a line of more than"):
        reader.feed(piece)
    assert searched[0] < 10


@pytest.mark.parametrize("more", [b"", b"1\r\nx", b"1\r\nx" * 3])
def test_payloads_that_look_like_messages_are_not_split_again_and_again(
    more: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher that knew the number of the subscription had each of its messages cost as much as fifty others."""
    looked_at, columns, rows = [0], frames._take_columns, frames._take_rows

    def take_columns(pieces: list[bytes], alike: Alike) -> int:
        looked_at[0] += len(pieces)
        return columns(pieces, alike)

    def take_rows(buffer: bytes, at: int, start: bytes, head: Any, rows_max: int, alike: Alike) -> int:
        looked_at[0] += min(rows_max, (len(buffer) - at) // head.size)
        return rows(buffer, at, start, head, rows_max, alike)

    monkeypatch.setattr(frames, "_take_columns", take_columns)
    monkeypatch.setattr(frames, "_take_rows", take_rows)
    events: list[Delivery | Notice]
    events = [Delivery(1, b"a.b", b"", b"", b"\r\nMSG a.b 1 " + more + b"y" * (n % 3)) for n in range(2_000)]
    assert fed([b"".join(map(written, events))]) == events
    assert looked_at[0] < 4 * len(events)


@pytest.mark.parametrize("piece", [1, 3, 1_023, 1_500])
def test_a_frame_that_drips_in_takes_no_more_memory_than_it_has_bytes(piece: int) -> None:
    payload = bytes(range(256)) * 1_024
    stream = b"MSG big 7 %d\r\n%b\r\n" % (len(payload), payload)
    reader, read = FrameReader(), []
    tracemalloc.start()
    try:
        for at in range(0, len(stream) - piece, piece):
            read += reader.feed(stream[at : at + piece])
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 1.5 * len(stream)
    assert not read
    assert reader.feed(stream[reader.unread_bytes :]) == [[Delivery(7, b"big", b"", b"", payload)]]


def test_a_long_message_is_put_together_once() -> None:
    payload = bytes(range(256)) * 8_192
    stream = b"MSG big 7 %d\r\n%b\r\nPING\r\n" % (len(payload), payload)
    pieces = [stream[at : at + 65_536] for at in range(0, len(stream), 65_536)]
    assert fed(pieces) == [Delivery(7, b"big", b"", b"", payload), Ping()]
