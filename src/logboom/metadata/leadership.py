"""Commands on who leads and who is in sync: a leader's proposal of an ISR, elections, and recovery after all failed.

Each reads the image and returns records, or raises one typed error.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from logboom.base.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidUpdateVersionError,
    NotLeaderError,
    PreferredLeaderNotAvailableError,
    UnknownLeaderEpochError,
    UnknownStreamError,
    UnknownStreamIdError,
)
from logboom.base.ids import (
    NO_BROKER,
    NO_EPOCH,
    BrokerEpoch,
    BrokerId,
    Epoch,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    StreamId,
    StreamName,
)
from logboom.metadata.assignment import Assignment, Election, Eligibility, PartitionChange, PartitionUpdate, decide
from logboom.metadata.image import Image, Stream
from logboom.metadata.membership import MinimumOf, checked_epoch, partitions_changed
from logboom.metadata.records import PartitionsChanged


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """What the leader of a partition asks for (KIP-497), with the epochs by which it knows the partition."""

    stream: StreamId
    index: PartitionIndex
    leader_epoch: Epoch
    partition_epoch: PartitionEpoch
    isr: Mapping[BrokerId, BrokerEpoch]
    """The new members, each with the epoch of the process whose fetches showed that it is in sync (KIP-903)."""


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """How far a replica's log goes: the epoch of its last batch, then its end. The larger value has more."""

    epoch: Epoch
    end_offset: Offset
    is_whole: bool = True
    """Whether nothing in it is known to be damaged or lost. If something is, the log goes as far as its last batch that
    is there: what it lacks behind that, nobody could get from it."""


NOTHING: Final = LogEnd(NO_EPOCH, Offset(0), is_whole=False)
"""Of a replica that has lost all of its records: it never leads."""
NO_ENDS: Final[Mapping[BrokerId, LogEnd]] = MappingProxyType({})


def change_isr(
    image: Image, leader: BrokerId, epoch: BrokerEpoch, proposal: IsrProposal, minimum_of: MinimumOf
) -> tuple[PartitionsChanged, ...]:
    """Set the ISR of a partition as its leader proposes. One without the leader has another of its members lead.

    Raises StaleBrokerEpochError, UnknownStreamIdError, NotLeaderError, FencedLeaderEpochError, UnknownLeaderEpochError,
    InvalidUpdateVersionError if the partition was changed meanwhile, IneligibleReplicaError for a member that is
    fenced, shuts down or is another process by now, or where nobody is left to lead. Then nothing changes.
    """
    checked_epoch(image, leader, epoch)
    stream, before = _proposed_for(image, leader, proposal)
    for broker, known in proposal.isr.items():
        found = image.brokers.get(broker)
        stays = broker in before.isr and found is not None
        if broker not in before.replicas or found is None or not (found.active or stays) or found.epoch != known:
            raise IneligibleReplicaError(f"broker {broker} cannot join the ISR of {stream.name}-{proposal.index} now")
    members = set(proposal.isr)
    if leader not in members and not (members <= set(before.isr) and any(map(image.is_active, members))):
        raise IneligibleReplicaError(
            f"without broker {leader} nobody in the ISR can lead {stream.name}-{proposal.index}"
        )
    wish = PartitionUpdate(isr=tuple(proposal.isr))
    change = decide(proposal.index, before, wish, Eligibility(image.is_active, minimum_of(stream)))
    return tuple(partitions_changed(stream, () if change is None else (change,)))


def elect(
    image: Image,
    name: str,
    index: int,
    election: Election,
    minimum_of: MinimumOf,
    ends: Mapping[BrokerId, LogEnd] = NO_ENDS,
) -> tuple[PartitionsChanged, ...]:
    """Elect the preferred leader; with `Election.UNCLEAN`, any replica if none is eligible (KIP-460): the one with the
    longest log among those whose `ends` are known.

    Raises UnknownStreamError, ElectionNotNeededError, PreferredLeaderNotAvailableError,
    EligibleLeadersNotAvailableError.
    """
    stream, before = _existing(image, name, index)
    if election is Election.UNCLEAN:
        if before.leader != NO_BROKER and image.is_active(before.leader):
            raise ElectionNotNeededError(f"{name}-{index} is led by broker {before.leader}")
    elif before.leader == before.preferred_leader:
        raise ElectionNotNeededError(f"{name}-{index} is led by its preferred leader, broker {before.leader}")
    rules = Eligibility(image.is_active, minimum_of(stream))
    wish = PartitionUpdate(election=election)
    if election is Election.UNCLEAN and not any(map(image.is_active, (*before.isr, *before.elr))):
        wish = PartitionUpdate(election=election, leader=_longest(image, before, ends))
    change = decide(index, before, wish, rules)
    after = before if change is None else before.after(change)
    if election is Election.PREFERRED and after.leader != before.preferred_leader:
        raise PreferredLeaderNotAvailableError(
            f"broker {before.preferred_leader} cannot lead {name}-{index}: it is not active, or not in the ISR"
        )
    if after.leader == NO_BROKER:
        raise EligibleLeadersNotAvailableError(f"no replica of {name}-{index} is active")
    return tuple(partitions_changed(stream, () if change is None else (change,)))


