"""The controller's commands on brokers and on who holds, leads and is in sync with partitions.

Each reads the image, has `logboom.metadata` make the records, commits them, and gives the value that it is answered
with. They raise what the functions of `logboom.metadata` raise. Leases are in `liveness`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from logboom.base.errors import InvalidRequestError, InvalidUpdateVersionError, LogboomError
from logboom.base.ids import (
    BrokerEpoch,
    BrokerId,
    DirectoryId,
    Epoch,
    PartitionEpoch,
    PartitionIndex,
    StreamId,
)
from logboom.broker.control import commands
from logboom.broker.control.commands import Proposal, Refusal, Registered
from logboom.broker.control.context import ControlContext
from logboom.broker.control.incarnations import UNKNOWN
from logboom.metadata import Image, MetadataRecord, apply_all
from logboom.metadata.assignment import Eligibility, PartitionChange, PartitionUpdate, decide
from logboom.metadata.brokers import Broker
from logboom.metadata.leadership import IsrProposal, change_isr
from logboom.metadata.levels import Levels, set_level
from logboom.metadata.membership import (
    RegistrationRequest,
    changes_by_stream,
    checked_epoch,
    drain,
    partitions_changed,
    register,
    register_part,
    registered_broker,
    unregister,
)
from logboom.metadata.reassignment import cancel, reassign
from logboom.metadata.records import MetadataLevelSet, PartitionsChanged

PEER_LISTENER: Final = "peer"
"""The name of the listener for other brokers, in registrations."""


async def register_broker(
    context: ControlContext, command: commands.RegisterBroker, check_has_ended: Callable[[Broker], None]
) -> Registered:
    """A process of a broker begins. `check_has_ended` raises where the process before it still lives."""
    wanted = _registration(command)
    if wanted.observer and not context.image.brokers and wanted.id == context.identity.broker_id:
        raise InvalidRequestError(
            "the first broker of a cluster cannot be an observer: start one without --observer, then let this one join "
            "it (--join) with an empty folder"
        )
    # A cluster that begins now has no broker that could not read what this program writes.
    first = () if context.image.version else (MetadataLevelSet(level=wanted.levels.newest),)
    before = context.image.brokers.get(wanted.id)
    records = register(apply_all(context.image, first), wanted, context.minimum_of)
    if records and before is not None and command.clean_epoch != before.epoch:
        check_has_ended(before)
    while part := register_part(context.image, wanted, context.minimum_of):
        await context.commit(part)
        records = register(context.image, wanted, context.minimum_of)
    await context.commit([*first, *records])
    broker = context.image.brokers[wanted.id]
    if records:
        context.log.info(
            "broker registered",
            broker=broker.id,
            epoch=broker.epoch,
            previous_shutdown=_previous_shutdown(before, wanted),
        )
    members: dict[int, tuple[str, tuple[str, int] | None]] = {
        one.id: (one.directory_id, one.listeners.get(PEER_LISTENER)) for one in context.image.brokers.values()
    }
    return Registered(epoch=broker.epoch, cluster_id=context.identity.cluster_id, members=members)


def _previous_shutdown(before: Broker | None, wanted: RegistrationRequest) -> str:
    """How the previous process of the broker ended, for the log; `none` if this is its first one."""
    if before is None:
        return "none"
    return "clean" if wanted.clean_epoch == before.epoch else "unclean"


def _registration(command: commands.RegisterBroker) -> RegistrationRequest:
    clean = command.clean_epoch
    return RegistrationRequest(
        id=BrokerId(command.id),
        directory_id=DirectoryId(command.directory_id),
        incarnation=command.incarnation,
        listeners=command.listeners,
        rack=command.rack,
        failure_domain=command.failure_domain,
        software=command.software,
        clean_epoch=None if clean is None else BrokerEpoch(clean),
        observer=command.observer,
        levels=Levels(*command.levels),
        returning=command.returning,
        earlier=() if UNKNOWN in command.earlier else command.earlier,
    )


async def change_isrs(context: ControlContext, command: commands.ChangeIsr) -> list[Refusal | None]:
    """The outcome of each proposal; all that are accepted are one entry of the log."""
    leader, epoch = BrokerId(command.broker), BrokerEpoch(command.epoch)
    checked_epoch(context.image, leader, epoch)
    image, repeats = context.image, _names_a_partition_twice(command.proposals)
    records: list[PartitionsChanged] = []
    results: list[Refusal | None] = []
    for one in command.proposals:
        try:
            made = change_isr(image, leader, epoch, _proposal(one), context.minimum_of)
        except LogboomError as error:
            results.append(Refusal.of(error))
            continue
        records += made
        if repeats:
            image = apply_all(image, made)
        results.append(None)
    await context.commit(records if repeats else changes_by_stream(image, records))
    return results


async def lose_replicas(context: ControlContext, command: commands.ReplicasLost) -> list[Refusal | None]:
    """Take replicas without records out of ISR and ELR; others lead in their place. Returns the outcome of each: a
    replica whose partition was changed since the broker knew it is refused, so that the broker reports again whether it
    is lost.

    The partition epoch rises in any case, so that a proposal which still counts on the lost records is refused, and
    messages of the lost copy can be distinguished from those of the next one. If nobody else holds what is committed,
    the partition stays as it is: an operator has to decide.
    """
    broker = checked_epoch(context.image, BrokerId(command.broker), BrokerEpoch(command.epoch)).id
    refusals = [_changed_since(context.image, *one) for one in _with_epochs(command)]
    by_stream: dict[StreamId, list[int]] = {}
    for (stream_id, index), refusal in zip(command.lost, refusals, strict=True):
        if refusal is None:
            by_stream.setdefault(StreamId(stream_id), []).append(index)
    records: list[MetadataRecord] = []
    for stream_id, indexes in by_stream.items():
        stream = context.image.by_id.get(stream_id)
        if stream is None:
            continue
        rules = Eligibility(context.image.is_active, context.minimum_of(stream))
        changes: list[PartitionChange] = []
        for index in indexes:
            before = stream.assignments[index] if 0 <= index < len(stream.assignments) else None
            if before is None or broker not in before.replicas or set(before.relied_on) <= {broker}:
                continue
            change = decide(index, before, PartitionUpdate(wiped=frozenset({broker})), rules)
            changes.append(PartitionChange(index=index) if change is None else change)
        records += partitions_changed(stream, changes)
    await context.commit(records)
    if by_stream:
        count = sum(map(len, by_stream.values()))
        context.log.warning("replicas lost their records", broker=broker, partitions=count)
    return refusals


def _with_epochs(command: commands.ReplicasLost) -> Iterator[tuple[StreamId, int, int | None]]:
    """The partitions of lost replicas, with the partition epochs that the broker knew; None where it says none."""
    epochs: Sequence[int | None] = command.partition_epochs or [None] * len(command.lost)
    if len(epochs) != len(command.lost):
        raise InvalidRequestError(f"{len(epochs)} partition epochs for {len(command.lost)} lost replicas")
    for (stream_id, index), epoch in zip(command.lost, epochs, strict=True):
        yield StreamId(stream_id), index, epoch


def _changed_since(image: Image, stream_id: StreamId, index: int, epoch: int | None) -> Refusal | None:
    """The refusal of what was said of a partition as it was in an epoch, where that is over."""
    now = image.assignment(stream_id, PartitionIndex(index))
    if epoch is None or now is None or now.partition_epoch == epoch:
        return None
    name = f"{image.by_id[stream_id].name}-{index}"
    return Refusal.of(InvalidUpdateVersionError(f"{name} is at partition epoch {now.partition_epoch}, not {epoch}"))


async def move(context: ControlContext, command: commands.Reassign) -> None:
    """Begin or cancel a reassignment."""
    if command.replicas is None:
        await context.commit(cancel(context.image, command.name, command.index, context.minimum_of))
        return
    await context.commit(reassign(context.image, command.name, command.index, command.replicas, context.minimum_of))


async def drain_broker(context: ControlContext, command: commands.DrainBroker) -> None:
    """Begin or end the draining of a broker; `balancing` then moves its replicas."""
    await context.commit(drain(context.image, BrokerId(command.broker), draining=command.draining))


async def set_metadata_level(
    context: ControlContext, command: commands.SetMetadataLevel, told: Mapping[BrokerId, Levels]
) -> None:
    """Raise or lower the metadata level. `told`: the levels that running brokers have said that they speak."""
    records = set_level(context.image, command.level, may_lower=command.may_lower, told=told)
    if not command.validate_only and records:
        await context.commit(records)
        context.log.info("metadata level set", level=command.level)


async def unregister_broker(context: ControlContext, command: commands.UnregisterBroker) -> None:
    """Remove a broker that will not return; its replicas leave ISR and ELR, and wait for a new disk under its id.

    Raises InvalidRequestError while it is running, or where nobody else has all records of a partition.
    """
    broker = registered_broker(context.image, BrokerId(command.broker))
    alone = [
        f"{stream.name}:{index}"
        for stream in context.image
        for index, one in enumerate(stream.assignments)
        if set(one.relied_on) == {broker.id}
    ]
    if alone and not broker.active:
        more = f" and {len(alone) - 1} more" if len(alone) > 1 else ""
        which = "--all" if more else alone[0].replace(":", " ")
        raise InvalidRequestError(
            f"only broker {broker.id} has all records of {alone[0]}{more}: start it, and drain it before it is "
            "removed. If its disk is lost, delete the stream, or let other replicas lead it: logboom cluster elect "
            f"{which} --unclean"
        )
    await context.commit(unregister(context.image, broker.id, context.minimum_of))
    context.log.info("broker removed", broker=broker.id)


def _proposal(one: Proposal) -> IsrProposal:
    return IsrProposal(
        stream=StreamId(one.stream),
        index=PartitionIndex(one.index),
        leader_epoch=Epoch(one.leader_epoch),
        partition_epoch=PartitionEpoch(one.partition_epoch),
        isr={BrokerId(broker): BrokerEpoch(epoch) for broker, epoch in one.isr.items()},
    )


def _names_a_partition_twice(proposals: Sequence[Proposal]) -> bool:
    return len({(one.stream, one.index) for one in proposals}) < len(proposals)
