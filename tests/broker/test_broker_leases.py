"""A broker whose lease has ended, or that is not certain of it, commits nothing and refuses nothing for good."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import pytest
from tests.broker.node import append, append_soon, batch, values_of
from tests.broker.replicated import DIRECTOR, Cluster, on_brokers, refusal_of, stays, until
from tests.groups.test_service import commit, offset_of
from tests.support.simulated import stand_still

from logboom.base.errors import (
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetNotAvailableError,
    OutOfOrderSequenceError,
)
from logboom.base.ids import NO_BROKER, BrokerId, Offset, ProducerEpoch, ProducerId
from logboom.broker.broker import Broker
from logboom.broker.control.commands import Heartbeat, Lease, value_of
from logboom.broker.groups.offsets_stream import OFFSETS_STREAM
from logboom.broker.partition.refused_producers import BEGUN_S
from logboom.broker.partition.replica import Partition
from logboom.broker.peers import FrameKind
from logboom.groups.errors import CoordinatorNotAvailableError
from logboom.metadata import MetadataRecord
from logboom.metadata.assignment import Election, Eligibility, PartitionUpdate, decide
from logboom.metadata.membership import fence, partitions_changed
from logboom.metadata.reassignment import reassign
from logboom.metadata.records import BrokerChanged
from logboom.records import Record, build_batch
from logboom.sim.disk import SimDisk
from logboom.sim.threads import current, must_wait


@on_brokers(2)
async def test_without_its_lease_a_leader_commits_nothing(cluster: Cluster) -> None:
    """What it appended is not acknowledged while it has no lease, and is as soon as it has one again."""
    await cluster.create("orders", [1, 2])
    cluster[1].replica_manager.lease_changed(False)
    waits = append_soon(cluster.leader("orders"), batch(b"a"))
    await stays(lambda: not waits.done(), 1.0)
    cluster[1].replica_manager.lease_changed(True)
    await waits


@on_brokers(2)
async def test_a_broker_that_hears_of_no_change_stays_fenced_and_has_no_lease(cluster: Cluster) -> None:
    """As one whose disk hangs, while its heartbeats go on. Found by `logboom sim run --nodes 3 --seed 49`."""
    await cluster.create("orders", [1, 2])
    old, director = cluster.leader("orders"), cluster[DIRECTOR].cluster
    cluster.network.lost_posts.add(FrameKind.RAFT)
    records = fence(cluster.image, BrokerId(1), cluster.minimum_of)
    await director.controller.in_order(partial(director.state.commit, records))
    await until(lambda: not old.role.leader.has_lease, "its lease is over", within_s=5)
    leads = [old.leads]
    await stays(lambda: cluster.image.brokers[BrokerId(1)].fenced and not old.role.leader.has_lease, 3.0)
    cluster.network.lost_posts.clear()
    await until(lambda: not cluster.image.brokers[BrokerId(1)].fenced, "it is back", within_s=10)
    leads.append(old.leads)
    assert leads == [True, False], "it did not know before"
    await cluster.in_sync("orders")


@on_brokers(3)
async def test_a_broker_that_has_stopped_in_order_is_fenced_when_it_has(cluster: Cluster) -> None:
    """Nobody waits for the end of its lease: new replicas are placed on it, as on any other that is away for now."""
    await cluster.create("orders", [1, 2, 3])
    stopped = cluster.brokers.pop(3)
    await stopped.leave()
    await stopped.stop()
    cluster.network.leave(3)
    assert cluster.image.brokers[BrokerId(3)].fenced
    made = await cluster[DIRECTOR].catalog.create_stream("payments", replication_factor=4)
    assert BrokerId(3) in made.assignments[0].replicas
    await cluster.start(3)
    await cluster.in_sync("orders")
    await cluster.in_sync("payments")


@on_brokers(2)
async def test_a_broker_that_stops_commits_nothing_once_it_has_told_the_controller(cluster: Cluster) -> None:
    """What it alone can lead it leads until then, and again when it is back."""
    await cluster.create("orders", [1], min_insync_replicas="1")
    old = cluster.leader("orders")
    await append(old, b"a")
    stopped = cluster.brokers.pop(1)
    await stopped.leave()
    await append(old, b"b")
    await stopped.cluster.registration.end_lease()
    assert cluster.assignment("orders").leader == NO_BROKER
    assert isinstance(await refusal_of(append(old, b"c")), NotLeaderError)
    await stopped.stop()
    cluster.network.leave(1)
    await cluster.start(1)
    await cluster.in_sync("orders")
    assert await values_of(cluster.leader("orders")) == [b"a", b"b"]


@on_brokers(2)
async def test_who_led_before_a_move_by_choice_tells_no_end_that_is_old(cluster: Cluster) -> None:
    """It is in the ISR, so nothing is committed before it follows; and it is not certain from its next heartbeat on."""
    stream = await cluster.create("orders", [2, 1])
    await cluster.elect("orders", 0, 1)
    old, director = cluster.leader("orders"), cluster[DIRECTOR].cluster
    await append(old, b"a")
    deaf = cluster.network.members[BrokerId(1)]
    hears = deaf._posts.pop(FrameKind.RAFT)
    rules = Eligibility(cluster.image.is_active, 2)
    change = decide(0, cluster.assignment("orders"), PartitionUpdate(election=Election.PREFERRED), rules)
    assert change is not None
    records = tuple(partitions_changed(stream, (change,)))
    await director.controller.in_order(partial(director.state.commit, records))
    await tells_no_end_that_is_old(cluster, old)
    deaf.serve_posts(FrameKind.RAFT, hears)
    await until(lambda: cluster.partition(2, "orders").high_watermark == 2, "both commit it")


@on_brokers(3)
async def test_a_leader_whose_replica_is_moved_away_tells_no_end_that_is_old(cluster: Cluster) -> None:
    """It left the ISR with the same change by which another one led: its next heartbeat came too late."""
    await cluster.create("orders", [1, 2, 3])
    await cluster.in_sync("orders")
    old, director = cluster.leader("orders"), cluster[DIRECTOR].cluster
    await append(old, b"a")
    deaf = cluster.network.members[BrokerId(1)]
    hears = deaf._posts.pop(FrameKind.RAFT)
    records = reassign(cluster.image, "orders", 0, [2, 3], cluster.minimum_of)
    await director.controller.in_order(partial(director.state.commit, records))
    await tells_no_end_that_is_old(cluster, old)
    deaf.serve_posts(FrameKind.RAFT, hears)
    await until(lambda: cluster.assignment("orders").replicas == (2, 3), "the move is complete")
    assert cluster.assignment("orders").isr == (2, 3)
    await append(cluster.leader("orders"), b"c")


@on_brokers(3, replica_lag_max_ms=30_000)
async def test_a_coordinator_that_does_not_hear_of_the_next_one_answers_nothing(cluster: Cluster) -> None:
    """It has its lease, and the next one takes commits without it once it is out of the ISR."""
    await cluster[1].groups.offsets_stream()
    await cluster.create("clicks", [1, 2, 3])
    await cluster.take(reassign(cluster.image, OFFSETS_STREAM, 0, [1, 2, 3], cluster.minimum_of))
    await until(lambda: cluster.assignment(OFFSETS_STREAM).isr == (1, 2, 3), "the offsets are copied")
    await cluster.elect(OFFSETS_STREAM, 0, 1)
    await commits(cluster[1], 5)
    deaf, director = cluster.network.members[BrokerId(1)], cluster[DIRECTOR].cluster
    hears = deaf._posts.pop(FrameKind.RAFT)
    records = reassign(cluster.image, OFFSETS_STREAM, 0, [2, 3], cluster.minimum_of)
    await director.controller.in_order(partial(director.state.commit, records))
    later = asyncio.ensure_future(commits(cluster[2], 6))
    while not later.done():
        with suppress(CoordinatorNotAvailableError):
            assert (offset_of(cluster[1]), later.done()) == (5, False)
        await asyncio.sleep(0.1)
    assert cluster[1].cluster.registration.holds_lease
    with pytest.raises(CoordinatorNotAvailableError):
        offset_of(cluster[1])
    assert offset_of(cluster[2]) == 6
    deaf.serve_posts(FrameKind.RAFT, hears)
    await until(lambda: cluster.assignment(OFFSETS_STREAM).replicas == (2, 3), "the move is complete")


async def commits(broker: Broker, offset: int) -> None:
    """As a client does that asks again."""
    while (await broker.groups.commit(commit(offset))).results != (None,):
        await asyncio.sleep(0.05)


async def tells_no_end_that_is_old(cluster: Cluster, old: Partition) -> None:
    """What broker 2 takes, which leads now, is not committed as long as `old`, which has not heard of it, may tell an
    end: until its next heartbeat."""
    new = cluster.partition(2, "orders")
    await until(lambda: new.leads, "the new leader knows")
    waits = append_soon(new, batch(b"b"))
    for _ in range(15):  # less than it takes until the new leader has the ISR without the old one
        try:
            old.role.leader.check_latest_known()
        except OffsetNotAvailableError:
            pass
        else:
            assert not waits.done()
        await asyncio.sleep(0.1)
    assert old.leads
    assert not waits.done()
    with pytest.raises(OffsetNotAvailableError):
        old.role.leader.check_latest_known()


class HangingDisk:
    """What it is told to sync, on a thread or beside the loop, does not end before it is let go on."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self._before = disk.fault, disk.started_syncs
        self._held: list[Callable[[], object]] = []
        disk.fault = self._fault
        disk.started_syncs = self._complete_later

    def _fault(self, operation: str, path: str) -> None:
        self._before[0](operation, path)
        if operation == "sync" and current() is not None:
            wait = must_wait(f"sync of {path}, which hangs")
            self._held.append(wait.end)
            wait.park()

    def _complete_later(self, path: str, ended: Callable[[OSError | None], None]) -> None:
        assert self._before[1] is not None
        self._held.append(partial(self._before[1], path, ended))

    def let_go_on(self) -> None:
        self._disk.fault, self._disk.started_syncs = self._before
        for go_on in self._held:
            go_on()


