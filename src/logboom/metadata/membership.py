"""Commands on brokers: they register, are fenced and unfenced, shut down and leave. Each says what that means for the
partitions they hold.

What each does, by KIP-841 and KIP-966:

    register        an earlier process of the broker is gone; without a clean shutdown it leaves every ISR and ELR, and
                    where it was the last one there, its log is compared with those of others before somebody leads
    unfence         it has recovered its logs: partitions without a leader may get one
    fence           its lease is over: it leaves every ISR, others lead
    begin_shutdown  as fence, while it still serves; it keeps what nobody else could lead
    unregister      it is missing for good, with its disk

Each reads the image and returns records, or raises one typed error. `minimum_of` gives `min.insync.replicas` of a
stream, which depends on defaults that the image does not know.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from logboom.base.errors import (
    DuplicateBrokerError,
    InvalidRequestError,
    StaleBrokerEpochError,
    UnknownBrokerError,
)
from logboom.base.ids import NO_BROKER, BrokerEpoch, BrokerId, DirectoryId, StreamId
from logboom.metadata.assignment import Assignment, Eligibility, PartitionChange, PartitionUpdate, decide
from logboom.metadata.brokers import Broker, version_of_registration
from logboom.metadata.image import Image, Stream
from logboom.metadata.levels import OWN_LEVELS, Levels, check_speaks
from logboom.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    MetadataRecord,
    PartitionsChanged,
)

MinimumOf: TypeAlias = Callable[[Stream], int]
LEVELS_WRITTEN_FROM: Final = 2
"""The metadata level from which on registrations say which levels a program speaks."""
CHANGES_PER_RECORD: Final = 500
"""So many changes a broker takes in a few hundredths of a second, during which nothing else is done."""


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    """What a broker says of itself when its process begins."""

    id: BrokerId
    directory_id: DirectoryId
    incarnation: str
    listeners: Mapping[str, tuple[str, int]]
    rack: str | None = None
    failure_domain: str = ""
    software: str = ""
    observer: bool = False
    """Whether it only observes."""
    levels: Levels = OWN_LEVELS
    """The metadata levels that its program speaks."""
    clean_epoch: BrokerEpoch | None = None
    """The epoch under which its last process was shut down cleanly; None if it was not, or never ran."""
    returning: bool = False
    """Whether it was registered before with this directory, as far as it knows."""
    earlier: tuple[str, ...] = ()
    """Incarnations of all processes that may have been registered with this directory; empty if it says none."""


def register(image: Image, wanted: RegistrationRequest, minimum_of: MinimumOf) -> tuple[MetadataRecord, ...]:
    """A process of a broker begins. Its epoch is `image.next_broker_epoch`, and it is fenced.

    A process with the same data directory takes over at once, since the directory's lock shows that the earlier one
    has ended. Raises DuplicateBrokerError if the id belongs to another directory, or where the directory is an older
    copy of it: another process was registered since that it knows nothing of. UnknownBrokerError if a broker
    comes back that was removed, UnsupportedLevelError if its program does not speak the cluster's metadata level,
    InvalidRequestError if a broker would become an observer or cease to be one.
    """
    check_speaks(image, wanted.id, wanted.software, wanted.levels)
    before = image.brokers.get(wanted.id)
    if before is None and (wanted.returning or image.removed.get(wanted.id) == wanted.directory_id):
        # What it has was given up when it was removed, and its vote too. It may be a request from before, which another
        # broker kept while it was paused: nobody would start that process again, and its id would be taken.
        raise UnknownBrokerError(
            f"broker {wanted.id} was removed from this cluster, and does not come back with its old disk: it joins "
            "again, with --join and an empty data directory"
        )
    if before is not None and before.incarnation == wanted.incarnation:
        return ()  # the answer to the first request was lost
    if before is not None and before.directory_id != wanted.directory_id:
        raise DuplicateBrokerError(
            f"broker {wanted.id} is registered with another data directory. Give this one an id of its own; or, if the "
            f"disk of broker {wanted.id} was replaced, remove the old one first: logboom cluster remove {wanted.id}"
        )
    if before is not None and wanted.earlier and before.incarnation not in wanted.earlier:
        raise older_copy_error(wanted.id)
    _check_kind(before, wanted)
    registered = BrokerRegistered(
        id=wanted.id,
        epoch=image.next_broker_epoch,
        directory_id=wanted.directory_id,
        incarnation=wanted.incarnation,
        listeners=dict(wanted.listeners),
        rack=wanted.rack,
        failure_domain=wanted.failure_domain,
        software=wanted.software,
        **version_of_registration(
            observer=wanted.observer, levels=wanted.levels if image.level >= LEVELS_WRITTEN_FROM else None
        ),
    )
    if before is None:
        return (registered,)
    clean = wanted.clean_epoch == before.epoch
    return (*_earlier_process_is_gone(image, before, minimum_of, clean=clean), registered)


def register_part(image: Image, wanted: RegistrationRequest, minimum_of: MinimumOf) -> tuple[MetadataRecord, ...]:
    """A first part of a `register` that is taken, as `fence_part`: an earlier process leaves what it was in."""
    before = image.brokers.get(wanted.id)
    if before is None or before.incarnation == wanted.incarnation:
        return ()
    clean = wanted.clean_epoch == before.epoch
    return _first_part(_earlier_process_is_gone(image, before, minimum_of, clean=clean))


def _check_kind(before: Broker | None, wanted: RegistrationRequest) -> None:
    """What a broker is for stays the same: its replicas would have to go, and the votes in the metadata group too."""
    if before is not None and before.observer != wanted.observer:
        is_now = "an observer" if before.observer else "a broker with replicas"
        flag = "with" if before.observer else "without"
        raise InvalidRequestError(
            f"broker {before.id} is registered as {is_now}, and stays that: start it {flag} --observer; "
            f"or take it out of the cluster (logboom cluster drain {before.id}, stop it, logboom cluster "
            f"remove {before.id}) and let it join again with an empty folder"
        )


def unfence(image: Image, broker: BrokerId, epoch: BrokerEpoch, minimum_of: MinimumOf) -> tuple[MetadataRecord, ...]:
    """A broker is ready to serve; partitions that nobody leads are led where that is possible now.

    Raises UnknownBrokerError, StaleBrokerEpochError.
    """
    before = checked_epoch(image, broker, epoch)
    if not before.fenced:
        return ()

    def active(one: BrokerId) -> bool:
        return image.is_active(one) or one == broker

    def wish(assignment: Assignment) -> PartitionUpdate | None:
        return PartitionUpdate() if assignment.leader == NO_BROKER and broker in assignment.replicas else None

    return (BrokerChanged(id=broker, fenced=False), *_updates(image, wish, active, minimum_of))


def fence(image: Image, broker: BrokerId, minimum_of: MinimumOf) -> tuple[MetadataRecord, ...]:
    """The lease of a broker is over: it leads nothing and is in no ISR any more. Raises UnknownBrokerError."""
    before = registered_broker(image, broker)
    if before.fenced:
        return ()
    return (*_without_broker(image, broker, minimum_of), BrokerChanged(id=broker, fenced=True))


def fence_part(image: Image, broker: BrokerId, minimum_of: MinimumOf) -> tuple[MetadataRecord, ...]:
    """A first part of `fence`, to be committed by itself; nothing where so little is left that `fence` may do it.

    A broker may be in ten thousand partitions, and a change of this many at once keeps each broker longer than its
    lease. The caller sees to it that the broker has no lease meanwhile.
    """
    return _first_part(_without_broker(image, broker, minimum_of))


def begin_shutdown(
    image: Image, broker: BrokerId, epoch: BrokerEpoch, minimum_of: MinimumOf
) -> tuple[MetadataRecord, ...]:
    """A broker is about to end: others lead what they can. It keeps leading what only it can lead until it is gone.

    Raises UnknownBrokerError, StaleBrokerEpochError.
    """
    before = checked_epoch(image, broker, epoch)
    if before.shutting_down:
        return ()
    return (*_without_one_of_several(image, broker, minimum_of), BrokerChanged(id=broker, shutting_down=True))


def begin_shutdown_part(
    image: Image, broker: BrokerId, epoch: BrokerEpoch, minimum_of: MinimumOf
) -> tuple[MetadataRecord, ...]:
    """A first part of `begin_shutdown`, as `fence_part`. Raises UnknownBrokerError, StaleBrokerEpochError."""
    before = checked_epoch(image, broker, epoch)
    return () if before.shutting_down else _first_part(_without_one_of_several(image, broker, minimum_of))


def drain(image: Image, broker: BrokerId, *, draining: bool) -> tuple[MetadataRecord, ...]:
    """A broker gets no new partitions, or again some. Raises UnknownBrokerError."""
    before = registered_broker(image, broker)
    return () if before.draining == draining else (BrokerChanged(id=broker, draining=draining),)


def unregister(image: Image, broker: BrokerId, minimum_of: MinimumOf) -> tuple[MetadataRecord, ...]:
    """A broker is missing for good: none of its replicas has anything any more.

    Raises UnknownBrokerError, or InvalidRequestError while it serves.
    """
    before = registered_broker(image, broker)
    if before.active:
        raise InvalidRequestError(f"broker {broker} is running: stop it before it is removed")

    def wish(assignment: Assignment) -> PartitionUpdate | None:
        if broker in assignment.observers:
            return PartitionUpdate(observers=tuple(one for one in assignment.observers if one != broker))
        there = (*assignment.isr, *assignment.elr, *assignment.last_known, assignment.leader)
        return PartitionUpdate(wiped=frozenset({broker})) if broker in there else None

    def active(one: BrokerId) -> bool:
        return one != broker and image.is_active(one)

    return (*_updates(image, wish, active, minimum_of), BrokerUnregistered(id=broker))


def older_copy_error(broker: BrokerId) -> DuplicateBrokerError:
    """The error for a process that runs on an older copy of a broker's data directory."""
    return DuplicateBrokerError(
        f"the data directory of this process is an older copy: broker {broker} has run since, with another one "
        "that has what was acknowledged meanwhile. Nothing was taken from this one. Start the broker with that "
        f"directory; if it is lost, remove the broker (logboom cluster remove {broker}), and let it join again "
        "with --join and an empty data directory"
    )


