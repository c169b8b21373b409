"""The state of one partition in the image: its replicas, which of them are in sync, its leader and its observers, and
how these change.

`Assignment` is what the image holds, `PartitionChange` what a record says about it, `PartitionUpdate` what a command
requests. `decide` turns the request into a change, by these rules:

- The leader is an active member of the ISR. If there is none, an active member of the ELR becomes the leader and the
  only ISR member (KIP-966). If there is none of those either, the partition has no leader, unless an unclean election
  is explicitly requested.
- A member that leaves the ISR while that is below the minimum becomes an eligible leader replica (ELR): nothing was
  committed since, so it holds every committed record. With the ISR back at its minimum the ELR is forgotten.
- A member whose process ended without a clean shutdown is neither in the ISR nor in the ELR any more: its disk may have
  lost what was not synced, or be a restored older copy. It is remembered as `last_known` until the ISR is at its
  minimum again.
- If that was the last one, the partition has no leader until the last known members that are up have reported the ends
  of their logs (`leadership.recover`): the longest log has everything, unless all of them lost something. The only
  replica of a partition always stays in its ISR.
- If a reassignment removes the leader, it ends in two steps: first a remaining replica becomes leader, then the removed
  ones leave the ISR and the replicas. So the previous leader is a follower, and knows it, before anything is committed
  without it.
- An observer has none of these roles. A reassignment that names it makes it a replica instead.
- A leader's epoch rises with every change of the leader, the partition's epoch with every change at all.

Pure values and functions. Which brokers are active and how large the minimum is are arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from logboom.base.ids import NO_BROKER, BrokerId, Epoch, PartitionEpoch

Replicas: TypeAlias = tuple[BrokerId, ...]
"""Broker ids without repetition. Of all replicas the first is the preferred leader; other tuples are sorted."""

_FIRST_EPOCH: Final = Epoch(0)
_FIRST_PARTITION_EPOCH: Final = PartitionEpoch(0)


class Assignment(msgspec.Struct, frozen=True, gc=False):
    """Which brokers hold one partition, and in which role.

    A struct and not a dataclass, since a start makes ten thousand of them several times over; and with only numbers and
    tuples of numbers in it, the garbage collector has nothing to visit.
    """

    replicas: Replicas
    isr: Replicas
    leader: BrokerId
    """NO_BROKER if no broker may lead."""
    leader_epoch: Epoch = _FIRST_EPOCH
    partition_epoch: PartitionEpoch = _FIRST_PARTITION_EPOCH
    elr: Replicas = ()
    """Eligible leader replicas (KIP-966): they hold every committed record, and are not in the ISR."""
    last_known: Replicas = ()
    """Members of ISR or ELR whose processes ended without a clean shutdown while the ISR was below its minimum."""
    adding: Replicas = ()
    """Replicas that a reassignment adds; they are among `replicas`."""
    removing: Replicas = ()
    """Replicas that a reassignment removes once all others of `replicas` are in the ISR."""
    observers: Replicas = ()
    """Brokers whose copies only serve readers: they are never among `replicas`, in ISR or ELR, or elected, and no
    guarantee depends on them."""

    @property
    def holders(self) -> Replicas:
        """All brokers that have a copy: the replicas, then the observers."""
        return self.replicas + self.observers

    @property
    def relied_on(self) -> Replicas:
        """The replicas that are relied on to hold what is committed: ISR and ELR, or if both are empty, their last
        known members."""
        return self.isr + self.elr or self.last_known

    @property
    def in_doubt(self) -> bool:
        """Whether all brokers that held the committed records ended without a clean shutdown: `leadership.recover`
        elects one."""
        return self.leader == NO_BROKER and bool(self.last_known) and not (self.isr or self.elr)

    @property
    def reassigning(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> Replicas:
        """The replicas once a reassignment that is under way has ended."""
        return tuple(one for one in self.replicas if one not in self.removing)

    @property
    def preferred_leader(self) -> BrokerId:
        """The replica that should lead if it can."""
        return self.replicas[0]

    def after(self, change: "PartitionChange") -> "Assignment":
        """The assignment that a record makes of this one."""
        # Field by field, without a dictionary between: a start does this for each change since the last snapshot, which
        # is ten thousand of them for each time that one of their brokers came back.
        leads_anew = change.leader is not None
        return Assignment(
            self.replicas if change.replicas is None else change.replicas,
            self.isr if change.isr is None else change.isr,
            self.leader if change.leader is None else change.leader,
            Epoch(self.leader_epoch + 1) if leads_anew else self.leader_epoch,
            PartitionEpoch(self.partition_epoch + 1),
            self.elr if change.elr is None else change.elr,
            self.last_known if change.last_known is None else change.last_known,
            self.adding if change.adding is None else change.adding,
            self.removing if change.removing is None else change.removing,
            self.observers if change.observers is None else change.observers,
        )


class PartitionChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a record changes of one partition; None is not a change. A leader, the same one too, has a new leader
    epoch."""

    index: int
    replicas: Replicas | None = None
    isr: Replicas | None = None
    leader: BrokerId | None = None
    elr: Replicas | None = None
    last_known: Replicas | None = None
    adding: Replicas | None = None
    removing: Replicas | None = None
    observers: Replicas | None = None


