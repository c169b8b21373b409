"""Commands that move and add replicas: begin a reassignment, cancel it (KIP-455). Its end is `assignment.decide`'s.

While it is under way the partition has the old replicas and the new ones. The old ones go once every new one is in
the ISR, so a partition is never on fewer disks than it was. It survives a change of the controller, since all of it is
in the image.
"""

from collections.abc import Sequence

from logboom.base.errors import InvalidAssignmentError, NoReassignmentInProgressError, UnknownStreamError
from logboom.base.ids import NO_BROKER, BrokerId, StreamName
from logboom.metadata.assignment import Assignment, Eligibility, PartitionUpdate, Replicas, decide
from logboom.metadata.image import Image, Stream
from logboom.metadata.membership import MinimumOf, partitions_changed
from logboom.metadata.placement import Load, widen
from logboom.metadata.records import PartitionsChanged, StreamConfigChanged
from logboom.metadata.stream_config import MINIMUM, minimum_fault


def check_replicas(image: Image, replicas: Sequence[int]) -> Replicas:
    """Check replicas that a client names. Raises InvalidAssignmentError."""
    wanted = tuple(map(BrokerId, replicas))
    if not wanted:
        raise InvalidAssignmentError("a partition needs at least one replica")
    if len(set(wanted)) < len(wanted):
        raise InvalidAssignmentError(f"the replicas {list(replicas)} name a broker twice")
    unknown = [one for one in wanted if one not in image.brokers]
    if unknown:
        raise InvalidAssignmentError(
            f"no broker is registered as {', '.join(map(str, unknown))}; there are "
            + ", ".join(map(str, sorted(image.brokers)))
        )
    observers = [one for one in wanted if image.brokers[one].observer]
    if observers:
        raise InvalidAssignmentError(
            f"broker {observers[0]} is an observer: it has copies for readers, and no replicas"
        )
    domains: dict[str, BrokerId] = {}
    for one in wanted:
        other = domains.setdefault(image.brokers[one].domain, one)
        if other != one:
            raise InvalidAssignmentError(
                f"brokers {other} and {one} fail together ({image.brokers[one].domain}): they cannot hold two replicas "
                "of a partition"
            )
    return wanted


def reassign(
    image: Image, name: str, index: int, replicas: Sequence[int], minimum_of: MinimumOf
) -> tuple[PartitionsChanged, ...]:
    """Move a partition to `replicas`, the preferred leader first. Replaces a reassignment that is under way.

    Raises UnknownStreamError, InvalidAssignmentError.
    """
    target = check_replicas(image, replicas)
    before = _existing(image, name, index)
    stream = image.by_name[StreamName(name)]
    _check_minimum(stream, target)
    # A replica that an earlier reassignment was adding and this one does not want is removed like the others, not at
    # once: it may be in the ISR, and lead. It stays in `adding` too, which tells it from those from before both.
    removing = tuple(one for one in before.replicas if one not in target)
    adding = tuple(one for one in target + removing if one not in _settled(before))
    wish = PartitionUpdate(replicas=target + removing, adding=adding, removing=removing)
    return _decided(image, name, index, wish, minimum_of)


def add_replicas(
    image: Image, name: str, replication_factor: int, minimum_of: MinimumOf
) -> tuple[PartitionsChanged, ...]:
    """Let the partitions of a stream that have fewer replicas get more, up to `replication_factor` and as far as active
    brokers allow. For streams that were created when there were fewer brokers. No record where nothing changes.

    A partition that is being reassigned, or that nobody leads, is left for a later time. Raises UnknownStreamError.
    """
    _existing(image, name, 0)
    stream = image.by_name[StreamName(name)]
    load = Load.of(one for other in image for one in other.assignments)
    rules = Eligibility(image.is_active, minimum_of(stream))
    changes = []
    for index, before in enumerate(stream.assignments):
        if before.reassigning or before.leader == NO_BROKER or len(before.replicas) >= replication_factor:
            continue
        replicas = widen(image.brokers, load, before.replicas, replication_factor=replication_factor)
        adding = tuple(one for one in replicas if one not in before.replicas)
        if adding:
            changes.append(decide(index, before, PartitionUpdate(replicas=replicas, adding=adding), rules))
    return tuple(partitions_changed(stream, (change for change in changes if change is not None)))


