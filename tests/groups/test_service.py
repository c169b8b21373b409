"""Groups on a real broker: what disks, restarts and the end of the process do to those who wait."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.broker.node import FaultyDisk, append, run, running, start, values_of
from tests.groups.harness import kind, subscription
from tests.support import simulated
from tests.support.clock import ManualClock

from logboom.base.ids import Offset
from logboom.broker.broker import Broker
from logboom.broker.groups.offsets_stream import OFFSETS_STREAM
from logboom.broker.groups.shard import GroupShard
from logboom.broker.partition.leader import Leading
from logboom.broker.partition.replica import Partition
from logboom.broker.settled_clock import SettledClock
from logboom.groups import (
    Commit,
    CommitReply,
    DeleteGroup,
    DeleteOffsets,
    GroupLimits,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    Leaver,
    OffsetToCommit,
    Protocol,
    Sync,
    partition_of_group,
)
from logboom.groups.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    UnknownMemberError,
)
from logboom.groups.records import OffsetKey, encode_offset_key
from logboom.metadata import delta_of
from logboom.records import Record, build_batch

QUICK: dict[str, Any] = {"groups": {"initial_rebalance_delay_ms": 0, "session_timeout_min_ms": 1}}
G = "g"


def join(member_id: str = "", *, group_id: str = G, session_ms: int = 30_000, instance_id: str | None = None) -> Join:
    return Join(
        group_id=group_id,
        member_id=member_id,
        instance_id=instance_id,
        client_id="c",
        client_host="/h",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(Protocol("range", subscription("clicks")),),
        member_id_required=False,
        can_skip_assignment=True,
    )


def commit(offset: int, *, group_id: str = G, member_id: str = "", generation: int = -1) -> Commit:
    place = OffsetToCommit("clicks", 0, offset, -1, "")
    return Commit(group_id=group_id, member_id=member_id, generation=generation, offsets=(place,))


async def formed(broker: Broker, **how: Any) -> JoinReply:
    reply = await broker.groups.join(join(**how))
    assert reply.error is None
    synced = await broker.groups.sync(
        Sync(
            group_id=G, generation=reply.generation, member_id=reply.member_id, assignments=((reply.member_id, b"all"),)
        )
    )
    assert synced.assignment == b"all"
    return reply


async def heartbeat(broker: Broker, member: JoinReply) -> type[Exception] | None:
    body = Heartbeat(group_id=G, generation=member.generation, member_id=member.member_id)
    return kind((await broker.groups.heartbeat(body)).error)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def offset_of(broker: Broker, group_id: str = G) -> int | None:
    value = broker.groups.committed(group_id).get(("clicks", 0))
    return None if value is None else value.offset


def test_groups_and_offsets_survive_a_restart(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as broker:
            await broker.catalog.create_stream("clicks")
            await broker.groups.loaded()
            member = await formed(broker)
            reply = await broker.groups.commit(commit(5, member_id=member.member_id, generation=1))
            assert reply == CommitReply(results=(None,))
        async with running(tmp_path, **QUICK) as broker:
            await broker.groups.loaded()
            assert broker.groups.states() == {"Stable": 1}
            assert await heartbeat(broker, member) is None
            assert offset_of(broker) == 5
            group = broker.groups.describe(G)
            assert group is not None
            assert (group.state, group.members[0].assignment) == ("Stable", b"all")

    run(body)


def lead_anew(broker: Broker) -> None:
    """This broker leads what it led, under the next epoch."""
    image = broker.catalog.image
    registered, _ = image.brokers[broker.identity.broker_id].records()
    delta = delta_of(image, [msgspec.structs.replace(registered, epoch=image.next_broker_epoch)])
    for index, one in enumerate(delta.after.by_name[OFFSETS_STREAM].assignments):
        role = broker.replicas.find(OFFSETS_STREAM, index).role
        role.rest()
        role.lead(Leading(one.leader_epoch, frozenset(one.isr)))
    broker.groups.follow(delta)


def test_requests_are_refused_while_groups_load_but_heartbeats_are_accepted(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as broker:
            loading = CoordinatorLoadInProgressError
            groups = broker.groups
            await groups.loaded()
            lead_anew(broker)
            assert kind((await groups.join(join())).error) is loading
            assert kind((await groups.sync(Sync(group_id=G, generation=1, member_id="m"))).error) is loading
            assert kind((await groups.leave(Leave(group_id=G, leavers=(Leaver("m"),)))).error) is loading
            assert kind((await groups.delete_group(DeleteGroup(group_id=G))).error) is loading
            assert kind((await groups.delete_offsets(DeleteOffsets(group_id=G, partitions=()))).error) is loading
            assert [kind(error) for error in (await groups.commit(commit(1))).results] == [loading]
            body = Heartbeat(group_id=G, generation=1, member_id="m")
            assert (await groups.heartbeat(body)).error is None
            await groups.loaded()
            assert kind((await groups.heartbeat(body)).error) is UnknownMemberError

    run(body)


def test_a_broker_that_stops_while_groups_load_serves_none(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK):
            pass
        broker = await start(tmp_path, **QUICK)
        broker.groups.resign()
        await broker.groups.loaded()
        assert kind((await broker.groups.join(join())).error) is NotCoordinatorError
        await broker.stop()

    run(body)


def test_sessions_end_in_real_time(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as broker:
            await broker.groups.loaded()
            await formed(broker, session_ms=50)
            group = broker.groups.describe

            def ended() -> bool:
                found = group(G)
                return found is not None and not found.members

            await until(ended)
            found = group(G)
            assert found is not None
            assert found.state == "Empty"

    run(body)


def test_a_full_disk_refuses_commits_and_they_work_again_after_it(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk, **QUICK) as broker:
            await broker.catalog.create_stream("clicks")
            await broker.groups.loaded()
            await broker.groups.commit(commit(1))
            disk.fill(OFFSETS_STREAM)
            reply = await broker.groups.commit(commit(2))
            assert [kind(error) for error in reply.results] == [CoordinatorNotAvailableError]
            assert offset_of(broker) == 1
            joined = await broker.groups.join(join())
            sync = Sync(group_id=G, generation=joined.generation, member_id=joined.member_id)
            assert kind((await broker.groups.sync(sync)).error) is CoordinatorNotAvailableError
            disk.mend()
            again = await broker.groups.join(join(joined.member_id))
            mine = commit(3, member_id=again.member_id, generation=again.generation)
            assert (
                await broker.groups.sync(Sync(group_id=G, generation=again.generation, member_id=again.member_id))
            ).error is None
            assert (await broker.groups.commit(mine)).results == (None,)
        async with running(tmp_path, **QUICK) as broker:
            await broker.groups.loaded()
            assert offset_of(broker) == 3

    run(body)


def test_a_broken_disk_refuses_for_good_and_offsets_stay_readable(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk, **QUICK) as broker:
            await broker.catalog.create_stream("clicks")
            await broker.groups.loaded()
            await broker.groups.commit(commit(1))
            disk.break_sync()
            for offset in (2, 3):
                reply = await broker.groups.commit(commit(offset))
                assert [kind(error) for error in reply.results] == [NotCoordinatorError]
            assert offset_of(broker) == 1
            disk.mend()

    run(body)


def test_damage_in_the_offsets_stream_is_skipped_and_logged(tmp_path: Path) -> None:
    place = partition_of_group(G, 1)

    async def body() -> None:
        one = QUICK | {"groups": QUICK["groups"] | {"offsets_partitions": 1}}
        async with running(tmp_path, **one) as broker:
            await broker.catalog.create_stream("clicks")
            await broker.groups.loaded()
            for offset in range(10):
                await broker.groups.commit(commit(offset))
            await broker.groups.commit(commit(77, group_id="other"))
        (log_file,) = (tmp_path / "streams" / f"{OFFSETS_STREAM}-{place}").glob("*.log")
        data = bytearray(log_file.read_bytes())
        size = len(data) // 11
        data[size * 9 + 70] ^= 0xFF  # inside the batch of the tenth commit
        log_file.write_bytes(data)
        broker = await start(tmp_path, **one)
        await broker.groups.loaded()
        assert offset_of(broker) == 8
        assert offset_of(broker, "other") == 77
        await broker.stop()

    run(body)


def test_garbage_in_the_offsets_stream_is_skipped(tmp_path: Path) -> None:
    async def body() -> None:
        one = QUICK | {"groups": QUICK["groups"] | {"offsets_partitions": 1}}
        async with running(tmp_path, **one) as broker:
            await broker.catalog.create_stream("clicks")
            await broker.groups.loaded()
            await broker.groups.commit(commit(5))
            partition = broker.replicas.find(OFFSETS_STREAM, 0)
            await broker.catalog.change_stream_config(OFFSETS_STREAM, {"cleanup.policy": None}, internal=True)
            await append(partition, b"a value without a key, from before the stream was compacted")
            key = encode_offset_key(OffsetKey(G, "clicks", 0))
            bad = [(b"\0\1\xff", b"x"), (key + b"", b"\0\x09"), (b"\0\x63later kinds", b"x"), (b"", None)]
            for bad_key, value in bad:
                records = build_batch([Record(Offset(0), 0, bad_key, value, ())])
                done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                partition.append(records, acks=-1, done=done.set_result)
                await done
            assert len(await values_of(partition)) == 6
        async with running(tmp_path, **one) as broker:
            await broker.groups.loaded()
            assert offset_of(broker) is None, "the last record of the key is what counts, and it says nothing"
            assert (await broker.groups.commit(commit(6))).results == (None,)

    run(body)


def test_offsets_of_streams_that_are_gone_go_at_the_next_start_too(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as broker:
            await broker.groups.loaded()
            await broker.groups.commit(commit(5))
            assert offset_of(broker) == 5
        async with running(tmp_path, **QUICK) as broker:
            await broker.groups.loaded()
            await until(lambda: offset_of(broker) is None)

    run(body)


def test_deleting_a_stream_deletes_its_offsets(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as broker:
            await broker.catalog.create_stream("clicks")
            await broker.groups.loaded()
            await broker.groups.commit(commit(5))
            assert offset_of(broker) is not None
            await broker.catalog.delete_stream("clicks")
            await until(lambda: offset_of(broker) is None)

    run(body)


def test_a_stopping_broker_answers_all_waiting_requests(tmp_path: Path) -> None:
    async def body() -> None:
        broker = await start(tmp_path, **QUICK)
        await broker.groups.loaded()
        first = await formed(broker)
        late = asyncio.create_task(broker.groups.join(join()))
        await asyncio.sleep(0)
        written = asyncio.create_task(broker.groups.commit(commit(1, group_id="simple")))
        await asyncio.sleep(0)
        await broker.stop()
        assert kind((await late).error) is NotCoordinatorError
        assert (await written).results == (None,)
        assert await heartbeat(broker, first) is NotCoordinatorError

    run(body)


def test_a_join_whose_connection_closed_leaves_the_group_working(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as broker:
            await broker.groups.loaded()
            first = await formed(broker)
            gone = asyncio.create_task(broker.groups.join(join()))
            await asyncio.sleep(0)
            gone.cancel()
            again = await broker.groups.join(join(first.member_id))
            assert again.generation == 2

    run(body)


SHORT: dict[str, Any] = {
    "groups": {
        **QUICK["groups"],
        "offsets_partitions": 1,
        "offsets_segment_bytes": 16_384,
    },
    "cleaner": {"backoff_ms": 50},
}
"""One partition of offsets, which is compacted after some hundred commits."""


async def commit_often(broker: Broker, groups: int, times: int) -> None:
    """`times` commits of each group, each group's one after the other, all groups together."""

    async def one(group_id: str) -> None:
        for offset in range(times):
            assert (await broker.groups.commit(commit(offset, group_id=group_id))).results == (None,)

    await asyncio.gather(*(one(f"g{index}") for index in range(groups)))


