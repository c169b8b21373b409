"""A broker that is told of a cluster: records of the metadata that no other broker has asked for."""

from collections.abc import Sequence
from functools import partial

from tests.kafka.door import Running

from logboom.base.ids import NO_BROKER, BrokerId, DirectoryId, Epoch, StreamId, StreamName
from logboom.metadata import MetadataRecord, Stream, StreamCreated
from logboom.metadata.records import BrokerChanged, BrokerRegistered, Placed

RACKS = {2: "b", 3: "c"}
NOBODY = int(NO_BROKER)


async def commit(node: Running, *records: MetadataRecord) -> None:
    """Commit records that no command would make here."""
    cluster = node.broker.cluster
    await cluster.controller.in_order(partial(cluster.state.commit, records))


def registered(node: Running, id_: int, *, kafka: bool = True) -> BrokerRegistered:
    listeners = {"peer": ("10.0.0.9", 7000 + id_), **({"kafka": (f"host-{id_}", 9000 + id_)} if kafka else {})}
    return BrokerRegistered(
        id=BrokerId(id_),
        epoch=node.broker.catalog.image.next_broker_epoch,
        directory_id=DirectoryId(f"directory-{id_}"),
        incarnation=f"incarnation-{id_}",
        listeners=listeners,
        rack=RACKS.get(id_),
    )


def fenced(id_: int, fenced: bool = True) -> BrokerChanged:
    return BrokerChanged(id=BrokerId(id_), fenced=fenced)


async def three_brokers(node: Running) -> None:
    """Two others beside this broker, all at work."""
    for id_ in (2, 3):
        await commit(node, registered(node, id_), fenced(id_, False))


def placed(
    replicas: Sequence[int],
    *,
    isr: Sequence[int] | None = None,
    leader: int | None = None,
    epoch: int = 0,
    elr: Sequence[int] = (),
    last_known: Sequence[int] = (),
) -> Placed:
    return Placed(
        replicas=tuple(map(BrokerId, replicas)),
        isr=tuple(map(BrokerId, sorted(replicas if isr is None else isr))),
        leader=BrokerId(replicas[0] if leader is None else leader),
        leader_epoch=Epoch(epoch),
        elr=tuple(map(BrokerId, elr)),
        last_known=tuple(map(BrokerId, last_known)),
    )


async def stream_of(node: Running, name: str, *partitions: Placed) -> Stream:
    """A stream with these partitions, each where it is said to be."""
    created = StreamCreated(
        name=StreamName(name),
        id=StreamId(node.broker.runtime.ids.uuid()),
        partitions=len(partitions),
        config={},
        placed=partitions,
    )
    await commit(node, created)
    return node.broker.catalog.image.by_id[created.id]