def fit_minimum(image: Image, name: str, wanted: int) -> tuple[StreamConfigChanged, ...]:
    """Let an internal stream have `min.insync.replicas` of `wanted`, or one less than the replicas of its partitions,
    so that any one of them may be missing; of one or two replicas it is 1. No record where nothing changes.

    It is raised once as many are in sync: the stream must not stop because replicas are still being copied. Raises
    UnknownStreamError.
    """
    _existing(image, name, 0)
    stream = image.by_name[StreamName(name)]
    now = int(stream.overrides.get(MINIMUM, "1"))
    fitting = min((max(1, min(wanted, len(one.target) - 1)) for one in stream.assignments), default=now)
    in_sync = min((len(set(one.isr) & set(one.target)) for one in stream.assignments), default=0)
    if fitting == now or in_sync < fitting > now:
        return ()
    return (StreamConfigChanged(id=stream.id, config={**stream.overrides, MINIMUM: str(fitting)}),)


def cancel(image: Image, name: str, index: int, minimum_of: MinimumOf) -> tuple[PartitionsChanged, ...]:
    """Take a reassignment back: its new replicas go at once. One that leads only hands over, and is removed once the
    next leader knows that it has heard of that, as with `reassign`; or, where that does not come, once it has left the
    ISR and this is asked for again. While it may not have heard, asking again changes nothing: a request whose answer
    was lost with the controller is sent again.

    Raises UnknownStreamError, NoReassignmentInProgressError, or InvalidAssignmentError if only new replicas are in
    sync by now, or `min.insync.replicas` was raised to more replicas than there would be.
    """
    before = _existing(image, name, index)
    if not before.reassigning:
        raise NoReassignmentInProgressError(f"{name}-{index} is not being reassigned")
    settled = _settled(before)
    _check_minimum(image.by_name[StreamName(name)], settled)
    if not any(map(image.is_active, set(settled) & set(before.isr))):
        raise InvalidAssignmentError(
            f"only new replicas of {name}-{index} are in sync and active; let the reassignment go on, or bring back "
            f"one of the brokers {', '.join(map(str, settled))}"
        )
    wish = PartitionUpdate(replicas=settled, adding=(), removing=())
    if before.leader in before.adding and image.is_active(before.leader):
        leader = (before.leader,)
        wish = PartitionUpdate(replicas=settled + leader, adding=leader, removing=leader, hands_over=True)
    elif _hands_over(image, before):
        return ()
    return _decided(image, name, index, wish, minimum_of)


def _hands_over(image: Image, before: Assignment) -> bool:
    """Whether a reassignment was taken back whose new replica led, and that one may not have heard who leads now."""
    going = before.removing
    return going == before.adding and any(one in before.isr and image.is_active(one) for one in going)


def _check_minimum(stream: Stream, replicas: Replicas) -> None:
    fault = minimum_fault(stream.overrides, len(replicas))
    if fault is not None and not stream.internal:  # of an internal stream the minimum follows (`fit_minimum`)
        raise InvalidAssignmentError(fault)


def _settled(assignment: Assignment) -> Replicas:
    """The replicas without a reassignment's."""
    return tuple(one for one in assignment.replicas if one not in assignment.adding)


def _existing(image: Image, name: str, index: int) -> Assignment:
    stream = image.by_name.get(StreamName(name))
    if stream is None or not 0 <= index < len(stream.assignments):
        raise UnknownStreamError(f"there is no partition {index} of a stream {name!r}")
    return stream.assignments[index]


def _decided(
    image: Image, name: str, index: int, wish: PartitionUpdate, minimum_of: MinimumOf
) -> tuple[PartitionsChanged, ...]:
    stream = image.by_name[StreamName(name)]
    rules = Eligibility(image.is_active, minimum_of(stream))
    change = decide(index, stream.assignments[index], wish, rules)
    return tuple(partitions_changed(stream, () if change is None else (change,)))