def test_a_group_larger_than_a_segment_of_the_offsets_stream_is_kept(tmp_path: Path) -> None:
    async def body() -> None:
        assignment = bytes(100_000)
        async with running(tmp_path, **SHORT) as broker:
            await broker.groups.loaded()
            member = await broker.groups.join(join())
            sync = Sync(
                group_id=G, generation=1, member_id=member.member_id, assignments=((member.member_id, assignment),)
            )
            assert (await broker.groups.sync(sync)).error is None
            await broker.catalog.create_stream("clicks")
            await commit_often(broker, 8, 50)
            await until(lambda: broker.counters.compacted_away_records > 0)
        async with running(tmp_path, **SHORT) as broker:
            await broker.groups.loaded()
            group = broker.groups.describe(G)
            assert group is not None
            assert group.members[0].assignment == assignment

    simulated.run(body)


async def records_of(partition: Partition) -> int:
    return len(await values_of(partition, partition.log_start_offset))


def test_the_offsets_stream_is_compacted_and_no_offset_is_lost(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, **SHORT) as broker:
            await broker.catalog.create_stream("clicks")
            await broker.groups.loaded()
            member = await formed(broker)
            rejoining = asyncio.create_task(broker.groups.join(join()))  # the group is between two generations
            await asyncio.sleep(0)
            await broker.groups.commit(commit(1, group_id="gone"))
            await broker.groups.delete_group(DeleteGroup(group_id="gone"))
            await commit_often(broker, 8, 150)
            partition = broker.replicas.find(OFFSETS_STREAM, 0)
            await until(lambda: broker.counters.compacted_away_records > 800)
            assert await records_of(partition) < 400
            assert partition.log_end_offset > 1200
            rejoining.cancel()
        async with running(tmp_path, **SHORT) as broker:
            await broker.groups.loaded()
            assert [offset_of(broker, f"g{index}") for index in range(8)] == [149] * 8
            assert await heartbeat(broker, member) is None, "of the generation that was stored last"
            assert broker.groups.describe("gone") is None

    simulated.run(body)


