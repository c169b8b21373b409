"""Any history of a log of keys: writes, deletions, cleanings that are cut short, kills, power failures, truncations,
clocks that jump, lags of any length, records without a key from a time when the stream was not compacted."""

import contextlib
from collections.abc import Callable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.compaction import NO_KEY, Pair, Table, clean, pairs_batch, records_of
from tests.support.logs import DIRECTORY, Reports, append, open_log

from logboom.base.errors import CompactionCancelledError
from logboom.base.ids import Epoch, Offset
from logboom.records import Codec
from logboom.sim.disk import SimDisk
from logboom.storage import CompactionSettings, LogConfig, LogView, PartitionLog, verify

NEVER_MS = 1 << 60
"""No producer is forgotten, however far the clock jumps."""
CONFIGS = (
    LogConfig(
        segment_bytes=700,
        index_interval_bytes=1,
        recovery_point_bytes=300,
        preallocate_bytes=0,
        producer_expiry_ms=NEVER_MS,
    ),
    LogConfig(
        segment_bytes=3000,
        index_interval_bytes=200,
        recovery_point_bytes=900,
        preallocate_bytes=3000,
        producer_expiry_ms=NEVER_MS,
    ),
)
KEYS = st.sampled_from(["a", "b", "c", "d", "long" * 30])
VALUES = st.one_of(st.none(), st.text("xyz", max_size=40))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)
PAIRS_WITHOUT_KEYS = st.lists(st.tuples(st.sampled_from(["a", NO_KEY]), VALUES), min_size=1, max_size=6)
MAPS = st.sampled_from([1, 400, 1 << 16])
LAGS = st.sampled_from([0, 0, 30, 1 << 40])

STEPS = st.one_of(
    st.tuples(st.just("put"), PAIRS, st.sampled_from(Codec), st.booleans()),
    st.tuples(st.just("put"), PAIRS, st.sampled_from(Codec), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("put"), PAIRS_WITHOUT_KEYS, st.sampled_from(Codec), st.booleans()),
    st.tuples(st.just("wait"), st.integers(1, 300)),
    st.tuples(st.just("wait"), st.sampled_from([-900, 1 << 41])),
    st.tuples(st.just("lead")),
    st.tuples(st.just("clean"), MAPS, st.integers(0, 200), st.just(0), st.just(1.0)),
    st.tuples(st.just("clean"), MAPS, st.integers(0, 200), LAGS, st.floats(0, 1)),
    st.tuples(st.just("cut_short"), st.integers(0, 3)),
    st.tuples(st.just("kill")),
    st.tuples(st.just("power_cut"), st.integers(0, 1 << 16)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("delete"), st.floats(0, 1)),
    st.tuples(st.just("truncate"), st.integers(0, 10)),
    st.tuples(st.just("configure"), st.sampled_from(CONFIGS)),
)