def registered_broker(image: Image, broker: BrokerId) -> Broker:
    """The broker of an id. Raises UnknownBrokerError."""
    try:
        return image.brokers[broker]
    except KeyError:
        raise UnknownBrokerError(f"no broker is registered as {broker}") from None


def checked_epoch(image: Image, broker: BrokerId, epoch: BrokerEpoch) -> Broker:
    """The broker of an id, whose present process asks. Raises UnknownBrokerError, StaleBrokerEpochError."""
    found = registered_broker(image, broker)
    if found.epoch != epoch:
        raise StaleBrokerEpochError(f"broker {broker} is registered with epoch {found.epoch}, the request has {epoch}")
    return found


def partitions_changed(stream: Stream, changes: Iterable[PartitionChange]) -> Iterator[PartitionsChanged]:
    """The records of the changes of one stream."""
    changes = tuple(changes)
    for at in range(0, len(changes), CHANGES_PER_RECORD):
        some = changes[at : at + CHANGES_PER_RECORD]
        version = 2 if any(one.observers is not None for one in some) else 1
        yield PartitionsChanged(version=version, id=stream.id, changes=some)


def changes_by_stream(image: Image, records: Iterable[PartitionsChanged]) -> list[PartitionsChanged]:
    """The same changes without those of partitions for which there is another change, those of one stream together: a
    record costs every broker that applies it, now and at each start, a look at all partitions of the stream."""
    changes: dict[StreamId, list[PartitionChange]] = {}
    for record in records:
        changes.setdefault(record.id, []).extend(record.changes)
    return [made for stream_id, some in changes.items() for made in partitions_changed(image.by_id[stream_id], some)]


