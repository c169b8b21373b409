"""Shards follow the leadership of their partitions: won, lost, won again, with and without a lease."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.groups.cluster import BROKERS, CLICKS, Cluster, Node
from tests.groups.harness import kind
from tests.groups.test_service import G, commit, join, until
from tests.support import simulated

from logboom.base.ids import StreamName
from logboom.groups import DeleteGroup, Heartbeat, JoinReply, Sync
from logboom.groups.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    UnknownMemberError,
)
from logboom.metadata import Image, ImageDelta

A, B, C = BROKERS


async def keep_copying(cluster: Cluster) -> None:
    """Replication in good health."""
    while True:
        cluster.settle()
        await asyncio.sleep(0.01)


class Healthy:
    """A cluster that replicates while it is open."""

    def __init__(self, **settings: Any) -> None:
        self.cluster = Cluster(**settings)
        self.copying: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Cluster:
        self.cluster.settle()
        self.resume()
        await self.cluster.nodes[A].groups.loaded()
        return self.cluster

    def resume(self) -> None:
        self.copying = asyncio.create_task(keep_copying(self.cluster))

    async def pause(self) -> None:
        assert self.copying is not None
        self.copying.cancel()
        await asyncio.wait([self.copying])

    async def __aexit__(self, *_: object) -> None:
        await self.pause()
        await self.cluster.stop()


def offset_of(node: Node, group_id: str = G) -> int:
    return node.groups.committed(group_id)["clicks", 0].offset


async def formed(node: Node, **how: Any) -> JoinReply:
    member = await node.groups.join(join(**how))
    assert member.error is None
    mine = ((member.member_id, b"all"),)
    body = Sync(group_id=G, generation=member.generation, member_id=member.member_id, assignments=mine)
    assert (await node.groups.sync(body)).assignment == b"all"
    return member


async def heartbeat(node: Node, member: JoinReply) -> type[Exception] | None:
    body = Heartbeat(group_id=G, generation=member.generation, member_id=member.member_id)
    return kind((await node.groups.heartbeat(body)).error)


def test_members_and_offsets_go_with_the_leadership() -> None:
    async def body() -> None:
        async with Healthy() as cluster:
            before, after, _ = cluster.nodes
            member = await formed(before)
            mine = commit(5, member_id=member.member_id, generation=member.generation)
            assert (await before.groups.commit(mine)).results == (None,)
            assert await heartbeat(after, member) is NotCoordinatorError
            assert after.groups.overview() == []
            cluster.elect(B)
            cluster.settle()
            assert await heartbeat(before, member) is NotCoordinatorError
            assert before.groups.overview() == []
            assert await heartbeat(after, member) is None, "accepted while the groups are loaded, as in Kafka"
            assert kind((await after.groups.join(join())).error) is CoordinatorLoadInProgressError
            await after.groups.loaded()
            assert await heartbeat(after, member) is None
            assert offset_of(after) == 5
            group = after.groups.describe(G)
            assert group is not None
            assert (group.state, group.members[0].assignment) == ("Stable", b"all")
            assert [one.group_id for one in after.groups.overview()] == [G]

    simulated.run(body)


def test_who_waits_at_a_coordinator_that_lost_its_partition_is_told_to_look_elsewhere() -> None:
    async def body() -> None:
        healthy = Healthy()
        async with healthy as cluster:
            node = cluster.nodes[A]
            await formed(node)
            await node.groups.commit(commit(1, group_id="gone"))
            await healthy.pause()
            joining = asyncio.create_task(node.groups.join(join()))
            committing = asyncio.create_task(node.groups.commit(commit(1, group_id="simple")))
            deleting = asyncio.create_task(node.groups.delete_group(DeleteGroup(group_id="gone")))
            await asyncio.sleep(0.01)
            cluster.elect(B, drop=[A])
            cluster.hear(A)
            assert kind((await joining).error) is NotCoordinatorError
            assert [kind(error) for error in (await committing).results] == [NotCoordinatorError]
            assert kind((await deleting).error) is NotCoordinatorError
            healthy.resume()

    simulated.run(body)


def test_a_new_coordinator_serves_only_what_is_committed() -> None:
    """Rule 12 and KIP-207: what it has above the high-water mark is committed soon, or may yet vanish."""

    async def body() -> None:
        healthy = Healthy()
        async with healthy as cluster:
            before, after, third = cluster.nodes
            assert (await before.groups.commit(commit(1))).results == (None,)
            await healthy.pause()
            late = asyncio.create_task(before.groups.commit(commit(2)))
            await asyncio.sleep(0.01)
            cluster.replicate(B, 10)
            cluster.elect(B, drop=[A])
            cluster.hear(B)
            await asyncio.sleep(5)
            assert kind((await after.groups.commit(commit(3))).results[0]) is CoordinatorLoadInProgressError
            cluster.hear(C)
            cluster.replicate(C, 10)
            await after.groups.loaded()
            assert offset_of(after) == 2, "replicated and now committed, though nobody was told so"
            assert third.replica.batches == after.replica.batches
            cluster.hear(A)
            assert kind((await late).results[0]) is CoordinatorNotAvailableError
            healthy.resume()

    simulated.run(body)


def test_a_leadership_that_ends_while_it_loads_is_no_failure() -> None:
    async def body() -> None:
        healthy = Healthy()
        async with healthy as cluster:
            assert (await cluster.nodes[A].groups.commit(commit(1))).results == (None,)
            await healthy.pause()
            for leader in (B, A, B):
                cluster.elect(leader)
                for broker in BROKERS:
                    while not cluster.knows_all(broker):
                        cluster.hear(broker)
                await asyncio.sleep(0)
            healthy.resume()
            await cluster.nodes[B].groups.loaded()
            assert offset_of(cluster.nodes[B]) == 1
            assert kind((await cluster.nodes[A].groups.join(join())).error) is NotCoordinatorError
            for node in cluster.nodes:
                assert [call for call in node.log.calls if call.method_name != "debug"] == []

    simulated.run(body)


def test_a_later_leadership_of_the_same_broker_loads_anew() -> None:
    async def body() -> None:
        healthy = Healthy()
        async with healthy as cluster:
            node = cluster.nodes[A]
            await healthy.pause()
            late = asyncio.create_task(node.groups.commit(commit(7)))
            await asyncio.sleep(0.01)
            cluster.elect(A)
            cluster.hear(A)
            assert kind((await late).results[0]) is NotCoordinatorError
            healthy.resume()
            await node.groups.loaded()
            assert offset_of(node) == 7, "it was in the log, and stayed there"

    simulated.run(body)


def test_without_a_lease_nothing_is_answered_and_no_session_ends() -> None:
    async def body() -> None:
        healthy = Healthy()
        async with healthy as cluster:
            node = cluster.nodes[A]
            member = await formed(node, session_ms=1_000)
            await node.groups.commit(commit(5, member_id=member.member_id, generation=1))
            await healthy.pause()
            waits = asyncio.create_task(node.groups.join(join()))
            await asyncio.sleep(0.01)
            for _ in range(3):
                node.holds_lease = False  # nobody tells: the clock alone says so
                for _ in range(150):
                    assert await heartbeat(node, member) is CoordinatorNotAvailableError
                    await asyncio.sleep(0.01)
                node.holds_lease = True
                await asyncio.sleep(0.5)
                assert await heartbeat(node, member) is not UnknownMemberError
            assert not waits.done()
            again = await node.groups.join(join(member.member_id, session_ms=1_000))
            assert again.generation == 2
            assert (await waits).generation == 2
            assert offset_of(node) == 5
            healthy.resume()

    simulated.run(body)


def test_who_waits_at_a_broker_without_a_lease_is_told_to_look_elsewhere_in_the_end() -> None:
    async def body() -> None:
        healthy = Healthy()
        async with healthy as cluster:
            node = cluster.nodes[A]
            await formed(node)
            await healthy.pause()
            waits = asyncio.create_task(node.groups.join(join()))
            await asyncio.sleep(0.01)
            node.set_lease(held=False)
            assert kind((await node.groups.join(join())).error) is CoordinatorNotAvailableError
            assert kind((await waits).error) is NotCoordinatorError
            node.set_lease(held=True)
            healthy.resume()
            await node.groups.loaded()
            group = node.groups.describe(G)
            assert group is not None
            assert group.state == "Stable"

    simulated.run(body)


def test_a_commit_that_its_replicas_do_not_get_is_answered_in_time() -> None:
    async def body() -> None:
        healthy = Healthy(offsets_commit_timeout_ms=2_000)
        async with healthy as cluster:
            node = cluster.nodes[A]
            await healthy.pause()
            began_s = asyncio.get_running_loop().time()
            reply = await node.groups.commit(commit(5))
            assert [kind(error) for error in reply.results] == [CoordinatorNotAvailableError]
            assert asyncio.get_running_loop().time() - began_s < 3
            assert node.groups.committed(G) == {}, "it is not committed"
            healthy.resume()
            await until(lambda: bool(node.groups.committed(G)))
            assert offset_of(node) == 5

    simulated.run(body)


def test_a_resigned_coordinator_writes_nothing() -> None:
    """What its last writes come to could make it write more, behind what the next one has read."""

    async def body() -> None:
        healthy = Healthy()
        async with healthy as cluster:
            node = cluster.nodes[A]
            first = await formed(node, instance_id="one")
            await healthy.pause()
            pending = [asyncio.create_task(node.groups.join(join(instance_id="one"))) for _ in range(3)]
            await asyncio.sleep(0.01)
            written = len(node.replica.batches)
            assert written == 2, "the id of the one that returned first"
            node.groups.resign()
            cluster.commit()
            cluster.settle()
            for reply in await asyncio.gather(*pending):
                assert kind(reply.error) is NotCoordinatorError or reply.member_id != first.member_id
            assert len(node.replica.batches) == written
            healthy.resume()

    simulated.run(body)


def test_offsets_expire_at_the_next_coordinator_too() -> None:
    async def body() -> None:
        settings = {"offsets_retention_ms": 60_000, "offsets_retention_check_ms": 10_000}
        async with Healthy(**settings) as cluster:
            before, after, _ = cluster.nodes
            await before.groups.commit(commit(5))
            await asyncio.sleep(40)
            cluster.elect(B)
            cluster.settle()
            await after.groups.loaded()
            await asyncio.sleep(10)
            assert offset_of(after) == 5
            await asyncio.sleep(25)
            assert after.groups.committed(G) == {}
            cluster.elect(C)
            cluster.settle()
            await cluster.nodes[C].groups.loaded()
            assert cluster.nodes[C].groups.committed(G) == {}

    simulated.run(body)


def test_a_coordinator_whose_log_is_damaged_leaves_the_groups_to_another() -> None:
    """Alone it would go on with earlier offsets; here another broker has the right ones."""

    async def body() -> None:
        async with Healthy() as cluster:
            first, damaged, third = cluster.nodes
            for offset in range(5):
                await first.groups.commit(commit(offset))
            damaged.replica.damaged.add(4)
            cluster.elect(B)
            cluster.settle()
            await damaged.groups.loaded()
            assert damaged.damage_found
            assert kind((await damaged.groups.commit(commit(9))).results[0]) is CoordinatorNotAvailableError
            cluster.elect(C, drop=[A, B])
            cluster.settle()
            await third.groups.loaded()
            assert offset_of(third) == 4

    simulated.run(body)


def test_a_log_that_is_being_cut_back_is_no_damaged_one() -> None:
    async def body() -> None:
        async with Healthy() as cluster:
            for offset in range(5):
                await cluster.nodes[A].groups.commit(commit(offset))
            node = cluster.nodes[B]
            node.replica.cut_reads = 3
            cluster.elect(B)
            cluster.settle()
            await node.groups.loaded()
            assert not node.damage_found
            assert offset_of(node) == 4

    simulated.run(body)


def test_a_damaged_log_of_which_there_is_no_copy_is_read_as_far_as_it_goes() -> None:
    async def body() -> None:
        async with Healthy() as cluster:
            node = cluster.nodes[A]
            for offset in range(5):
                await node.groups.commit(commit(offset))
            node.replica.damaged.add(4)
            node.replica.config = node.replica.log = SimpleNamespace(size_bytes=0, segment_bytes=1)
            for broker in (B, C):
                cluster.isr.discard(broker)
            cluster.elect(A)
            cluster.hear(A)
            await node.groups.loaded()
            assert offset_of(node) == 3

    simulated.run(body)


def test_a_broker_coordinates_nothing_that_its_partition_does_not_lead() -> None:
    """The image may speak of an earlier process of this broker, or of a copy that is lost."""

    async def body() -> None:
        async with Healthy() as cluster:
            node = cluster.nodes[B]
            node.replica.take_role = lambda **_: None  # type: ignore[method-assign]
            cluster.elect(B)
            cluster.settle()
            await node.groups.loaded()
            assert kind((await node.groups.join(join())).error) is NotCoordinatorError

    simulated.run(body)


def test_a_stream_that_is_made_anew_while_groups_load_has_no_offsets_of_the_one_before() -> None:
    async def body() -> None:
        async with Healthy() as cluster:
            before, after, _ = cluster.nodes
            assert (await before.groups.commit(commit(5))).results == (None,)
            cluster.elect(B)
            cluster.settle()
            deleted = delta_of_deletion(after.image, CLICKS)
            after.groups.follow(deleted)
            await after.groups.loaded()
            await until(lambda: after.groups.committed(G) == {})

    simulated.run(body)


def delta_of_deletion(image: Image, name: StreamName) -> ImageDelta:
    """A stream is deleted, and there is another one of that name at once."""
    gone = (image.by_name[name],)
    return ImageDelta(image, image, (), (), gone, (), quotas_changed=False, broker_configs_changed=False)
