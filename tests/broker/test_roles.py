"""A partition's role: none while it is merely open, leader once the committed metadata says so."""

import asyncio
import errno
from collections.abc import Callable, Collection, Iterator
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
from logboom.base.errors import (
    DiskFullError,
    FencedLeaderEpochError,
    LogboomError,
    NotLeaderError,
    OffsetNotAvailableError,
    OutOfOrderSequenceError,
    UnknownLeaderEpochError,
    UnknownStreamError,
)
from logboom.base.ids import (
    NO_EPOCH,
    BrokerEpoch,
    BrokerId,
    DirectoryId,
    Epoch,
    Offset,
    PartitionIndex,
    StreamId,
    StreamName,
)
from logboom.broker.config import BrokerConfig
from logboom.broker.disk.rejections import WriteRejections
from logboom.broker.group_commit import FlushTarget
from logboom.broker.metrics import Counters
from logboom.broker.partition import gathering, refused_producers
from logboom.broker.partition.condition_check import WindowMemory
from logboom.broker.partition.id_memory import IdMemory
from logboom.broker.partition.leader import Leading
from logboom.broker.partition.read_cache import ReadCache
from logboom.broker.partition.reader_threads import ReaderThreads
from logboom.broker.partition.replica import AppendResult, Partition
from logboom.broker.partition.replication_port import StreamIdPartition
from logboom.broker.partition.services import LeadershipChanges, PartitionServices
from logboom.broker.role_keeper import RoleKeeper
from logboom.broker.settled_clock import SettledClock
from logboom.host import SystemClock
from logboom.metadata import Image, Stream, StreamCreated, delta_of
from logboom.metadata.records import BrokerRegistered, PartitionsPlaced, Placed
from logboom.records import gap_batch, patch_batch, read_header
from logboom.replication.following import Fetch, FetchAnswered, ReportDurableEnd
from logboom.replication.leadership import FollowerFetched
from logboom.replication.reconciliation import EpochEnd
from logboom.sim.disk import SimDisk
from logboom.storage import LogConfig, OpenFiles, PartitionLog

Result = TypeVar("Result")

ALONE = frozenset({BrokerId(1)})


class ImmediateCommit:
    """A group commit that flushes when it is asked to, on this thread."""

    failure = None

    def __init__(self) -> None:
        self.enqueued: list[FlushTarget] = []
        self.lacks = 0
        """How often there is no room for a job."""

    def enqueue(self, target: FlushTarget, size_bytes: int) -> None:
        self.enqueued.append(target)

    def commit(self) -> None:
        for target in self.enqueued:
            target.drain()
            target.flushed(target.log.flush(sync=True))
        self.enqueued.clear()

    def flush_soon(self, target: FlushTarget) -> None:
        self.enqueued.append(target)

    async def flush(self, target: FlushTarget) -> None:
        raise NotImplementedError

    async def run(self, function: Callable[[], Result]) -> Result:
        if self.lacks:
            self.lacks -= 1
            raise DiskFullError("no room")
        return function()


class Recorded:
    """A replication that writes down what the partition asks of it."""

    def __init__(self) -> None:
        self.fetches: list[Fetch] = []
        self.reported: list[ReportDurableEnd] = []
        self.moves = 0
        self.leading = False
        self.proposals = self.awaited_joins = 0

    def fetch(self, key: StreamIdPartition, request: Fetch) -> None:
        self.fetches.append(request)

    def report(self, key: StreamIdPartition, end: ReportDurableEnd) -> None:
        self.reported.append(end)

    def quiet_s(self, key: StreamIdPartition) -> float | None:
        return None

    def leads(self, key: StreamIdPartition, leads: bool) -> None:
        self.leading = leads

    def copies(self, key: StreamIdPartition, brokers: Collection[BrokerId]) -> None:
        """Nothing is kept here."""

    def written(self, key: StreamIdPartition) -> None:
        self.moves += 1

    def moved(self, key: StreamIdPartition) -> None:
        self.moves += 1

    def mark_moved(self, key: StreamIdPartition) -> None:
        self.moves += 1

    def propose(self, key: StreamIdPartition) -> None:
        self.proposals += 1

    def await_join(self, key: StreamIdPartition) -> None:
        self.awaited_joins += 1

    def forget(self, key: StreamIdPartition) -> None:
        """Nothing is kept here."""


