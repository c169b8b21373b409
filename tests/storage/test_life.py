"""Any life of a log, step by step against a model: a list of batches, and the offset below which they were acked."""

import errno
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.logs import Reports, append, batch, open_log, read_batches, read_one

from logboom.base.errors import DiskFullError, StorageError
from logboom.base.ids import Epoch, Offset
from logboom.sim.disk import SimDisk
from logboom.storage import LogConfig, PartitionLog

PRODUCERS = 3
NO_FAULT = lambda operation, path: None  # noqa: E731


class Life(RuleBasedStateMachine):
    """Three idempotent producers, one log, one disk."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.batches: dict[int, bytes] = {}
        self.next_sequence = dict.fromkeys(range(PRODUCERS), 0)
        self.sent: dict[int, tuple[int, int, int]] = {}  # base offset -> producer, sequence, count
        self.leader_epoch = 0
        self.start = 0
        self.reports = Reports()

    @initialize(
        config=st.sampled_from(
            [
                LogConfig(segment_bytes=1000, index_interval_bytes=200, recovery_point_bytes=400, preallocate_bytes=0),
                LogConfig(segment_bytes=3000, index_interval_bytes=1, recovery_point_bytes=900, preallocate_bytes=2000),
                LogConfig(),
            ]
        )
    )
    def begin(self, config: LogConfig) -> None:
        self.config = config
        self.log = self.opened()

    def opened(self) -> PartitionLog:
        return open_log(self.disk, self.config, reports=self.reports)

    def forget_from(self, end: int) -> None:
        """What reached to or above `end` is gone; the producers go on from what is left."""
        self.batches = {base: data for base, data in self.batches.items() if base < end}
        self.sent = {base: sent for base, sent in self.sent.items() if base < end}
        self.next_sequence = dict.fromkeys(range(PRODUCERS), 0)
        for _, (producer, sequence, count) in sorted(self.sent.items()):
            self.next_sequence[producer] = sequence + count

    @rule(producer=st.integers(0, PRODUCERS - 1), count=st.integers(1, 3), size=st.sampled_from([1, 100, 250]))
    def append(self, producer: int, count: int, size: int) -> None:
        sequence = self.next_sequence[producer]
        buffer = batch(count, size, timestamp_ms=self.log.log_end_offset, producer=producer, epoch=0, sequence=sequence)
        placed = append(self.log, buffer, leader_epoch=self.leader_epoch)
        assert not placed.duplicate
        self.batches[placed.base_offset] = bytes(buffer)
        self.sent[placed.base_offset] = producer, sequence, count
        self.next_sequence[producer] += count

    @precondition(lambda self: self.sent)
    @rule()
    def send_again(self) -> None:
        base = max(self.sent)
        producer, sequence, count = self.sent[base]
        placed = append(self.log, batch(count, 1, producer=producer, epoch=0, sequence=sequence))
        assert (placed.base_offset, placed.duplicate) == (base, True)

    @rule(sync=st.booleans())
    def flush(self, sync: bool) -> None:
        assert self.log.flush(sync=sync) == self.log.log_end_offset

    @rule()
    def end_the_segment(self) -> None:
        self.log.roll()

    @rule()
    def lead(self) -> None:
        self.leader_epoch += 1
        self.log.epochs.begin(Epoch(self.leader_epoch), self.log.log_end_offset)

    @rule()
    def abandon(self) -> None:
        self.log.abandon_staged()
        self.forget_from(self.log.log_end_offset)

    @rule(room=st.integers(0, 600))
    def flush_to_a_full_disk(self, room: int) -> None:
        self.disk.capacity_bytes = sum(len(node.data) for node in self.disk.nodes.values()) + room

        def only_the_log(operation: str, path: str) -> None:
            # The small files have room kept for them; the log has not.
            if operation == "write" and not path.endswith(".log"):
                self.disk.capacity_bytes += 10_000

        self.disk.fault = only_the_log
        try:
            self.log.flush(sync=True)
        except DiskFullError:
            self.log.abandon_staged()
            self.forget_from(self.log.log_end_offset)
            # The system writes back unasked, too. Otherwise what was refused may come back, of which nothing is said.
            for node in self.disk.nodes.values():
                node.sync()
        self.disk.capacity_bytes = 1 << 40
        self.disk.fault = NO_FAULT
        assert self.log.written_end == self.log.log_end_offset

    @rule(back=st.integers(0, 20))
    def truncate(self, back: int) -> None:
        offset = Offset(max(self.start, self.log.log_end_offset - back))
        self.log.truncate(offset, now_ms=1000)
        assert self.log.log_end_offset <= offset or offset > self.log.written_end
        self.forget_from(self.log.log_end_offset)
        self.start = min(self.start, self.log.log_start_offset)

    @rule(part=st.floats(0, 1))
    def delete_before(self, part: float) -> None:
        offset = Offset(int(self.start + part * (self.log.durable_end - self.start)))
        self.log.delete_before(offset)
        self.start = max(self.start, offset)

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.log = self.opened()

    @rule()
    def kill_and_open(self) -> None:
        written = self.log.written_end
        self.log = self.opened()
        assert self.log.log_end_offset == written
        self.forget_from(written)

    @rule(random=st.randoms(use_true_random=False))
    def power_cut(self, random: Random) -> None:
        durable, written = self.log.durable_end, self.log.written_end
        self.disk = self.disk.power_cut(random)
        self.log = self.opened()
        assert durable <= self.log.log_end_offset <= written
        self.forget_from(self.log.log_end_offset)

    @rule()
    def lose_the_sync(self) -> None:
        def fail(operation: str, path: str) -> None:
            if operation == "sync":
                raise OSError(errno.EIO, "the disk is gone")

        self.disk.fault = fail
        durable = self.log.durable_end
        try:
            self.log.flush(sync=True)
        except StorageError:
            with pytest.raises(StorageError):
                self.log.flush(sync=True)  # the log never writes again
            assert self.log.durable_end == durable
        self.disk.fault = NO_FAULT
        self.kill_and_open()

    @invariant()
    def every_batch_is_as_written(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert log.log_start_offset == self.start
        assert log.durable_end <= log.written_end <= log.log_end_offset
        assert not self.reports.damage
        readable = {base: data for base, data in self.batches.items() if self.start <= base < log.written_end}
        for base, data in readable.items():
            assert read_one(log, base) == data
        if readable:
            first = min(readable)
            assert read_batches(log, first)[0] == readable[first]
        ends = {base + self.sent[base][2] for base in self.batches}
        assert log.log_end_offset in (ends or {log.log_end_offset})
        for base in readable:
            # Times are offsets here.
            found = log.reader.offset_for_time(base, ceiling=log.written_end)
            assert found is not None
            assert found.offset == base


Life.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLife = Life.TestCase