@on_brokers(3)
async def test_a_leader_whose_disk_hangs_while_its_heartbeats_go_on_is_fenced_until_it_goes_on(
    cluster: Cluster,
) -> None:
    await cluster.create("orders", [1, 2, 3])
    held, old = HangingDisk(cluster.disk(1)), cluster.leader("orders")
    waits = append_soon(old, batch(b"a"))
    await until(lambda: cluster.assignment("orders").leader in (2, 3), "another one leads", within_s=30)
    assert cluster.image.brokers[BrokerId(1)].fenced
    await append(cluster.leader("orders"), b"b")
    assert old.leads, "it has not heard of it"
    with pytest.raises(OffsetNotAvailableError):
        old.role.leader.check_latest_known()
    await stays(lambda: cluster.image.brokers[BrokerId(1)].fenced, 10.0)
    held.let_go_on()
    await until(lambda: not cluster.image.brokers[BrokerId(1)].fenced, "it is back", within_s=30)
    await cluster.in_sync("orders")
    assert isinstance(await refusal_of(waits), NotLeaderError | NotEnoughReplicasError)


@on_brokers(2)
async def test_where_all_disks_hang_one_is_not_fenced_and_all_go_on_with_them(cluster: Cluster) -> None:
    """As on storage that they share: who is fenced last would be replaced by nobody."""
    await cluster.create("orders", [1, 2])
    held = [HangingDisk(cluster.disk(number)) for number in (1, 2)]
    waits = append_soon(cluster.leader("orders"), batch(b"a"))
    await until(lambda: sum(one.fenced for one in cluster.image.brokers.values()) == 1, "one is fenced", within_s=30)
    await stays(lambda: sum(one.fenced for one in cluster.image.brokers.values()) == 1, 20.0)
    for one in held:
        one.let_go_on()
    await cluster.in_sync("orders")
    await append(cluster.leader("orders"), b"b")
    assert isinstance(await refusal_of(waits), NotLeaderError | NotEnoughReplicasError)


