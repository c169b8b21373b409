"""Which brokers hold the replicas of new partitions, and who of them is to lead.

The rules, in this order:

1. No two replicas of a partition are in one failure domain: they would be lost together.
2. Replicas are spread over as many racks as there are.
3. Leaderships are even among the partitions of the stream, so that all brokers share its load, then over all streams
   together; then replicas are even over all streams together.
4. Brokers that are active come before fenced ones; draining ones, those that are about to end and observers get
   nothing.

Where observers go is in `observers`.

Pure: the same arguments give the same placement. `first` turns the order among brokers that are equal by these
rules, so that many small streams do not all begin with the same broker.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from logboom.base.errors import InvalidReplicationFactorError
from logboom.base.ids import NO_BROKER, BrokerId
from logboom.metadata.assignment import Assignment, Replicas
from logboom.metadata.brokers import Broker


@dataclass(slots=True)
class Load:
    """How many replicas, and how many of them first in their list, each broker has."""

    replicas: Counter[BrokerId] = field(default_factory=Counter)
    preferred: Counter[BrokerId] = field(default_factory=Counter)

    @classmethod
    def of(cls, assignments: Iterable[Assignment]) -> "Load":
        """The load that there is."""
        held = [one.replicas for one in assignments]
        return cls(Counter(chain.from_iterable(held)), Counter(replicas[0] for replicas in held))

    def add(self, replicas: Replicas) -> None:
        """One more partition."""
        self.replicas.update(replicas)
        self.preferred[replicas[0]] += 1


def place(
    brokers: Mapping[BrokerId, Broker],
    load: Load,
    *,
    partitions: int,
    replication_factor: int,
    first: int,
    own: Load | None = None,
) -> list[Replicas]:
    """The replicas of each new partition, the preferred leader first. `load`, of all streams, is added to.

    `own`: what of it is the stream's own, where it has partitions already; added to as well.

    Raises InvalidReplicationFactorError if there are not as many failure domains as replicas.
    """
    candidates = _candidates(brokers)
    domains = {one.domain for one in candidates}
    if not 1 <= replication_factor <= len(domains):
        raise InvalidReplicationFactorError(_too_many(replication_factor, len(candidates), len(domains)))
    candidates.sort(key=lambda one: one.id)
    own = Load() if own is None else own
    placed = []
    for number in range(partitions):
        turned = _turned(candidates, first + number)
        replicas = _replicas_of_one(turned, own, load, replication_factor)
        own.add(replicas)
        load.add(replicas)
        placed.append(replicas)
    return placed


def widen(brokers: Mapping[BrokerId, Broker], load: Load, replicas: Replicas, *, replication_factor: int) -> Replicas:
    """The replicas of a partition that is to have more, as many as active brokers allow; those that it has stay.

    The preferred leader is whoever is that for the fewest partitions. `load`, in which the partition is, is added to.
    """
    candidates = [one for one in _candidates(brokers) if one.active and one.id not in replicas]
    chosen = list(replicas)
    while len(chosen) < replication_factor:
        there = [brokers[one] for one in chosen if one in brokers]
        racks, domains = {one.rack for one in there}, {one.domain for one in there}

        def cost(one: Broker, racks: set[str | None] = racks) -> tuple[int, ...]:
            return (one.rack in racks, load.replicas[one.id], one.id)

        others = [one for one in candidates if one.domain not in domains]
        if not others:
            break
        chosen.append(min(others, key=cost).id)
    load.replicas.update(chosen[len(replicas) :])
    load.preferred[replicas[0]] -= 1
    first = min(chosen, key=lambda one: load.preferred[one])
    load.preferred[first] += 1
    return (first, *(one for one in chosen if one != first))


def replication_factor_max(brokers: Mapping[BrokerId, Broker]) -> int:
    """The most replicas that a new partition can have: one where no broker has registered yet."""
    return max(len({one.domain for one in _candidates(brokers)}), 1)


def _candidates(brokers: Mapping[BrokerId, Broker]) -> list[Broker]:
    return [one for one in brokers.values() if one.placeable and not one.observer]


def start(replicas: Replicas, brokers: Mapping[BrokerId, Broker]) -> Assignment:
    """A new partition: whoever is active is in sync, since there is nothing yet to be in sync with."""
    isr = tuple(sorted(one for one in replicas if brokers[one].active))
    leader = next((one for one in replicas if one in isr), NO_BROKER)
    return Assignment(replicas=replicas, isr=isr, leader=leader)


def _too_many(replication_factor: int, brokers: int, domains: int) -> str:
    there = f"{brokers} broker" + ("s" if brokers != 1 else "")
    if domains < brokers:
        there += f" in {domains} failure domain" + ("s" if domains != 1 else "")
    most = f"ask for {domains} at most" if domains else "wait until brokers have come that take replicas"
    return f"a replication factor of {replication_factor} cannot be had with {there}: {most}, or add brokers first"


def _turned(brokers: Sequence[Broker], by: int) -> Sequence[Broker]:
    by %= len(brokers)
    return (*brokers[by:], *brokers[:by])


def _replicas_of_one(candidates: Sequence[Broker], own: Load, load: Load, replication_factor: int) -> Replicas:
    chosen: list[Broker] = []
    while len(chosen) < replication_factor:
        racks, domains = {one.rack for one in chosen}, {one.domain for one in chosen}
        counts = (load.replicas,) if chosen else (own.preferred, load.preferred, load.replicas)

        def cost(
            one: Broker, racks: set[str | None] = racks, counts: tuple[Counter[BrokerId], ...] = counts
        ) -> tuple[int, ...]:
            return (one.fenced, one.rack in racks, *(count[one.id] for count in counts))

        # `min` takes the first of equals, so the order of the candidates decides between them.
        chosen.append(min((one for one in candidates if one.domain not in domains), key=cost))
    return tuple(one.id for one in chosen)