def test_an_offsets_stream_of_an_older_program_is_compacted_from_the_next_start_on(tmp_path: Path) -> None:
    """Before, it had cleanup.policy=delete, larger segments, and a log start behind what was rewritten."""

    async def body() -> None:
        older = {"cleanup.policy": None, "segment.bytes": "67108864", "max.message.bytes": "16777216"}
        async with running(tmp_path, **SHORT) as broker:
            await broker.catalog.change_stream_config(OFFSETS_STREAM, older, internal=True)
            await broker.catalog.create_stream("clicks")
            await broker.groups.loaded()
            await commit_often(broker, 2, 60)
            await broker.replicas.find(OFFSETS_STREAM, 0).deletion.delete_before(Offset(50), why="offsets")
            await commit_often(broker, 2, 300)
            assert broker.counters.compactions == 0
        async with running(tmp_path, **SHORT) as broker:
            await broker.groups.loaded()
            assert [offset_of(broker, f"g{index}") for index in range(2)] == [299] * 2
            partition = broker.replicas.find(OFFSETS_STREAM, 0)
            assert (partition.config.compacts, partition.config.segment_bytes) == (True, 16_384)
            await commit_often(broker, 2, 1)
            await until(lambda: broker.counters.compacted_away_records > 600)
            assert await records_of(partition) < 10
        async with running(tmp_path, **SHORT) as broker:
            await broker.groups.loaded()
            assert [offset_of(broker, f"g{index}") for index in range(2)] == [0, 0]

    simulated.run(body)


