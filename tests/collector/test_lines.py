"""Lines and events: whatever the blocks, the same lines at the same positions come out."""

import re

from hypothesis import given
from hypothesis import strategies as st

from logboom.collector.batch import Lines, concatenate
from logboom.collector.framing import OctetSplitter
from logboom.collector.joiner import Joiner, JoinRule
from logboom.collector.lines import LineSplitter

BIG = 1 << 20
texts = st.binary(max_size=300).map(lambda raw: raw.replace(b"\x01", b"\n").replace(b"\x02", b"\r\n"))


def cut(content: bytes, sizes: list[int]) -> list[bytes]:
    blocks = []
    for size in sizes:
        blocks.append(content[:size])
        content = content[size:]
    return [*blocks, content]


def feed_all(splitter: LineSplitter | OctetSplitter, blocks: list[bytes]) -> Lines:
    pieces = [splitter.feed(block) for block in blocks]
    last = splitter.flush()
    joined = concatenate([*pieces, last] if last else pieces)
    assert joined is not None
    return joined


@given(texts, st.lists(st.integers(0, 40), max_size=12))
def test_any_blocks_give_the_lines_of_the_whole(content: bytes, sizes: list[int]) -> None:
    lines = feed_all(LineSplitter(7, BIG), cut(content, sizes))
    expected = content.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert len(lines.values) == len(expected)
    for value, start, raw in zip(lines.values, lines.starts, expected, strict=True):
        assert content[start - 7 :].startswith(raw)
        assert value in (raw, raw[:-1] if raw.endswith(b"\r") else raw)
    assert lines.end == 7 + len(content)


def test_carriage_return_before_the_newline_belongs_to_the_line_end_and_nowhere_else() -> None:
    lines = LineSplitter(0, BIG).feed(b"a\r\nb\rc\n\r\n\r\r\n")
    assert lines.values == [b"a", b"b\rc", b"", b"\r"]
    assert lines.starts == [0, 3, 7, 9]


def test_a_carriage_return_and_its_newline_may_come_apart() -> None:
    splitter = LineSplitter(0, BIG)
    assert splitter.feed(b"a\r").values == []
    assert splitter.feed(b"\nb").values == [b"a"]


@given(st.binary(max_size=80).filter(lambda raw: b"\r" not in raw), st.lists(st.integers(0, 20), max_size=8))
def test_over_long_lines_come_in_pieces_and_nothing_is_lost(content: bytes, sizes: list[int]) -> None:
    lines = feed_all(LineSplitter(0, 5), cut(content, sizes))
    whole = b"".join(value + (b"" if index in lines.unfinished else b"\n") for index, value in enumerate(lines.values))
    assert whole in (content, content + b"\n")
    assert all(len(value) <= 5 for value in lines.values)
    assert all(len(lines.values[index]) == 5 for index in lines.unfinished)
    for value, start in zip(lines.values, lines.starts, strict=True):
        assert content[start : start + len(value)] == value


@given(st.binary(max_size=80), st.integers(0, 80))
def test_pieces_are_the_same_after_a_restart_between_them(content: bytes, at: int) -> None:
    whole = LineSplitter(0, 5).feed(content)
    resume_at = next((start for start in whole.starts if start >= at), whole.end)
    again = LineSplitter(resume_at, 5).feed(content[resume_at:])
    assert again.values == [v for v, s in zip(whole.values, whole.starts, strict=True) if s >= resume_at]


RULE = JoinRule(re.compile(rb"[A-Z]"), max_lines=4, max_bytes=60, idle_timeout_ms=1000)


def joined(content: bytes, sizes: list[int], rule: JoinRule = RULE) -> list[tuple[int, bytes]]:
    splitter, joiner = LineSplitter(0, BIG), Joiner(rule)
    out: list[tuple[int, bytes]] = []
    for block in cut(content, sizes):
        events = joiner.feed(splitter.feed(block), 0)
        out += zip(events.starts, events.values, strict=True)
        assert events.end == (splitter.start if joiner.start is None else joiner.start)
    for lines in (splitter.flush(), joiner.flush()):
        if lines:
            out += zip(lines.starts, lines.values, strict=True)
    return out


def test_a_stack_trace_is_one_event() -> None:
    content = b"Error: no\n  at a\n  at b\nInfo\nWarn\n  x\n"
    assert joined(content, []) == [(0, b"Error: no\n  at a\n  at b"), (24, b"Info"), (29, b"Warn\n  x")]


@given(st.text("Aa \n", max_size=120).map(lambda text: text.encode() + b"\n"), st.lists(st.integers(0, 30), max_size=8))
def test_joining_does_not_depend_on_blocks_and_loses_nothing(content: bytes, sizes: list[int]) -> None:
    events = joined(content, sizes)
    assert events == joined(content, [])
    assert b"\n".join(value for _, value in events) + b"\n" == content
    assert all(content[start : start + len(value)] == value for start, value in events)
    assert all(value.count(b"\n") < RULE.max_lines for _, value in events)


def test_an_event_waits_for_its_timeout_and_no_longer() -> None:
    joiner = Joiner(RULE)
    joiner.feed(Lines([b"Error"], [0], 6), 100)
    assert not joiner.is_idle(1099)
    assert joiner.is_idle(1100)
    joiner.feed(Lines([b" at"], [6], 10), 1100)
    assert not joiner.is_idle(1101)
    events = joiner.flush()
    assert events == Lines([b"Error\n at"], [0], 10)
    assert joiner.flush() is None


def test_pieces_of_one_long_line_are_joined_without_a_newline() -> None:
    joiner = Joiner(RULE)
    joiner.feed(Lines([b"Abc", b"Def", b"x"], [0, 3, 7], 9, frozenset({0})), 0)
    events = joiner.flush()
    assert events is not None
    assert events.values == [b"AbcDef\nx"]


@given(st.lists(st.binary(max_size=30), max_size=10), st.lists(st.integers(0, 40), max_size=8))
def test_octet_counted_frames_come_out_as_they_went_in(frames: list[bytes], sizes: list[int]) -> None:
    content = b"".join(b"%d %b" % (len(frame), frame) for frame in frames)
    splitter = OctetSplitter(0, 100)
    lines = feed_all(splitter, cut(content, sizes))
    assert lines.values == frames
    assert splitter.broken is None


@given(st.binary(max_size=60), st.lists(st.integers(0, 20), max_size=4))
def test_any_bytes_are_frames_or_break_the_connection(content: bytes, sizes: list[int]) -> None:
    splitter = OctetSplitter(0, 50)
    for block in cut(content, sizes):
        splitter.feed(block)
        if splitter.broken:
            break
        assert splitter.held_bytes <= 50 + 11


def test_frames_before_garbage_are_delivered() -> None:
    splitter = OctetSplitter(0, 50)
    assert splitter.feed(b"3 abchello").values == [b"abc"]
    assert splitter.broken is not None
