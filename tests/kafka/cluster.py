"""A broker that is told of a cluster: records of the metadata that no one proposed, applied as committed ones are."""

from collections.abc import Sequence

import msgspec
from tests.kafka.door import Running

from logboom.base.ids import NO_BROKER, BrokerEpoch, BrokerId, DirectoryId, Epoch, StreamId, StreamName
from logboom.metadata import MetadataRecord, Stream, StreamCreated, delta_of, encode_all
from logboom.metadata.records import BrokerChanged, BrokerRegistered, Placed
from logboom.raft import Index

RACKS = {1: "a", 2: "b", 3: "c"}
NOBODY = int(NO_BROKER)


async def commit(node: Running, *records: MetadataRecord) -> None:
    """Apply records that were committed elsewhere."""
    state = node.broker.cluster.state
    await state.apply(Index(state.applied_index + 1), encode_all(records))


def registered(id_: int, *, epoch: int | None = None, kafka: bool = True) -> BrokerRegistered:
    listeners = {"peer": ("10.0.0.9", 7000 + id_), **({"kafka": (f"host-{id_}", 9000 + id_)} if kafka else {})}
    return BrokerRegistered(
        id=BrokerId(id_),
        epoch=BrokerEpoch(100 + id_ if epoch is None else epoch),
        directory_id=DirectoryId(f"directory-{id_}"),
        incarnation=f"incarnation-{id_}",
        listeners=listeners,
        rack=RACKS.get(id_),
    )


def fenced(id_: int, fenced: bool = True) -> BrokerChanged:
    return BrokerChanged(id=BrokerId(id_), fenced=fenced)


async def three_brokers(node: Running) -> None:
    """This broker and two others, all at work."""
    own = node.broker.catalog.image.brokers[BrokerId(1)]
    known = {"epoch": own.epoch, "directory_id": own.directory_id, "incarnation": own.incarnation}
    await commit(node, msgspec.structs.replace(registered(1), **known), fenced(1, False))
    for id_ in (2, 3):
        await commit(node, registered(id_), fenced(id_, False))


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


async def elsewhere(node: Running, name: str, *partitions: Placed) -> Stream:
    """A stream of whose partitions this broker holds none."""
    created = _created(node, name, partitions)
    await commit(node, created)
    return node.broker.catalog.image.by_id[created.id]


async def here(node: Running, name: str, *partitions: Placed) -> Stream:
    """A stream of whose partitions this broker has replicas."""
    created = _created(node, name, partitions)
    await node.broker.prepare(delta_of(node.broker.catalog.image, (created,)))
    await commit(node, created)
    return node.broker.catalog.image.by_id[created.id]


def _created(node: Running, name: str, partitions: tuple[Placed, ...]) -> StreamCreated:
    return StreamCreated(
        name=StreamName(name),
        id=StreamId(node.broker.runtime.ids.uuid()),
        partitions=len(partitions),
        config={},
        placed=partitions,
    )
