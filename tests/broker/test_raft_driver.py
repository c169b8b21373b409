"""The driver of the consensus group: commits, restarts, members that come and go, leaders that are cut off."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.support import simulated
from tests.support.raft_groups import DIRECTORY, FAST, GroupNetwork, Member, leader_of
from tests.support.waiting import WAIT_S

from logboom.base.errors import NotControllerError, OutcomeUnknownError
from logboom.broker.raft import ProposalRejectedError, RaftSettings
from logboom.broker.raft.inspect import MemberView
from logboom.host import OsDisk
from logboom.raft import (
    ConfChangeSingle,
    ConfChangeType,
    ConfChangeV2,
    Effect,
    Event,
    Node,
    NodeId,
    Received,
    TimePassed,
)
from logboom.sim.disk import SimDisk


def change(kind: ConfChangeType, member: Member) -> ConfChangeV2:
    return ConfChangeV2((ConfChangeSingle(kind, member.node_id),))


async def grown(network: GroupNetwork, count: int, settings: RaftSettings = FAST) -> list[Member]:
    """A group that began as one member and has so many voters now."""
    first = await Member(network, 1, SimDisk(), settings=settings).start()
    await first.serving()
    members = [first]
    for number in range(2, count + 1):
        member = await Member(network, number, SimDisk(), joins=True, settings=settings).start()
        members.append(member)
        await first.group.change_members(change(ConfChangeType.ADD_LEARNER_NODE, member))
        await first.group.change_members(change(ConfChangeType.ADD_NODE, member))
    return members


async def stop(*members: Member) -> None:
    for member in members:
        await member.stop()


def test_a_member_alone_commits_and_finds_everything_again(tmp_path: Path) -> None:
    async def body() -> None:
        (tmp_path / "data").mkdir()
        disk = OsDisk(str(tmp_path / "data"))
        member = await Member(GroupNetwork(), 1, disk).start()
        await member.serving()
        indexes = [await member.group.propose(b"%d" % number) for number in range(20)]
        assert indexes == sorted(indexes)
        together = await asyncio.gather(*(member.group.propose(b"together %d" % number) for number in range(200)))
        assert together == sorted(together)
        assert await member.group.confirm_leadership() == together[-1]
        before = member.machine.data
        assert len(before) == 220
        await member.stop()
        again = await Member(GroupNetwork(), 1, disk).start()
        assert again.machine.data == before
        await again.serving()
        assert again.machine.data == before
        await again.stop()

    asyncio.run(asyncio.wait_for(body(), WAIT_S))


def test_one_grows_to_three_and_shrinks_to_one_again() -> None:
    async def body() -> None:
        network = GroupNetwork()
        members = await grown(network, 3)
        first = members[0]
        for number in range(50):
            await first.group.propose(b"%d" % number)
        for member in members:
            await member.machine.until(lambda member=member: len(member.machine.data) == 50)  # type: ignore[misc]
            assert member.group.members.voters == (1, 2, 3)
        status = first.group.status
        assert [(each.node_id, each.is_voter) for each in status.members] == [(1, True), (2, True), (3, True)]
        for member in members[1:]:
            await first.group.change_members(change(ConfChangeType.REMOVE_NODE, member))
            await member.stop()
        assert first.group.members.voters == (1,)
        await first.group.propose(b"alone")
        assert first.machine.data[-1] == b"alone"
        await first.stop()

    simulated.run(body)


def test_a_new_member_of_a_long_log_gets_a_snapshot() -> None:
    async def body() -> None:
        network = GroupNetwork()
        settings = replace(FAST, snapshot_entries=lambda: 20, catch_up_entries=5)
        first = await Member(network, 1, SimDisk(), settings=settings).start()
        await first.serving()
        for number in range(200):
            await first.group.propose(b"%d" % number)
        joining = await Member(network, 2, SimDisk(), joins=True, settings=settings).start()
        await first.group.change_members(change(ConfChangeType.ADD_LEARNER_NODE, joining))
        await joining.machine.until(lambda: len(joining.machine.data) == 200)
        assert network.snapshots >= 1
        assert joining.machine.restored == 1
        assert joining.machine.data == first.machine.data
        await first.group.propose(b"more")
        await joining.machine.until(lambda: joining.machine.data[-1] == b"more")
        await joining.stop()
        again = await Member(network, 2, joining.disk, joins=True, settings=settings).start()
        assert again.machine.data[:200] == first.machine.data[:200]
        await again.machine.until(lambda: again.machine.data == first.machine.data)
        await stop(first, again)

    simulated.run(body)


def test_another_one_leads_when_the_leader_is_cut_off_and_what_was_answered_stays() -> None:
    async def body() -> None:
        network = GroupNetwork()
        members = await grown(network, 3)
        old = members[0]
        for number in range(10):
            await old.group.propose(b"%d" % number)
        network.isolate(old.node_id)
        lost = asyncio.create_task(old.group.propose(b"into the void"))
        with pytest.raises(NotControllerError):
            await old.group.confirm_leadership()
        new = await leader_of(members[1:])
        assert new.machine.data == [b"%d" % number for number in range(10)]
        await new.group.propose(b"new leader")
        with pytest.raises(ProposalRejectedError):
            await old.group.propose(b"not mine to say")
        network.cuts.clear()
        with pytest.raises(NotControllerError, match="another controller"):
            await lost
        await old.machine.until(lambda: old.machine.data == new.machine.data)
        assert new.machine.data[-1] == b"new leader"
        assert await new.group.confirm_leadership() <= new.group.status.applied
        await stop(*members)

    simulated.run(body)


def test_a_member_that_never_answered_is_not_active() -> None:
    async def body() -> None:
        network = GroupNetwork()
        first = await Member(network, 1, SimDisk()).start()
        await first.serving()
        dead = Member(network, 2, SimDisk(), joins=True)
        await first.group.change_members(change(ConfChangeType.ADD_LEARNER_NODE, dead))
        _, status = first.group.status.members
        assert (status.node_id, status.is_voter, status.recently_active, status.match_index) == (2, False, False, 0)
        await dead.start()
        await dead.machine.until(lambda: first.group.status.members[1].recently_active)
        await stop(first, dead)

    simulated.run(body)


def test_a_group_at_rest_wakes_for_heartbeats_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    events: Counter[tuple[NodeId, type[Event]]] = Counter()
    step = Node.step

    def counted(of: Node, event: Event, now_ms: int) -> tuple[Effect, ...]:
        events[of.status.node_id, type(event)] += 1
        return step(of, event, now_ms)

    async def body() -> None:
        members = await grown(GroupNetwork(), 3)
        await asyncio.sleep(1)
        events.clear()
        await asyncio.sleep(10)
        beats = 10 * 1_000 // (FAST.timing.tick_ms * FAST.timing.heartbeat_ticks)
        assert set(events) == {(NodeId(1), TimePassed), *((NodeId(number), Received) for number in (1, 2, 3))}
        assert abs(events[NodeId(1), TimePassed] - beats) <= beats // 10
        await stop(*members)

    monkeypatch.setattr(Node, "step", counted)
    simulated.run(body)


def test_leadership_is_handed_over() -> None:
    async def body() -> None:
        members = await grown(GroupNetwork(), 3)
        members[0].group.transfer_leadership(NodeId(3))
        await members[2].serving()
        assert (await members[2].group.propose(b"x")) > 0
        assert members[2].group.leadership.leader == 3
        await stop(*members)

    simulated.run(body)


def test_who_waits_when_the_group_stops_is_told_that_nothing_is_known() -> None:
    async def body() -> None:
        members = await grown(GroupNetwork(), 3)
        first = members[0]
        await stop(*members[1:])
        waiting = asyncio.create_task(first.group.propose(b"x"))
        await asyncio.sleep(0)
        await first.stop()
        with pytest.raises(OutcomeUnknownError):
            await waiting
        with pytest.raises(OutcomeUnknownError):
            await first.group.propose(b"y")

    simulated.run(body)


def test_a_member_is_looked_at_while_it_lives_and_after_its_end() -> None:
    async def body() -> None:
        settings = replace(FAST, snapshot_entries=lambda: 20, catch_up_entries=5)
        disk = SimDisk()
        member = await Member(GroupNetwork(), 1, disk, settings=settings).start()
        await member.serving()
        for number in range(50):
            await member.group.propose(b"%d" % number)
            view = MemberView(disk, DIRECTORY)
            in_snapshot: list[bytes] = msgspec.msgpack.decode(view.snapshot.data) if view.snapshot.data else []
            behind = [entry.data for entry in view.committed() if entry.data]
            assert in_snapshot + behind == member.machine.data
        assert view.snapshot.index > 20
        await member.stop()
        assert [entry.data for entry in MemberView(disk, DIRECTORY).committed()] == behind

    simulated.run(body)