@on_brokers(1)
async def test_a_new_broker_waits_for_its_snapshot_and_others_go_on(cluster: Cluster) -> None:
    """Its start ends once the snapshot comes; until then the other leader keeps its lease."""
    await cluster.create("orders", [1], min_insync_replicas="1")
    cluster.network.lost_posts.add(FrameKind.SNAPSHOT)
    starting = asyncio.ensure_future(cluster.start(2))
    await stays(lambda: not starting.done() and cluster.leader("orders").role.leader.has_lease, 5.0)
    cluster.network.lost_posts.clear()
    await starting


@on_brokers(2)
async def test_a_broker_that_is_being_fenced_gets_no_lease_by_a_heartbeat_that_comes_meanwhile(
    cluster: Cluster,
) -> None:
    await cluster.create("orders", [1, 2])
    state = cluster[DIRECTOR].cluster.state
    commit, begun, go_on = state.commit, asyncio.Event(), asyncio.Event()

    async def commit_slowly(records: Sequence[MetadataRecord]) -> None:
        if any(isinstance(one, BrokerChanged) and one.fenced for one in records):
            begun.set()
            await go_on.wait()
        await commit(records)

    state.commit = commit_slowly  # type: ignore[method-assign]
    cluster.network.cut(1, DIRECTOR)
    await begun.wait()
    cluster.network.heal()
    registration = cluster[1].cluster.registration
    await stays(lambda: not registration.holds_lease, 3.0)
    assert not cluster.image.brokers[BrokerId(1)].fenced
    go_on.set()
    await until(lambda: cluster.image.brokers[BrokerId(1)].fenced, "it is fenced")
    await until(lambda: registration.holds_lease, "it has applied that, and is back", within_s=5)


