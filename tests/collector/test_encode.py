"""Blocks of lines as record batches: the bytes that one record after the other would give."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.base.ids import Offset
from logboom.client.partitioner import murmur2
from logboom.collector.batch import Lines
from logboom.collector.encode import Run, encode_run
from logboom.collector.pending_send import OrderedSource
from logboom.records import Codec, Record, RecordLimits, build_batch, seal_batch, validate_produced

KEY_HEADERS = st.sampled_from(
    [OrderedSource("s", "web-1", "app", "/var/log/é.log"), OrderedSource("s", "h", "i", "-" * 200)]
)


def records_of(run: Run, delta: int) -> list[Record]:
    """One by one, by the builder of the records package."""
    lines = run.lines
    return [
        Record(
            Offset(delta + index - run.first),
            run.time_ms,
            run.key,
            lines.values[index],
            (
                *run.headers,
                ("log.file.position", b"%d" % lines.starts[index]),
                *([("log.unfinished", b"true")] if index in lines.unfinished else []),
            ),
        )
        for index in range(run.first, run.first + run.count)
    ]


@st.composite
def runs(draw: st.DrawFn) -> Run:
    source = draw(KEY_HEADERS)
    count = draw(st.integers(1, 150))
    values = draw(st.lists(st.binary(max_size=200), min_size=count, max_size=count))
    at = draw(st.sampled_from([0, 5, 96, 9_990, 99_999_000, 10**12 - 50]))
    starts = []
    for value in values:
        starts.append(at)
        at += len(value) + 1
    unfinished = frozenset(draw(st.sets(st.integers(0, count - 1), max_size=3)))
    first = draw(st.integers(0, count - 1))
    time_ms = draw(st.integers(1_000, 100_000))
    lines = Lines(values, starts, at, unfinished)
    return Run(source.key, source.headers(time_ms), lines, first, draw(st.integers(1, count - first)), time_ms)


@settings(max_examples=150, deadline=None)
@given(st.lists(runs(), min_size=1, max_size=3), st.sampled_from([0, 60, 7_500]))
def test_the_bytes_are_those_of_records_built_one_by_one(many: list[Run], before: int) -> None:
    filler = Run(b"", [], Lines([b""] * max(before, 1), [0] * max(before, 1), 0), 0, before, many[0].time_ms)
    todo = [filler, *many] if before else many
    base = todo[0].time_ms
    expected, plain, delta = list[Record](), b"", 0
    for run in todo:
        expected += records_of(run, delta)
        plain += encode_run(run, delta, base)
        delta += run.count
    newest = max(run.time_ms for run in todo)
    batch = seal_batch(plain, delta, times_ms=(base, newest), codec=Codec.ZSTD, producer=(7, 1, 5))
    assert batch == build_batch(expected, codec=Codec.ZSTD, producer_id=7, producer_epoch=1, base_sequence=5)
    validate_produced(batch, RecordLimits(1 << 30, 1 << 30, 1 << 30))


@pytest.mark.parametrize(
    ("key", "hash_of_it"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_partitions_are_those_of_the_java_client(key: bytes, hash_of_it: int) -> None:
    """The examples of Kafka's own test of its hash."""
    assert murmur2(key) == hash_of_it & 0xFFFFFFFF