_CHANGED_FIELDS: Final = ("replicas", "isr", "leader", "elr", "last_known", "adding", "removing", "observers")


class Election(Enum):
    """When a partition gets a new leader."""

    IF_NEEDED = "if needed"
    """Only if the current leader cannot lead."""
    PREFERRED = "preferred"
    """The preferred leader, if it is an active member of the ISR."""
    UNCLEAN = "unclean"
    """If no replica is eligible, any active replica; committed records may be lost."""


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Input of `decide` besides the assignment."""

    is_active: Callable[[BrokerId], bool]
    """Whether a broker may lead and be in an ISR: registered, not fenced, not shutting down."""
    minimum: int
    """`min.insync.replicas` of the stream, at most the number of its replicas."""


@dataclass(frozen=True, slots=True)
class PartitionUpdate:
    """A command's request for one partition; omitted fields stay as they are."""

    isr: Replicas | None = None
    replicas: Replicas | None = None
    adding: Replicas | None = None
    removing: Replicas | None = None
    observers: Replicas | None = None
    lost: frozenset[BrokerId] = field(default_factory=frozenset)
    """Replicas whose processes ended without a clean shutdown."""
    wiped: frozenset[BrokerId] = field(default_factory=frozenset)
    """Replicas that have lost all of their records."""
    leader: BrokerId | None = None
    """A leader chosen by the caller, which guarantees that it holds all that is committed; it alone becomes the ISR."""
    election: Election = Election.IF_NEEDED
    hands_over: bool = False
    """Whether a leader that is being removed stops leading, even if not all remaining replicas are in sync."""


def decide(index: int, before: Assignment, wish: PartitionUpdate, rules: Eligibility) -> PartitionChange | None:
    """The change that `wish` makes by the rules of this module; None where everything stays as it is."""
    after = _with_completed_reassignment(_with_replicas(before, wish))
    after = _with_leader(_without_lost(_without(after, wish.wiped), wish.lost), wish, rules)
    after = _with_eligible_replicas(_without(before, wish.wiped), after, wish.lost, rules.minimum)
    changes = {name: getattr(after, name) for name in _CHANGED_FIELDS if getattr(after, name) != getattr(before, name)}
    return PartitionChange(index=index, **changes) if changes else None


def ordered(brokers: "frozenset[BrokerId] | set[BrokerId]") -> Replicas:
    """A set of brokers in the one order in which it is written."""
    return tuple(sorted(brokers))


