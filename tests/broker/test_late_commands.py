"""Commands that a connection brings to the controller when whoever sent them has sent them again, and gone on."""

from collections.abc import Sequence

import pytest
from tests.broker.node import append
from tests.broker.replicated import DIRECTOR, Cluster, on_brokers, refusal_of, stays, until

from logboom.base.errors import NotControllerError, UnknownStreamError
from logboom.base.ids import BrokerId, StreamName
from logboom.base.ports import Bytes
from logboom.broker.control import commands
from logboom.broker.control.commands import (
    CreateStream,
    CreateStreams,
    DeleteStream,
    EnsureStream,
    Heartbeat,
    ReplicasLost,
)
from logboom.broker.peers import FrameKind, PeerIdentity, SendPart
from logboom.metadata import Stream
from logboom.metadata.assignment import PartitionUpdate


async def made_and_deleted(cluster: Cluster, name: str) -> Stream:
    stream = await cluster.create(name, [1])
    await cluster[DIRECTOR].catalog.delete_stream(name)
    return stream


@on_brokers(1, minimum=1)
async def test_a_late_creation_brings_no_deleted_stream_back(cluster: Cluster) -> None:
    """It would have the id of the deleted one, so that what a broker that was away has of that counted as a copy. Found
    by `logboom sim run --nodes 3 --seed 600013 --seconds 60`."""
    stream = await made_and_deleted(cluster, "orders")
    controller = cluster[DIRECTOR].cluster.controller
    again = CreateStream(name="orders", id=stream.id, partitions=1, replication_factor=1)
    await controller.execute(again)
    await controller.execute(CreateStreams(streams=(again,)))
    await controller.execute(EnsureStream(name="orders", id=stream.id, partitions=1, config={}))
    assert "orders" not in cluster.image.by_name
    await cluster.create("orders", [1])
    assert cluster.image.by_name[StreamName("orders")].id != stream.id, "its name is free"


@on_brokers(1, minimum=1)
async def test_a_late_deletion_spares_the_stream_that_has_the_name_by_then(cluster: Cluster) -> None:
    """With all that was acknowledged to it since."""
    deleted = await made_and_deleted(cluster, "orders")
    there = await cluster.create("orders", [1])
    await append(cluster.leader("orders"), b"a")
    controller = cluster[DIRECTOR].cluster.controller
    with pytest.raises(UnknownStreamError, match="another one has its name"):
        await controller.execute(DeleteStream(name="orders", id=deleted.id))
    assert cluster.image.by_name[StreamName("orders")].id == there.id
    await controller.execute(DeleteStream(name="orders"))  # as a program of before says it
    assert not cluster.image.by_name.keys() & {"orders"}


def requests_to_the_controller(cluster: Cluster) -> list[commands.Request]:
    """Those that other brokers send from now on."""
    peers, found = cluster.network.members[BrokerId(DIRECTOR)], list[commands.Request]()
    serve = peers.handler(FrameKind.CONTROL)

    async def tapped(sender: PeerIdentity, body: memoryview, send_part: SendPart) -> Sequence[Bytes]:
        found.append(commands.decode_request(body))
        return await serve(sender, body, send_part)

    peers.serve_in_parts(FrameKind.CONTROL, tapped)
    return found


@on_brokers(2)
async def test_whoever_deletes_a_stream_says_which(cluster: Cluster) -> None:
    stream = await cluster.create("orders", [1, 2])
    requests = requests_to_the_controller(cluster)
    await cluster[1].catalog.delete_stream("orders")
    deletion = DeleteStream(name="orders", id=stream.id)
    assert [one.command for one in requests if isinstance(one.command, DeleteStream)] == [deletion]


@on_brokers(1, minimum=1)
async def test_every_command_names_the_controllership_that_it_is_meant_for(cluster: Cluster) -> None:
    requests = requests_to_the_controller(cluster)
    await until(lambda: len(requests) > 1, "heartbeats come")
    assert {one.term for one in requests} == {cluster[DIRECTOR].cluster.view.term}


@on_brokers(2)
async def test_a_command_to_an_earlier_controllership_does_nothing(cluster: Cluster) -> None:
    """A heartbeat saying that the disk hangs, which is long over, would fence the broker: the controller has heard
    nothing from it that is later."""
    await cluster.create("orders", [1, 2])
    director = cluster[DIRECTOR].cluster
    peers, term = cluster.network.members[BrokerId(1)], director.view.term
    heartbeat = Heartbeat(
        broker=1,
        epoch=cluster.image.brokers[BrokerId(1)].epoch,
        applied=director.state.applied_index,
        ready=True,
        stalled=True,
        number=1_000_000,
    )

    async def heard(term: int | None) -> bool:
        """Whether the broker is fenced for it."""
        body = commands.encode(commands.Request(command=heartbeat, term=term))
        answer = await peers.call(BrokerId(DIRECTOR), FrameKind.CONTROL, [body], timeout_s=5)
        lease: commands.Lease = commands.value_of(commands.decode_answer(answer), commands.Lease)
        return lease.fenced

    assert isinstance(await refusal_of(heard(term - 1)), NotControllerError)
    assert isinstance(await refusal_of(heard(term + 1)), NotControllerError), "this one has not heard of it yet"
    assert not cluster.image.brokers[BrokerId(1)].fenced
    assert await heard(term)
    assert cluster.image.brokers[BrokerId(1)].fenced


@on_brokers(3)
async def test_a_late_report_of_a_loss_leaves_the_replica_in_the_isr_that_has_come_back(cluster: Cluster) -> None:
    """It tells of a replica that was made anew since, in the same process."""
    await cluster.create("orders", [1, 2, 3])
    await append(cluster.leader("orders"), b"a")
    requests, before = requests_to_the_controller(cluster), cluster.assignment("orders").partition_epoch
    assert cluster[2].replica_manager.found_damage("orders", 0)
    await until(lambda: cluster.assignment("orders").partition_epoch > before, "the loss is told")
    await cluster.in_sync("orders")
    back = cluster.assignment("orders")
    report = next(one for one in requests if isinstance(one.command, ReplicasLost))
    peers = cluster.network.members[BrokerId(2)]
    await peers.call(BrokerId(DIRECTOR), FrameKind.CONTROL, [commands.encode(report)], timeout_s=5)
    assert cluster.assignment("orders") == back
    await stays(lambda: BrokerId(2) in cluster.assignment("orders").isr, 0.5)


@on_brokers(3)
async def test_a_loss_is_told_again_where_the_partition_was_changed_on_the_way(cluster: Cluster) -> None:
    """The report of that moment is refused, and the next one knows the change."""
    await cluster.create("orders", [1, 2, 3])
    peers, told = cluster.network.members[BrokerId(DIRECTOR)], list[ReplicasLost]()
    serve = peers.handler(FrameKind.CONTROL)

    async def overtaken(sender: PeerIdentity, body: memoryview, send_part: SendPart) -> Sequence[Bytes]:
        command = commands.decode_request(body).command
        if isinstance(command, ReplicasLost):
            told.append(command)
            if len(told) == 1:
                await cluster.change("orders", 0, PartitionUpdate(isr=(BrokerId(1), BrokerId(2))))
        return await serve(sender, body, send_part)

    peers.serve_in_parts(FrameKind.CONTROL, overtaken)
    assert cluster[2].replica_manager.found_damage("orders", 0)
    await until(lambda: len(told) > 1, "it is told again")
    assert told[1].partition_epochs > told[0].partition_epochs
    await cluster.in_sync("orders")