class History:
    """A log of keys, and the table of what was written to it."""

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.disk = SimDisk()
        self.table = Table()
        self.now_ms = 1_000_000
        self.epoch = 0
        self.cleaned_end = 0
        """Committed up to here at least, since no more was ever cleaned: truncations stay above."""
        self.log = self.opened()

    def opened(self) -> PartitionLog:
        reports = Reports()
        log = open_log(self.disk, self.config, now_ms=self.now_ms, reports=reports)
        assert not reports.damage, reports.damage
        return log

    def put(self, pairs: list[Pair], codec: Codec, idempotent: bool) -> None:
        producer = (-1, -1, -1)
        if idempotent:
            state = next((state for _, state in self.log.producers), None)
            producer = (7, 0, 0 if state is None else state.batches[-1].last_sequence + 1)
        buffer = pairs_batch(pairs, timestamp_ms=self.now_ms, codec=codec, producer=producer)
        placed = append(self.log, buffer, leader_epoch=self.epoch, now_ms=self.now_ms)
        assert not placed.duplicate
        self.table.put(placed.base_offset, pairs)
        self.log.flush(sync=True)
        self.now_ms += 10

    def roll(self) -> None:
        self.log.roll()
        self.log.flush(sync=True)

    def wait(self, ms: int) -> None:
        self.now_ms += ms

    def lead(self) -> None:
        self.epoch += 1
        self.log.epochs.begin(Epoch(self.epoch), self.log.log_end_offset)

    def clean(self, map_bytes: int, delete_retention_ms: int, lag_ms: int, stable_share: float) -> None:
        """`stable_share`: how much of what lies above all that was cleaned before is committed."""
        settings = CompactionSettings(
            delete_retention_ms=delete_retention_ms, map_bytes=map_bytes, min_compaction_lag_ms=lag_ms
        )
        before = self.log.compaction.first_dirty_offset
        stable_end = self.cleaned_end + int(stable_share * (self.log.durable_end - self.cleaned_end))
        dirt = self.log.compaction.dirt(settings, now_ms=self.now_ms, stable_end=Offset(stable_end))
        assert dirt.cleanable_end <= max(stable_end, before)
        self.cleaned_end = max(self.cleaned_end, min(stable_end, self.log.segments[-1].base))
        cleaned = clean(self.log, settings, now_ms=self.now_ms, stable_end=stable_end)
        assert cleaned.first_dirty_offset >= before
        assert cleaned.is_complete == (cleaned.first_dirty_offset == dirt.cleanable_end)
        assert not dirt.is_cleanable or cleaned.first_dirty_offset > before
        if cleaned.is_complete:
            self.each_key_is_there_once(cleaned.first_dirty_offset)

    def each_key_is_there_once(self, end: int) -> None:
        keys = [key for offset, key, _ in self.table.found_in(self.log) if offset < end]
        assert NO_KEY not in keys
        assert len(keys) == len(set(keys))

    def cut_short(self, swaps: int) -> None:
        self.cleaned_end = max(self.cleaned_end, self.log.segments[-1].base)
        cleaning = self.log.compaction.begin(
            CompactionSettings(delete_retention_ms=0), now_ms=self.now_ms, stable_end=self.log.durable_end
        )
        for _ in range(swaps):
            swap = cleaning.write_next(lambda size_bytes: None, lambda: False)
            if swap is None:
                break
            swap()
        with contextlib.suppress(CompactionCancelledError):
            cleaning.write_next(lambda size_bytes: None, lambda: True)
        cleaning.abandon()

    def kill(self) -> None:
        self._reopen(self.disk.after_kill)

    def power_cut(self, seed: int) -> None:
        self._reopen(lambda: self.disk.power_cut(Random(seed)))

    def restart(self) -> None:
        self.log.close()
        self._reopen(lambda: self.disk)

    def forget(self) -> None:
        """Lose the note of what was cleaned, which only costs the next cleaning time."""
        self.log.close()
        path = f"{DIRECTORY}/first-dirty-offset"
        if self.disk.exists(path):
            self.disk.unlink(path)
        self._reopen(lambda: self.disk)
        assert self.log.compaction.first_dirty_offset == self.log.log_start_offset

    def _reopen(self, disk: Callable[[], SimDisk]) -> None:
        remembered = {producer: state.batches for producer, state in self.log.producers}
        end = self.log.log_end_offset
        self.disk = disk()
        self.log = self.opened()
        self.epoch = max(self.epoch, self.log.epochs.latest)
        assert self.log.log_end_offset == end
        assert {producer: state.batches for producer, state in self.log.producers} == remembered

    def delete(self, share: float) -> None:
        self.log.delete_before(Offset(int(share * self.log.durable_end)))

    def truncate(self, count: int) -> None:
        offset = max(self.log.log_end_offset - count, self.cleaned_end, self.log.log_start_offset)
        self.table.truncate(self.log.truncate(Offset(offset), now_ms=self.now_ms))

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self.log.configure(config)

    def check(self) -> None:
        self.table.hold(self.log)
        self.searches_find_what_is_left()
        assert self.log.compaction.first_dirty_offset <= self.log.log_end_offset

    def searches_find_what_is_left(self) -> None:
        """By time, by the highest time, and from any offset on, gaps included."""
        records, reader, end = records_of(self.log), self.log.reader, self.log.log_end_offset
        highest = max((record.timestamp_ms for record in records), default=None)
        found = reader.max_timestamp(end)
        assert (None if found is None else found.timestamp_ms) == highest
        for number in range(0, len(records), 7):
            wanted_ms = records[number].timestamp_ms
            first = next(record for record in records if record.timestamp_ms >= wanted_ms)
            found = reader.offset_for_time(wanted_ms, ceiling=end)
            assert found is not None
            assert (found.offset, found.timestamp_ms) == (first.offset, first.timestamp_ms)
        assert highest is None or reader.offset_for_time(highest + 1, ceiling=end) is None
        for offset in range(self.log.log_start_offset, end, 5):
            assert records_of(self.log, offset) == [record for record in records if record.offset >= offset]


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(CONFIGS), st.lists(STEPS, max_size=30))
def test_the_table_is_what_was_written(config: LogConfig, steps: list[tuple[object, ...]]) -> None:
    history = History(config)
    for name, *arguments in steps:
        getattr(history, str(name))(*arguments)
        history.check()
    reports = Reports()
    history.log.close()
    verify(LogView(history.disk, DIRECTORY), reports)
    assert not reports.damage, reports.damage
    # What remembers nothing beside the segments finds the same.
    for name in history.disk.list(DIRECTORY):
        if not name.endswith(".log"):
            history.disk.unlink(f"{DIRECTORY}/{name}")
    history.log = open_log(history.disk, config)
    start = history.log.log_start_offset
    history.table.appended = {at: pair for at, pair in history.table.appended.items() if at >= start}
    for offset, pair in history.table.latest_with_value():
        assert (offset, *pair) in history.table.found_in(history.log)