@on_brokers(2)
async def test_a_heartbeat_that_is_heard_after_a_later_one_ends_nothing_and_brings_nobody_back(
    cluster: Cluster,
) -> None:
    """A broker sends the next one before it has an answer, and connections break."""
    await cluster.create("orders", [1, 2])
    director = cluster[DIRECTOR].cluster
    cluster.network.cut(1, DIRECTOR)

    async def heard(number: int, *, stalled: bool) -> bool:
        """Whether the broker is fenced then."""
        heartbeat = Heartbeat(
            broker=1,
            epoch=cluster.image.brokers[BrokerId(1)].epoch,
            applied=director.state.applied_index,
            ready=True,
            stalled=stalled,
            number=number,
        )
        answer: Lease = value_of(await director.controller.execute(heartbeat), Lease)
        return answer.fenced

    found = [await heard(1_002, stalled=False), await heard(1_001, stalled=True)]
    found += [await heard(1_004, stalled=True), await heard(1_003, stalled=False)]
    found += [await heard(1_005, stalled=False)]
    assert found == [False, False, True, True, False]


@on_brokers(2)
async def test_copies_of_a_heartbeat_that_come_late_do_not_keep_a_lease(cluster: Cluster) -> None:
    """Nor do they show that a process lives, for which one that starts would be taken for a copy of its own. Found by
    `logboom sim run --nodes 3 --seed 700021`, with all faults but `nats-slow` and `leases`."""
    await cluster.create("orders", [1, 2])
    director = cluster[DIRECTOR].cluster
    registered = cluster.image.brokers[BrokerId(1)]
    cluster.network.cut(1, DIRECTOR)
    heartbeat = Heartbeat(
        broker=1, epoch=registered.epoch, applied=director.state.applied_index, ready=True, number=1_000_000
    )

    async def send_copies() -> None:
        while not cluster.image.brokers[BrokerId(1)].fenced:
            await director.controller.execute(heartbeat)
            await asyncio.sleep(0.1)

    async with asyncio.timeout(5):
        await send_copies()
    director.controller._liveness.check_has_ended(registered)