def forget_eligible(image: Image, streams: Iterable[Stream], minimum_of: MinimumOf) -> tuple[PartitionsChanged, ...]:
    """Forget the replicas outside the ISR that may be elected, where `min.insync.replicas` has been lowered to what the
    ISR has. Until then the leader commits nothing; from then on it commits without them (KIP-966)."""
    records: list[PartitionsChanged] = []
    for stream in streams:
        rules = Eligibility(image.is_active, minimum_of(stream))
        changes = [
            decide(index, one, PartitionUpdate(), rules)
            for index, one in enumerate(stream.assignments)
            if (one.elr or one.last_known) and image.is_active(one.leader)
        ]
        records += partitions_changed(stream, (change for change in changes if change is not None))
    return tuple(records)


def rebalance(image: Image, minimum_of: MinimumOf, *, most: int) -> tuple[PartitionsChanged, ...]:
    """Give partitions back to their preferred leaders, at most `most` of them at a time."""
    records: list[PartitionsChanged] = []
    for stream in image:
        rules = Eligibility(image.is_active, minimum_of(stream))
        changes: list[PartitionChange] = []
        for index, before in enumerate(stream.assignments):
            if most <= 0:
                break
            if before.leader == before.preferred_leader or before.preferred_leader not in before.isr:
                continue
            change = decide(index, before, PartitionUpdate(election=Election.PREFERRED), rules)
            if change is not None:
                changes.append(change)
                most -= 1
        records += partitions_changed(stream, changes)
    return tuple(records)


def recovery_candidates(assignment: Assignment) -> frozenset[BrokerId]:
    """Replicas that held all committed records when the partition lost its last leader; empty if it has one.

    A member of the last ISR or ELR whose process was killed is not trusted to have what it had not synced, so it is not
    elected like others. Where nobody else is left, these are all there is (KIP-966, "last known ELR").
    """
    if assignment.leader != NO_BROKER:
        return frozenset()
    return frozenset((*assignment.isr, *assignment.elr, *assignment.last_known))


def recover(
    image: Image,
    stream_id: StreamId,
    index: PartitionIndex,
    ends: Mapping[BrokerId, LogEnd],
    minimum_of: MinimumOf,
) -> tuple[PartitionsChanged, ...]:
    """Elect the replica whose log goes farthest, among those that have reported their ends, where nobody leads.

    Whether to wait for more reports is the caller's decision: every candidate with an honest disk has all records of a
    stream that is synced before it acks, of others perhaps only the one with the longest log has. No record where
    no active candidate has reported. Raises UnknownStreamIdError.
    """
    stream, before = _by_id(image, stream_id, index)
    if before.leader != NO_BROKER:
        return ()
    best = _longest(image, before, ends)
    if best is None:
        return ()
    rules = Eligibility(image.is_active, minimum_of(stream))
    change = decide(index, before, PartitionUpdate(leader=best), rules)
    assert change is not None, "a partition without a leader gets one"
    return tuple(partitions_changed(stream, (change,)))


def _longest(image: Image, before: Assignment, ends: Mapping[BrokerId, LogEnd]) -> BrokerId | None:
    """The active replica that has most; of those that have the same, one that held everything last."""
    there = [one for one in before.replicas if ends.get(one, NOTHING) != NOTHING and image.is_active(one)]
    known = recovery_candidates(before)
    return max(there, key=lambda one: (ends[one], one in known, -one), default=None)


def _proposed_for(image: Image, leader: BrokerId, proposal: IsrProposal) -> tuple[Stream, Assignment]:
    stream, before = _by_id(image, proposal.stream, proposal.index)
    name = f"{stream.name}-{proposal.index}"
    if proposal.leader_epoch < before.leader_epoch:
        raise FencedLeaderEpochError(f"{name} is at leader epoch {before.leader_epoch}, not {proposal.leader_epoch}")
    if proposal.leader_epoch > before.leader_epoch:
        raise UnknownLeaderEpochError(f"{name} is at leader epoch {before.leader_epoch}, not {proposal.leader_epoch}")
    if leader != before.leader:
        raise NotLeaderError(f"{name} is led by broker {before.leader}, not by broker {leader}")
    if proposal.partition_epoch != before.partition_epoch:
        raise InvalidUpdateVersionError(
            f"{name} is at partition epoch {before.partition_epoch}, not {proposal.partition_epoch}"
        )
    return stream, before


def _by_id(image: Image, stream_id: StreamId, index: PartitionIndex) -> tuple[Stream, Assignment]:
    stream, found = image.by_id.get(stream_id), image.assignment(stream_id, index)
    if stream is None or found is None:
        raise UnknownStreamIdError(f"there is no partition {index} of a stream with the id {stream_id}")
    return stream, found


def _existing(image: Image, name: str, index: int) -> tuple[Stream, Assignment]:
    stream = image.by_name.get(StreamName(name))
    if stream is None or not 0 <= index < len(stream.assignments):
        raise UnknownStreamError(f"there is no partition {index} of a stream {name!r}")
    return stream, stream.assignments[index]