def _with_replicas(before: Assignment, wish: PartitionUpdate) -> Assignment:
    replicas = before.replicas if wish.replicas is None else wish.replicas
    observers = before.observers if wish.observers is None else wish.observers
    after = replace(
        before,
        isr=before.isr if wish.isr is None else ordered(set(wish.isr)),
        replicas=replicas,
        observers=ordered(set(observers) - set(replicas)),  # one that becomes a replica keeps its copy
        adding=before.adding if wish.adding is None else wish.adding,
        removing=before.removing if wish.removing is None else wish.removing,
    )
    if wish.leader is not None:
        after = replace(after, isr=(wish.leader,))
    return _only_replicas(after)


def _only_replicas(after: Assignment) -> Assignment:
    return _without(after, frozenset((*after.isr, *after.elr, *after.last_known)) - set(after.replicas))


def _without(one: Assignment, gone: frozenset[BrokerId]) -> Assignment:
    """No replica of `gone` holds the committed records."""
    if not gone:
        return one
    isr, elr, last_known = (tuple(b for b in group if b not in gone) for group in (one.isr, one.elr, one.last_known))
    return replace(one, isr=isr, elr=elr, last_known=last_known)


def _with_completed_reassignment(after: Assignment) -> Assignment:
    """A reassignment ends when every replica that stays is in the ISR, and none that goes: until then no copy may be
    removed, since the records would be on fewer disks than before. Replicas to be removed leave the ISR when the leader
    proposes it, which knows when that is safe."""
    if not after.reassigning or not _all_that_stay_are_in_sync(after) or set(after.removing) & set(after.isr):
        return after
    return _only_replicas(replace(after, replicas=after.target, adding=(), removing=()))


def _all_that_stay_are_in_sync(after: Assignment) -> bool:
    return set(after.target) <= set(after.isr)


def _without_lost(after: Assignment, lost: frozenset[BrokerId]) -> Assignment:
    if not lost:
        return after
    isr = tuple(one for one in after.isr if one not in lost)
    elr = tuple(one for one in after.elr if one not in lost)
    if not isr and not elr and len(after.replicas) == 1:
        return after  # there is no other copy, which might have more
    return replace(after, isr=isr, elr=elr)


def _with_leader(after: Assignment, wish: PartitionUpdate, rules: Eligibility) -> Assignment:
    if wish.leader is not None:
        return replace(after, leader=wish.leader)
    fit = [one for one in after.replicas if one in after.isr and rules.is_active(one)]
    goes = after.leader in after.removing and (wish.hands_over or _all_that_stay_are_in_sync(after))
    if after.leader in fit and wish.election is not Election.PREFERRED and not goes:
        return after
    if fit:
        keep = wish.election is Election.PREFERRED and after.leader in fit and fit[0] != after.preferred_leader
        return after if keep else replace(after, leader=fit[0])
    eligible = [one for one in after.replicas if one in after.elr and rules.is_active(one)]
    if eligible:
        return replace(after, leader=eligible[0], isr=(eligible[0],))
    if wish.election is Election.UNCLEAN:
        active = [one for one in after.replicas if rules.is_active(one)]
        active.sort(key=lambda one: one not in after.last_known)  # these may have everything
        if active:
            return replace(after, leader=active[0], isr=(active[0],), elr=(), last_known=())
    return replace(after, leader=NO_BROKER)


def _with_eligible_replicas(
    before: Assignment, after: Assignment, lost: frozenset[BrokerId], minimum: int
) -> Assignment:
    """ELR and `last_known` after a change of the ISR (KIP-966)."""
    minimum = min(minimum, len(after.replicas))
    isr = set(after.isr)
    if after.leader != NO_BROKER and len(isr) >= minimum:
        return replace(after, elr=(), last_known=())
    there = set(after.replicas)
    # An unclean election has emptied both: what was eligible before holds records that the new leader does not have.
    forgotten = bool(isr) and not isr & (set(before.isr) | set(before.elr) | set(before.last_known))
    eligible = set() if forgotten else (set(before.isr) | set(before.elr)) & there
    unclean = {one for one in eligible if one in lost and one not in isr and one not in after.elr}
    elr = eligible - isr - unclean
    last_known = set() if forgotten else (set(before.last_known) | unclean) & there
    return replace(after, elr=ordered(elr), last_known=ordered(last_known - isr - elr))
