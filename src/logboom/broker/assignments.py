"""What the image says about this broker: which partitions are here, and in which role.

A stream without assignments was created before there were any: this broker alone holds it. Pure.
"""

from typing import NamedTuple, TypeAlias

from logboom.base.ids import NO_BROKER, BrokerEpoch, BrokerId, Epoch, PartitionEpoch, PartitionIndex
from logboom.broker.disk.log_manager import Assigned
from logboom.broker.partition.leader import Leading
from logboom.metadata import Image, Stream
from logboom.metadata.assignment import Assignment


class Following(NamedTuple):
    """Copy the log of a leader."""

    leader: BrokerId
    epoch: Epoch
    partition_epoch: PartitionEpoch
    in_sync: bool
    """Whether this copy is in the ISR."""
    observes: bool = False
    """Whether for readers alone."""


Wanted: TypeAlias = Leading | Following | None
"""The role that the image gives; None: neither lead nor follow."""


def assignment_of(stream: Stream, index: int) -> Assignment | None:
    """Who holds a partition; None where that was never written down."""
    return stream.assignments[index] if stream.assignments else None


def is_here(stream: Stream, index: int, broker: BrokerId) -> bool:
    """Whether `broker` holds a copy of a partition: a replica, or an observer."""
    assignment = assignment_of(stream, index)
    return assignment is None or broker in assignment.replicas or broker in assignment.observers


def held_by(image: Image, broker: BrokerId) -> list[Assigned]:
    """All partitions of which `broker` holds a copy."""
    return [
        (stream, PartitionIndex(index))
        for stream in image
        for index in range(stream.partitions)
        if is_here(stream, index, broker)
    ]


def holders_of_all(assignment: Assignment) -> frozenset[BrokerId]:
    """The replicas that are relied on to have what is committed, or were until their processes ended."""
    return frozenset((*assignment.isr, *assignment.elr, *assignment.last_known))


def others_have_all(assignment: Assignment, broker: BrokerId) -> bool:
    """Whether another broker has what is committed, so that the records of `broker` can be done without."""
    return bool({*assignment.isr, *assignment.elr} - {broker})


def may_be_new(stream: Stream, index: int, broker: BrokerId) -> bool:
    """Whether a replica of `broker` that is not on its disk has not been made yet; else it is lost."""
    assignment = assignment_of(stream, index)
    return assignment is not None and broker not in holders_of_all(assignment)


def is_registered(image: Image, broker: BrokerId, own_epoch: BrokerEpoch | None) -> bool:
    """Whether the image knows this process. Before that, what the image says about leaders may concern an earlier
    process, whose leader epochs must not be used again."""
    found = image.brokers.get(broker)
    return found is not None and found.epoch == own_epoch


def wanted_role(assignment: Assignment, broker: BrokerId) -> Wanted:
    """The role of `broker`, which holds a copy and is registered. Observers follow as other replicas do."""
    if assignment.leader == NO_BROKER:
        return None
    if assignment.leader != broker:
        in_sync, observes = broker in assignment.isr, broker in assignment.observers
        return Following(assignment.leader, assignment.leader_epoch, assignment.partition_epoch, in_sync, observes)
    return Leading(
        assignment.leader_epoch,
        frozenset(assignment.isr),
        frozenset(assignment.replicas),
        assignment.partition_epoch,
        frozenset(assignment.observers),
        frozenset(assignment.removing),
        bool(assignment.elr or assignment.last_known),
    )