@pytest.fixture(autouse=True)
def no_append_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for followers is enqueued at once; `test_gathering` is about the rest."""
    monkeypatch.setattr(gathering, "FEW_BYTES", 0)


@pytest.fixture
def commit() -> ImmediateCommit:
    return ImmediateCommit()


@pytest.fixture
def replication() -> Recorded:
    return Recorded()


class Lease:
    """What the clock says of this broker's lease, and the controller of its knowledge."""

    holds_lease = True
    is_current = True


@pytest.fixture
def lease() -> Lease:
    return Lease()


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def partition(commit: ImmediateCommit, replication: Recorded, lease: Lease, disk: SimDisk) -> Iterator[Partition]:
    """A partition of broker 1 over a log with two records of epoch 3, in no role."""
    open_files, clock, counters = OpenFiles(), SystemClock(), Counters()
    log = PartitionLog.open(disk, "log", LogConfig(), now_ms=1_000, report=Reports(), open_files=open_files)
    log.append(records := batch(b"a", b"b"), ((0, read_header(records)),), leader_epoch=Epoch(3), now_ms=1_000)
    log.flush(sync=True)
    config, logger = Current(BrokerConfig()), structlog.wrap_logger(structlog.testing.CapturingLogger())
    with ThreadPoolExecutor(1) as threads:
        services = PartitionServices(
            broker_id=BrokerId(1),
            clock=clock,
            settled_clock=SettledClock(clock),
            flusher=commit,
            readers=ReaderThreads(threads, clock),
            counters=counters,
            rejections=WriteRejections(counters, clock, logger),
            config=config,
            read_cache=ReadCache(0),
            window_memory=WindowMemory(config),
            id_memory=IdMemory(config, clock, counters),
            refused_memory=refused_producers.RefusedMemory(),
            open_files=open_files,
            log=logger,
            leadership_changes=LeadershipChanges(),
            replication=replication,
            standing=lease,
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
    partition.role.lead(Leading(Epoch(7), ALONE))
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
    async def body() -> None:
        partition.role.lead(Leading(Epoch(4), ALONE | {BrokerId(2)}))
        assert partition.high_watermark == 0, "what broker 2 has is not known"
        outcomes: list[AppendResult | LogboomError] = []
        partition.append(batch(b"c"), acks=-1, done=outcomes.append)
        commit.commit()
        assert not outcomes
        assert partition.log.durable_end == 3

    run(body)


def leaders_batch(*values: bytes, offset: int, epoch: int) -> memoryview:
    records = batch(*values)
    patch_batch(records, 0, Offset(offset), Epoch(epoch))
    return memoryview(records)


def answer(replication: Recorded, high_watermark: int, diverging: EpochEnd | None = None) -> FetchAnswered:
    return FetchAnswered(replication.fetches[-1].number, Offset(high_watermark), Offset(0), diverging=diverging)


def test_the_end_of_a_leadership_answers_what_waits_and_refuses_what_comes(
    partition: Partition, commit: ImmediateCommit, replication: Recorded
) -> None:
    async def body() -> None:
        partition.role.lead(Leading(Epoch(4), ALONE | {BrokerId(2)}))
        outcomes: list[AppendResult | LogboomError] = []
        news: list[Offset] = []
        partition.watch(lambda: news.append(partition.high_watermark))
        partition.append(batch(b"waits"), acks=-1, done=outcomes.append)
        commit.commit()
        partition.append(batch(b"queued"), acks=1, done=outcomes.append)
        partition.role.follow(BrokerId(2), Epoch(5))
        assert [type(outcome) for outcome in outcomes] == [NotLeaderError, NotLeaderError]
        assert news, "whoever waits for records learns that the leader is another"
        assert isinstance(outcome_of_append(partition, commit), NotLeaderError)
        with pytest.raises(NotLeaderError):
            await partition.deletion.delete_records(-1)
        for epoch in (-1, 5):
            partition.check_leader_epoch(epoch)
        with pytest.raises(FencedLeaderEpochError):
            partition.check_leader_epoch(4)
        with pytest.raises(UnknownLeaderEpochError):
            partition.check_leader_epoch(6)
        (fetch,) = replication.fetches
        assert (fetch.leader, fetch.epoch, fetch.offset, fetch.last_epoch) == (2, 5, 3, 4)
        assert not partition.offline

    run(body)


def test_a_follower_takes_records_shows_what_is_safe_and_leads_from_there(
    partition: Partition, commit: ImmediateCommit, replication: Recorded
) -> None:
    async def body() -> None:
        partition.role.follow(BrokerId(2), Epoch(4))
        partition.role.follower.answered(answer(replication, 2), leaders_batch(b"c", b"d", offset=2, epoch=4))
        assert partition.high_watermark == 2
        partition.role.follower.answered(answer(replication, 4), memoryview(b""))
        assert partition.high_watermark == 2, "what is not written cannot be read"
        commit.commit()
        assert partition.high_watermark == 4
        assert [end.durable_end for end in replication.reported] == [4]
        assert await values_of(partition) == [b"a", b"b", b"c", b"d"]
        partition.role.rest()
        partition.role.lead(Leading(Epoch(5), ALONE))
        taken = outcome_of_append(partition, commit)
        assert isinstance(taken, AppendResult)
        assert (taken.base_offset, partition.log.epochs.entries) == (4, ((3, 0), (4, 2), (5, 4)))

    run(body)


def test_a_follower_cuts_its_log_where_the_leader_says(
    partition: Partition, commit: ImmediateCommit, replication: Recorded
) -> None:
    async def body() -> None:
        partition.role.follow(BrokerId(2), Epoch(9))
        partition.role.follower.answered(answer(replication, 0, EpochEnd(Epoch(2), Offset(0))), memoryview(b""))
        while len(replication.fetches) < 2:
            await asyncio.sleep(0)
        assert (replication.fetches[-1].offset, partition.log.log_end_offset) == (0, 0)
        partition.role.follower.answered(answer(replication, 1), leaders_batch(b"other", offset=0, epoch=2))
        commit.commit()
        partition.role.follower.answered(answer(replication, 1), memoryview(b""))
        assert await values_of(partition) == [b"other"]

    run(body)


def test_a_follower_that_ends_inside_a_batch_of_its_leader_goes_back_to_where_that_begins(
    partition: Partition, commit: ImmediateCommit, replication: Recorded
) -> None:
    """Key compaction puts one batch in the place of several: the follower has not got the same ones."""

    async def body() -> None:
        records = batch(b"c", b"d", b"e")
        partition.log.append(records, ((0, read_header(records)),), leader_epoch=Epoch(3), now_ms=1_000)
        partition.log.flush(sync=True)
        partition.role.follow(BrokerId(2), Epoch(4))
        compacted = memoryview(gap_batch(Offset(2), Offset(9), Epoch(3)))
        partition.role.follower.answered(answer(replication, 9), compacted)
        while len(replication.fetches) < 2:
            await asyncio.sleep(0)
        assert replication.fetches[-1].offset == 2
        partition.role.follower.answered(answer(replication, 9), compacted)
        commit.commit()
        assert (partition.log_end_offset, replication.fetches[-1].offset) == (9, 9)

    run(body)


def test_an_answer_to_a_fetch_that_stands_cuts_nothing_if_it_comes_again(
    partition: Partition, commit: ImmediateCommit, replication: Recorded
) -> None:
    """Its records begin below the end of the log, as those of a batch that was compacted do."""

    async def body() -> None:
        partition.role.follow(BrokerId(2), Epoch(4))
        again = answer(replication, 2)._replace(offset=Offset(2), stands=True)
        records = leaders_batch(b"c", b"d", offset=2, epoch=4)
        partition.role.follower.answered(again, records)
        commit.commit()
        partition.role.follower.answered(again, records)
        assert not partition.role.follower.is_cutting
        assert (partition.log_end_offset, replication.fetches[-1].offset) == (4, 4)

    run(body)


def test_a_follower_waits_before_it_asks_again_for_bytes_that_are_no_batches(
    partition: Partition, replication: Recorded
) -> None:
    async def body() -> None:
        partition.role.follow(BrokerId(2), Epoch(4))
        wrong = bytearray(leaders_batch(b"c", offset=2, epoch=4))
        wrong[-1] ^= 1
        partition.role.follower.answered(answer(replication, 2), memoryview(wrong))
        assert len(replication.fetches) == 1
        while len(replication.fetches) < 2:
            await asyncio.sleep(0.01)
        assert replication.fetches[-1].offset == 2
        partition.role.rest()

    run(body)


def test_a_copy_that_waits_for_room_on_its_disk_asks_again_whatever_became_of_its_last_request(
    partition: Partition, replication: Recorded
) -> None:
    async def body() -> None:
        partition.role.follow(BrokerId(2), Epoch(4))
        partition.flush_failed(DiskFullError("no room"))
        partition.role.follower.failed(replication.fetches[-1].number, after_s=0.001)
        while len(replication.fetches) < 2:
            await asyncio.sleep(0.01)
        assert replication.fetches[-1].offset == 2
        partition.role.rest()

    run(body)


def test_a_log_that_a_leader_has_ordered_to_be_cut_leads_only_after_that(
    partition: Partition, replication: Recorded
) -> None:
    async def body() -> None:
        def may_lead() -> bool:
            return partition.role.is_settled

        partition.role.follow(BrokerId(2), Epoch(9))
        assert may_lead()
        partition.role.follower.answered(answer(replication, 0, EpochEnd(Epoch(2), Offset(0))), memoryview(b""))
        partition.role.rest()
        assert not may_lead()
        while not may_lead():
            await asyncio.sleep(0)
        assert partition.log.log_end_offset == 0
        partition.role.lead(Leading(Epoch(10), ALONE))
        assert partition.high_watermark == 0

    run(body)


def no_room(operation: str, path: str) -> None:
    if operation == "write":
        raise OSError(errno.ENOSPC, "no room", path)


@pytest.mark.parametrize("lacks", [0, 1])
def test_a_full_disk_keeps_nobody_from_leading(
    partition: Partition, commit: ImmediateCommit, replication: Recorded, disk: SimDisk, lacks: int
) -> None:
    """What was staged and never told of is dropped for it; where that does not help, it is tried again."""
    key = StreamName("orders"), PartitionIndex(0)
    brokers = BrokerId(1), BrokerId(2)
    registered = BrokerRegistered(
        id=brokers[0], epoch=BrokerEpoch(7), directory_id=DirectoryId("d"), incarnation="i", listeners={}
    )
    created = StreamCreated(name=key[0], id=partition.stream.id, partitions=1, config={}, internal=False)
    placed = PartitionsPlaced(id=created.id, placed=(Placed(brokers, brokers, brokers[0], Epoch(5)),))

    async def body() -> None:
        keeper = RoleKeeper(
            {key: partition},
            brokers[0],
            flusher=commit,
            own_epoch=lambda: registered.epoch,
            lost=(),
            changing=asyncio.Lock(),
            log=structlog.wrap_logger(structlog.testing.CapturingLogger()),
        )
        partition.role.follow(brokers[1], Epoch(4))
        partition.role.follower.answered(answer(replication, 2), leaders_batch(b"c", offset=2, epoch=4))
        disk.fault = no_room
        commit.lacks = lacks
        await keeper.follow(keeper.take(delta_of(Image(), [registered, created, placed]).after, [key]))
        while not partition.leads:
            await asyncio.sleep(0.01)
        assert partition.log_end_offset == 2
        await keeper.stop()

    run(body)


def test_a_leader_whose_lease_is_over_commits_nothing_whenever_it_is_told_so(
    partition: Partition, commit: ImmediateCommit, lease: Lease
) -> None:
    """A process that stood still finds messages of its followers before it finds its own timer. Found by
    `logboom sim run --nodes 3 --seed 28`."""

    async def body() -> None:
        def heard_of_follower() -> None:
            told = FollowerFetched(BrokerId(2), BrokerEpoch(7), Offset(3), partition.log_end_offset, 0.0)
            partition.role.leader.replication_step(told)

        partition.role.lead(Leading(Epoch(4), ALONE | {BrokerId(2)}))
        outcomes: list[AppendResult | LogboomError] = []
        partition.append(batch(b"c", producer=(7, 0, 0)), acks=-1, done=outcomes.append)
        commit.commit()
        lease.holds_lease = False
        heard_of_follower()
        assert not outcomes
        assert not partition.role.leader.has_lease
        partition.append(batch(b"d", producer=(7, 0, 5)), acks=-1, done=outcomes.append)
        commit.commit()
        assert isinstance(outcomes.pop(), NotLeaderError), "another one may have taken what comes before"
        lease.holds_lease = True
        partition.role.leader.lease_changed(True)
        assert isinstance(outcomes.pop(), AppendResult)

    run(body)


def test_a_leader_that_is_behind_the_controller_refuses_no_producer_for_good(
    partition: Partition, commit: ImmediateCommit, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by `logboom sim run --nodes 3 --seed 49`: its disk hung, and another one had led for long."""
    monkeypatch.setattr(refused_producers, "BEGUN_S", 0.0)
    partition.role.lead(Leading(Epoch(4), ALONE))
    outcomes: list[AppendResult | LogboomError] = []
    for is_current, sequence in ((True, 0), (False, 5), (True, 5)):
        lease.is_current = is_current
        partition.append(batch(b"c", producer=(7, 0, sequence)), acks=-1, done=outcomes.append)
        commit.commit()
    assert [type(outcome) for outcome in outcomes] == [AppendResult, NotLeaderError, OutOfOrderSequenceError]


def test_latest_is_not_known_until_what_an_earlier_leader_may_have_told_is_committed(
    partition: Partition, commit: ImmediateCommit
) -> None:
    async def body() -> None:
        partition.role.lead(Leading(Epoch(4), ALONE | {BrokerId(2)}))
        with pytest.raises(OffsetNotAvailableError):
            partition.role.leader.check_latest_known()
        partition.role.leader.replication_step(
            FollowerFetched(BrokerId(2), BrokerEpoch(7), Offset(2), partition.log_end_offset, 0.0)
        )
        partition.role.leader.check_latest_known()
        assert partition.high_watermark == 2

    run(body)


def test_a_new_partition_leads_only_once_its_stream_is_committed(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            record = StreamCreated(
                name=StreamName("orders"), id=StreamId(UUID(int=5)), partitions=2, config={}, internal=False
            )
            delta = delta_of(broker.catalog.image, [record])
            await broker.replica_manager.prepare(delta)
            assert (tmp_path / "streams" / "orders-1").is_dir()
            with pytest.raises(UnknownStreamError):
                broker.replicas.find("orders", 1)
            await broker.replica_manager.apply(delta, broker.cluster.state.applied_index + 1)
            partition = broker.replicas.find("orders", 1)
            assert (partition.leader_epoch, partition.log.epochs.are_saved) == (0, True)
            await append(partition, b"a")
            assert await values_of(partition) == [b"a"]

    run(body)


def test_a_partition_that_was_made_while_there_was_no_lease_leads_under_the_one_that_came_back(tmp_path: Path) -> None:
    """It was told of neither: it is in service only once its stream is committed. It committed nothing, and nobody
    joined its ISR, until the next lease was lost. Found by `logboom bench partitions 10000`."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            record = StreamCreated(
                name=StreamName("orders"), id=StreamId(UUID(int=5)), partitions=1, config={}, internal=False
            )
            delta = delta_of(broker.catalog.image, [record])
            broker.replica_manager.lease_changed(False)
            await broker.replica_manager.prepare(delta)
            broker.replica_manager.lease_changed(True)
            await broker.replica_manager.apply(delta, broker.cluster.state.applied_index + 1)
            partition = broker.replicas.find("orders", 0)
            assert partition.role.leader.has_lease
            await append(partition, b"a")
            broker.replica_manager.lease_changed(False)
            assert not partition.role.leader.has_lease

    run(body)
