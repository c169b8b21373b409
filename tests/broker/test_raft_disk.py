"""A member of the group whose disk fills up, fails, or holds too much: in simulated time."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support import simulated
from tests.support.raft_groups import FAST, GroupNetwork, Member

from logboom.base.errors import OutcomeUnknownError, StorageError
from logboom.raft import ConfChangeSingle, ConfChangeType, ConfChangeV2
from logboom.sim.disk import Always, SimDisk


def disk_of(name: str) -> SimDisk:
    _, open_disk = simulated.machine()
    disk = open_disk(name)
    assert isinstance(disk, SimDisk)
    return disk


def member_on(disk: SimDisk, network: GroupNetwork, node_id: int, *, joins: bool = False) -> Member:
    runtime, _ = simulated.machine()
    return Member(network, node_id, disk, joins=joins, runtime=runtime, inline=disk.start_async_syncs())


def used(disk: SimDisk) -> int:
    return sum(len(node.data) for node in disk.nodes.values())


def test_a_full_disk_is_waited_out_and_what_waits_is_committed_in_order() -> None:
    async def body() -> None:
        disk = disk_of("a")
        member = await member_on(disk, GroupNetwork(), 1).start()
        await member.serving()
        disk.capacity_bytes = used(disk)
        data = [b"%d" % number + b"x" * 20_000 for number in range(100)]
        proposals = [asyncio.ensure_future(member.group.propose(each)) for each in data]
        await asyncio.sleep(5)
        assert 0 < len(member.machine.data) < 100, "what was reserved is used, the rest waits"
        assert member.group.leadership.serving
        assert not member.failures
        reserved = len(member.machine.data)
        disk.capacity_bytes = 1 << 40
        indexes = await asyncio.gather(*proposals)
        assert indexes == sorted(indexes)
        assert member.machine.data == data
        await member.stop()
        again = await member_on(disk.restarted(), GroupNetwork(), 1).start()
        assert again.machine.data == data
        assert reserved > 0
        await again.stop()

    simulated.run(body)


def test_a_member_alone_leads_and_commits_after_a_start_on_a_full_disk() -> None:
    async def body() -> None:
        disk = disk_of("a")
        member = await member_on(disk, GroupNetwork(), 1).start()
        await member.serving()
        await member.group.propose(b"before")
        await member.stop()
        disk.capacity_bytes = used(disk)
        again = await member_on(disk, GroupNetwork(), 1).start()
        await again.serving()
        await again.group.propose(b"after")
        assert again.machine.data == [b"before", b"after"]
        await again.stop()

    simulated.run(body)


def test_a_snapshot_without_room_is_left_out_and_commits_go_on() -> None:
    async def body() -> None:
        disk = disk_of("a")
        runtime, _ = simulated.machine()
        settings = replace(FAST, snapshot_entries=lambda: 20)
        member = await Member(GroupNetwork(), 1, disk, settings=settings, runtime=runtime).start()
        await member.serving()
        for _ in range(19):
            await member.group.propose(b"x" * 1_000)
        disk.capacity_bytes = used(disk)
        for _ in range(20):
            await member.group.propose(b"y")
        disk.capacity_bytes = 1 << 40
        await asyncio.sleep(11)
        await member.group.propose(b"z")
        await member.stop()
        again = await Member(GroupNetwork(), 1, disk, settings=settings, runtime=runtime).start()
        assert again.machine.restored == 1
        assert len(again.machine.data) == 40
        await again.stop()

    simulated.run(body)


@pytest.mark.parametrize("operation", ["sync", "write"])
def test_a_disk_that_fails_ends_the_group_on_this_node_and_another_one_leads(operation: str) -> None:
    async def body() -> None:
        network = GroupNetwork()
        disks = [disk_of(name) for name in "abc"]
        first = await member_on(disks[0], network, 1).start()
        await first.serving()
        others = [
            await member_on(disk, network, number, joins=True).start() for number, disk in enumerate(disks[1:], 2)
        ]
        for other in others:
            single = ConfChangeSingle(ConfChangeType.ADD_NODE, other.node_id)
            await first.group.change_members(ConfChangeV2((single,)))

        def fail(happens: str, path: str) -> None:
            if happens in (operation, "begin_sync", "write_nowait"):
                raise OSError(5, "EIO", path)

        disks[0].fault = fail
        with pytest.raises(OutcomeUnknownError):
            await first.group.propose(b"perhaps")
        (failure,) = first.failures
        assert isinstance(failure, StorageError)
        assert not first.group.leadership.serving
        with pytest.raises(StorageError):
            await first.group.propose(b"no more")
        with pytest.raises(StorageError):
            await first.group.confirm_leadership()
        while not any(other.machine.leadership.serving for other in others):
            await asyncio.sleep(0.01)
        (new,) = (other for other in others if other.machine.leadership.serving)
        await new.group.propose(b"goes on")
        assert new.machine.data[-1] == b"goes on"
        for member in (first, *others):
            await member.stop()

    simulated.run(body)


@pytest.mark.parametrize("trouble", ["full", "hangs"])
def test_a_leader_whose_disk_takes_nothing_has_another_one_lead(trouble: str) -> None:
    async def body() -> None:
        network = GroupNetwork()
        disks = [disk_of(name) for name in "abc"]
        first = await member_on(disks[0], network, 1).start()
        await first.serving()
        others = [await member_on(disks[n], network, n + 1, joins=True).start() for n in (1, 2)]
        for other in others:
            single = ConfChangeSingle(ConfChangeType.ADD_NODE, other.node_id)
            await first.group.change_members(ConfChangeV2((single,)))
        hung: list[Callable[[OSError | None], None]] = []
        if trouble == "full":
            disks[0].capacity_bytes = used(disks[0])
        else:
            disks[0].started_syncs = lambda path, ended: hung.append(ended)
        # What is to hang is small: it is written on the loop and synced beside it.
        data = [b"%d" % number + b"x" * (20_000 if trouble == "full" else 10) for number in range(20)]
        waiting = [asyncio.ensure_future(first.group.propose(each)) for each in data]
        while not any(other.machine.leadership.serving for other in others):
            await asyncio.sleep(0.1)
        (new,) = (other for other in others if other.machine.leadership.serving)
        assert new.machine.data == data, "others have committed it"
        await new.group.propose(b"goes on")
        assert first.machine.data != new.machine.data
        disks[0].capacity_bytes = 1 << 40
        for ended in hung:
            ended(None)
        disks[0].started_syncs = None
        await asyncio.gather(*waiting)
        await first.machine.until(lambda: first.machine.data == new.machine.data)
        assert not first.failures
        for member in (first, *others):
            await member.stop()

    simulated.run(body)


def test_a_state_that_is_too_large_for_a_snapshot_is_told_of_and_nothing_is_lost() -> None:
    async def body() -> None:
        runtime, _ = simulated.machine()
        settings = replace(FAST, snapshot_entries=lambda: 10, snapshot_bytes_max=1_000)
        member = await Member(GroupNetwork(), 1, disk_of("a"), settings=settings, runtime=runtime).start()
        await member.serving()
        for number in range(50):
            await member.group.propose(b"%d" % number * 100)
        (line,) = (line for line in member.lines if line["event"].startswith("the metadata is too large"))
        assert line["limit_bytes"] == 1_000
        await member.stop()
        again = await Member(GroupNetwork(), 1, member.disk, settings=settings, runtime=runtime).start()
        assert again.machine.data == member.machine.data
        await again.stop()

    simulated.run(body)


def test_an_error_of_the_state_machine_ends_the_group() -> None:
    async def body() -> None:
        member = await member_on(disk_of("a"), GroupNetwork(), 1).start()
        await member.serving()

        async def fail(index: int, data: bytes) -> None:
            raise StorageError("no")

        member.machine.apply = fail  # type: ignore[method-assign]
        with pytest.raises(OutcomeUnknownError):
            await member.group.propose(b"x")
        assert "applying a committed change of the metadata failed" in str(member.failures[0])
        await member.stop()

    simulated.run(body)


def test_an_idle_member_alone_arms_no_timer() -> None:
    async def body() -> None:
        member = await member_on(disk_of("a"), GroupNetwork(), 1).start()
        await member.serving()
        await asyncio.sleep(1)
        assert member.group._driver._timer is None
        await member.group.propose(b"x")
        assert member.group._driver._timer is None
        await member.stop()

    simulated.run(body)


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_a_voter_that_is_left_alone_leads_after_a_crash_without_the_one_that_went(power: bool) -> None:
    """It would count by the configuration before, which needs both, if it did not know that the change is committed."""

    async def body() -> None:
        disk, network = disk_of("a"), GroupNetwork()
        first = await member_on(disk, network, 1).start()
        await first.serving()
        other = await member_on(disk_of("b"), network, 2, joins=True).start()
        for kind in (ConfChangeType.ADD_NODE, ConfChangeType.REMOVE_NODE):
            await first.group.change_members(ConfChangeV2((ConfChangeSingle(kind, other.node_id),)))
        await asyncio.sleep(0.5)
        left = disk.power_cut(Always(survives=False)) if power else disk.after_kill()
        await other.stop()
        await first.stop()
        again = await member_on(left, GroupNetwork(), 1).start()
        await again.serving()
        await again.group.propose(b"goes on")
        await again.stop()

    simulated.run(body)