def test_a_full_disk_postpones_the_compaction_of_the_offsets_stream(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk, **SHORT) as broker:
            await broker.catalog.create_stream("clicks")
            await broker.groups.loaded()
            disk.fill(".cleaned")
            await commit_often(broker, 8, 40)
            await until(lambda: broker.cleaner.state.max_dirty_ratio > 0)
            assert broker.counters.compactions == 0
            disk.mend()
            await until(lambda: broker.counters.compacted_away_records > 0)
            assert [offset_of(broker, f"g{index}") for index in range(8)] == [39] * 8

    run(body)


def test_a_damaged_offsets_stream_that_grew_long_is_mended_at_the_start(tmp_path: Path) -> None:
    """Compaction stops at damage, and no client can delete records of this stream: it would grow for ever."""

    async def body() -> None:
        async with running(tmp_path, **SHORT) as broker:
            await broker.catalog.create_stream("clicks")
            await broker.groups.loaded()
            await broker.groups.commit(commit(1, group_id="first"))
        (log_file,) = (tmp_path / "streams" / f"{OFFSETS_STREAM}-0").glob("*.log")
        data = bytearray(log_file.read_bytes())
        data[70] ^= 0xFF
        log_file.write_bytes(data)
        async with running(tmp_path, **SHORT) as broker:
            await broker.groups.loaded()
            assert offset_of(broker, "first") is None
            assert broker.replicas.find(OFFSETS_STREAM, 0).log_start_offset == 0, "it is short"
            await commit_often(broker, 5, 150)
            await until(lambda: bool(broker.cleaner.state.uncleanable))
        disk = FaultyDisk(str(tmp_path))
        disk.fill(f"{OFFSETS_STREAM}-0/0")
        async with running(tmp_path, open_disk=lambda _: disk, **SHORT) as broker:
            await broker.groups.loaded()
            assert broker.replicas.find(OFFSETS_STREAM, 0).log_start_offset == 0, "a full disk postpones it"
            assert [offset_of(broker, f"g{index}") for index in range(5)] == [149] * 5
            disk.mend()
        async with running(tmp_path, **SHORT) as broker:
            await broker.groups.loaded()
            partition = broker.replicas.find(OFFSETS_STREAM, 0)
            assert (partition.log_start_offset, partition.log_end_offset) == (751, 756)
            await commit_often(broker, 5, 150)
            await until(lambda: broker.counters.compacted_away_records > 0)
            assert not broker.cleaner.state.uncleanable
        async with running(tmp_path, **SHORT) as broker:
            await broker.groups.loaded()
            assert [offset_of(broker, f"g{index}") for index in range(5)] == [149] * 5

    run(body)


def test_after_the_loop_was_blocked_heartbeats_are_read_before_sessions_end(tmp_path: Path) -> None:
    """A process that was stopped finds all sessions over, and heartbeats that say otherwise still in its sockets."""

    async def body() -> None:
        async with running(tmp_path, **QUICK) as broker:
            clock, stalls = ManualClock(), list[int]()
            shard = GroupShard(
                lambda: broker.replicas.find(OFFSETS_STREAM, 0),
                GroupLimits(initial_rebalance_delay_ms=0, session_timeout_ms_min=1),
                clock=clock,
                settled_clock=SettledClock(clock),
                log=broker.log,
                max_decompressed_bytes=1 << 20,
                may_act=lambda: True,
                found_damage=lambda: False,
                on_stall=stalls.append,
            )
            await shard.load(frozenset)
            joining = shard.submit(join(session_ms=50))
            await asyncio.sleep(0.02)
            clock.now_s += 0.001
            member: JoinReply = await joining
            clock.now_s += 60
            await asyncio.sleep(0.2)  # the session's timer runs out here
            beat = shard.submit(Heartbeat(group_id=G, generation=1, member_id=member.member_id))
            assert (await beat).error is None
            assert len(stalls) == 1
            shard.resign()

    simulated.run(body)
