"""A partition's role: none while it is merely open, leader once the committed metadata says so."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar
from uuid import UUID

import pytest
import structlog
from tests.broker.node import append, batch, run, running, values_of
from tests.support.logs import Reports

from logboom.base.dynamic import Current
from logboom.base.errors import LogboomError, NotLeaderError, UnknownStreamError
from logboom.base.ids import NO_EPOCH, BrokerId, Epoch, Offset, PartitionIndex, StreamId, StreamName
from logboom.broker.config import BrokerConfig
from logboom.broker.disk.rejections import WriteRejections
from logboom.broker.group_commit import FlushTarget
from logboom.broker.metrics import Counters
from logboom.broker.partition.condition_check import WindowMemory
from logboom.broker.partition.read_cache import ReadCache
from logboom.broker.partition.reader_threads import ReaderThreads
from logboom.broker.partition.replica import AppendResult, Partition
from logboom.broker.partition.services import PartitionServices
from logboom.host import SystemClock
from logboom.metadata import Stream, StreamCreated, delta_of
from logboom.records import read_header
from logboom.sim.disk import SimDisk
from logboom.storage import LogConfig, OpenFiles, PartitionLog

Result = TypeVar("Result")

ALONE = frozenset({BrokerId(1)})


class ImmediateCommit:
    """A group commit that flushes when it is asked to, on this thread."""

    failure = None

    def __init__(self) -> None:
        self.enqueued: list[FlushTarget] = []

    def enqueue(self, target: FlushTarget, size_bytes: int) -> None:
        self.enqueued.append(target)

    def commit(self) -> None:
        for target in self.enqueued:
            target.drain()
            target.flushed(target.log.flush(sync=True))
        self.enqueued.clear()

    async def flush(self, target: FlushTarget) -> None:
        raise NotImplementedError

    async def run(self, function: Callable[[], Result]) -> Result:
        raise NotImplementedError


@pytest.fixture
def commit() -> ImmediateCommit:
    return ImmediateCommit()


@pytest.fixture
def partition(commit: ImmediateCommit) -> Iterator[Partition]:
    """A partition of broker 1 over a log with two records of epoch 3, in no role."""
    open_files, clock, counters = OpenFiles(), SystemClock(), Counters()
    log = PartitionLog.open(SimDisk(), "log", LogConfig(), now_ms=1_000, report=Reports(), open_files=open_files)
    log.append(records := batch(b"a", b"b"), ((0, read_header(records)),), leader_epoch=Epoch(3), now_ms=1_000)
    log.flush(sync=True)
    config = Current(BrokerConfig())
    with ThreadPoolExecutor(1) as threads:
        services = PartitionServices(
            broker_id=BrokerId(1),
            clock=clock,
            flusher=commit,
            readers=ReaderThreads(threads, clock),
            counters=counters,
            rejections=WriteRejections(counters, clock, structlog.wrap_logger(structlog.testing.CapturingLogger())),
            config=config,
            read_cache=ReadCache(0),
            window_memory=WindowMemory(config),
            open_files=open_files,
        )
        stream = Stream(StreamName("orders"), StreamId(UUID(int=1)), 1, MappingProxyType({}), internal=False)
        yield Partition(stream, PartitionIndex(0), log, services)


def outcome_of_append(partition: Partition, commit: ImmediateCommit) -> AppendResult | LogboomError:
    outcomes: list[AppendResult | LogboomError] = []
    partition.append(batch(b"c"), acks=-1, done=outcomes.append)
    commit.commit()
    (outcome,) = outcomes
    return outcome


def test_an_open_partition_without_a_role_takes_no_append_and_shows_no_record(
    partition: Partition, commit: ImmediateCommit
) -> None:
    refused = outcome_of_append(partition, commit)
    assert isinstance(refused, NotLeaderError)
    assert "does not lead orders-0" in str(refused)
    assert (partition.leader_epoch, partition.high_watermark) == (NO_EPOCH, 0)
    assert partition.reads.read_cached(Offset(0), 1_000) == b""
    assert partition.log.log_end_offset == 2, "the log was left as it was"


def test_a_leader_serves_what_the_log_has_and_writes_its_own_epoch(
    partition: Partition, commit: ImmediateCommit
) -> None:
    partition.lead(Epoch(7), ALONE)
    assert (partition.leader_epoch, partition.high_watermark) == (7, 2)
    taken = outcome_of_append(partition, commit)
    assert isinstance(taken, AppendResult)
    assert (taken.base_offset, partition.high_watermark) == (2, 3)
    data = partition.log.reader.read(Offset(2), 1_000, ceiling=Offset(3))
    assert data is not None
    assert read_header(data).leader_epoch == 7
    assert [partition.end_of_epoch(Epoch(epoch)) for epoch in (3, 6, 7)] == [(3, 2), (3, 2), (7, 3)]


def test_a_leader_commits_nothing_that_another_member_of_the_isr_does_not_have(
    partition: Partition, commit: ImmediateCommit
) -> None:
    partition.lead(Epoch(4), ALONE | {BrokerId(2)})
    assert partition.high_watermark == 0, "what broker 2 has is not known"
    outcomes: list[AppendResult | LogboomError] = []
    partition.append(batch(b"c"), acks=-1, done=outcomes.append)
    commit.commit()
    assert not outcomes
    assert partition.log.durable_end == 3


def test_a_new_partition_leads_only_once_its_stream_is_committed(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            record = StreamCreated(
                name=StreamName("orders"), id=StreamId(UUID(int=5)), partitions=2, config={}, internal=False
            )
            delta = delta_of(broker.catalog.image, [record])
            await broker.replicas.prepare(delta)
            assert (tmp_path / "streams" / "orders-1").is_dir()
            with pytest.raises(UnknownStreamError):
                broker.replicas.find("orders", 1)
            await broker.replicas.apply(delta)
            partition = broker.replicas.find("orders", 1)
            assert (partition.leader_epoch, partition.log.epochs.are_saved) == (0, True)
            await append(partition, b"a")
            assert await values_of(partition) == [b"a"]

    run(body)