@on_brokers(3)
async def test_nobody_is_fenced_because_the_controller_stood_still(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    for delay_s in (0.0, 0.3, 1.0, 1.05):
        await asyncio.sleep(delay_s)
        before = cluster.image
        stand_still(3.0)
        await append(cluster.leader("orders"), b"a")
        await asyncio.sleep(0.5)
        assert cluster.image == before


@on_brokers(2)
async def test_without_its_lease_a_leader_refuses_no_producer_for_good(cluster: Cluster) -> None:
    """Another leader may have taken what comes before a batch; found by `logboom sim run --nodes 3`."""
    await cluster.create("orders", [1, 2])
    leader = cluster.leader("orders")
    await append_soon(leader, sequenced(b"a", producer=7, epoch=1, sequence=0))
    await asyncio.sleep(BEGUN_S)
    cluster[1].replica_manager.lease_changed(False)
    for epoch, sequence in ((1, 5), (0, 0)):
        refusal = await refusal_of(append_soon(leader, sequenced(b"b", 7, epoch, sequence)))
        assert isinstance(refusal, NotLeaderError)
    cluster[1].replica_manager.lease_changed(True)
    refusal = await refusal_of(append_soon(leader, sequenced(b"b", 7, 1, 5)))
    assert isinstance(refusal, OutOfOrderSequenceError)


@on_brokers(2)
async def test_a_broker_that_asks_others_to_lead_is_certain_of_nothing_any_more(cluster: Cluster) -> None:
    """They may lead, and take batches, before it hears of it."""
    await cluster.create("orders", [1, 2])
    certain = [cluster.leader("orders").role.leader.is_certain]
    await cluster[1].leave()
    certain.append(cluster[1].cluster.registration.is_current)
    assert certain == [True, False]


def sequenced(value: bytes, producer: int, epoch: int, sequence: int) -> bytearray:
    """A batch of an idempotent producer."""
    return build_batch(
        [Record(Offset(0), 0, None, value, ())],
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
    )


@on_brokers(2, minimum=1, replica_lag_max_ms=60_000)
async def test_a_new_broker_that_is_fenced_joins_as_soon_as_it_is_not(cluster: Cluster) -> None:
    """It has what was committed without it, and is in sync: `until` fails where that does not come."""
    await cluster.create("orders", [1, 2])
    await append(cluster.leader("orders"), b"a")
    await cluster.stop(2)
    await cluster.start(2)
    await cluster.take(fence(cluster.image, BrokerId(2), cluster.minimum_of))
    await append(cluster.leader("orders"), b"b")
    copy = cluster.partition(2, "orders")
    await until(lambda: copy.role.follower.high_watermark == 2, "the copy has it")
    await until(lambda: cluster.assignment("orders").isr == (1, 2), "it is in sync", within_s=5)


@on_brokers(3)
async def test_who_waits_for_a_leader_that_is_cut_off_is_sent_to_look_for_another_one(cluster: Cluster) -> None:
    """Not at once: a controller that changes takes a lease, too. What it appended here meanwhile comes to nothing."""
    await cluster.create("orders", (1, 2, 3))
    await append(cluster.leader("orders"), b"before", producer=(7, 0, 0))
    old = cluster.leader("orders")
    for other in (2, 3, DIRECTOR):
        cluster.network.cut(1, other)
    waits = append_soon(old, batch(b"after", producer=(7, 0, 1)))
    assert isinstance(await refusal_of(waits), NotLeaderError)
    assert isinstance(await refusal_of(append(old, b"and more", producer=(7, 0, 2))), NotLeaderError)
    await until(lambda: cluster.assignment("orders").leader in (2, 3), "another one leads")
    leader = cluster.leader("orders")
    await until(lambda: leader.leads, "it knows it")
    await append(leader, b"after", producer=(7, 0, 1))
    cluster.network.heal()
    await cluster.in_sync("orders")
    assert await values_of(cluster.leader("orders")) == [b"before", b"after"]