def _earlier_process_is_gone(
    image: Image, before: Broker, minimum_of: MinimumOf, *, clean: bool
) -> Iterator[PartitionsChanged]:
    """What the end of the earlier process means where nobody has noticed it yet, or where it was not clean."""
    lost = frozenset[BrokerId]() if clean else frozenset({before.id})

    def active(one: BrokerId) -> bool:
        return one != before.id and image.is_active(one)

    def wish(assignment: Assignment) -> PartitionUpdate | None:
        eligible = {*assignment.isr, *assignment.elr}
        others = _others(assignment, before.id)
        if before.id not in eligible:
            return None
        if eligible == {before.id}:
            # The only one that has everything leads on, with the epoch that its registration gives it. Killed, it may
            # have come back as an older copy, so where there are others it is compared with them first.
            return PartitionUpdate(lost=lost) if lost and len(assignment.replicas) > 1 else None
        if any(map(active, others)):
            return PartitionUpdate(isr=others, lost=lost)
        return PartitionUpdate(lost=lost) if lost else None

    return _updates(image, wish, active, minimum_of)


def _without_broker(image: Image, broker: BrokerId, minimum_of: MinimumOf) -> Iterator[PartitionsChanged]:
    def active(one: BrokerId) -> bool:
        return one != broker and image.is_active(one)

    def wish(assignment: Assignment) -> PartitionUpdate | None:
        if broker not in assignment.isr and broker != assignment.leader:
            return None
        return PartitionUpdate(isr=_others(assignment, broker))

    return _updates(image, wish, active, minimum_of)


def _without_one_of_several(image: Image, broker: BrokerId, minimum_of: MinimumOf) -> Iterator[PartitionsChanged]:
    def active(one: BrokerId) -> bool:
        return one != broker and image.is_active(one)

    def wish(assignment: Assignment) -> PartitionUpdate | None:
        if broker not in assignment.isr or not any(map(active, assignment.isr)):
            return None
        return PartitionUpdate(isr=_others(assignment, broker))

    return _updates(image, wish, active, minimum_of)


def _first_part(records: Iterator[PartitionsChanged]) -> tuple[MetadataRecord, ...]:
    found: list[MetadataRecord] = []
    size = 0
    for record in records:
        found.append(record)
        size += len(record.changes)
        if size >= CHANGES_PER_RECORD:
            return tuple(found)
    return ()


def _others(assignment: Assignment, broker: BrokerId) -> tuple[BrokerId, ...]:
    return tuple(one for one in assignment.isr if one != broker)


def _updates(
    image: Image,
    wish: Callable[[Assignment], PartitionUpdate | None],
    is_active: Callable[[BrokerId], bool],
    minimum_of: MinimumOf,
) -> Iterator[PartitionsChanged]:
    """The records of all partitions of which something is wished."""
    for stream in image:
        changes, rules = [], Eligibility(is_active, minimum_of(stream))
        for index, assignment in enumerate(stream.assignments):
            wanted = wish(assignment)
            change = None if wanted is None else decide(index, assignment, wanted, rules)
            if change is not None:
                changes.append(change)
            if len(changes) == CHANGES_PER_RECORD:
                yield from partitions_changed(stream, changes)
                changes = []
        yield from partitions_changed(stream, changes)
