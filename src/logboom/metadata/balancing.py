"""Which replicas to move so that a broker has none, or all brokers have their share.

The rules are those of `placement`: no two replicas of a partition in one failure domain, as many racks as before,
evenly spread replicas and leaderships. Nothing is moved without need, because moved data costs the disks and the
network of two brokers.

Pure and repeatable: the same arguments give the same moves. The results are wishes, for `reassignment`.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from logboom.base.ids import BrokerId
from logboom.metadata.assignment import Replicas

Partition: TypeAlias = tuple[str, int]
"""A stream's name, and the partition's number."""


@dataclass(frozen=True, slots=True)
class Room:
    """A broker as a place for replicas."""

    domain: str
    """What fails together with it."""
    rack: str | None
    takes_more: bool
    """Whether it may get replicas that it does not have: it is alive, and does not leave."""


def evacuate(
    placed: Mapping[Partition, Replicas], rooms: Mapping[BrokerId, Room], leaving: Collection[BrokerId]
) -> dict[Partition, Replicas]:
    """New replicas for every partition that has some on brokers that leave: the least loaded broker takes the place of
    each. A partition for which there is no other broker is left out."""
    plan = _Plan(placed, rooms)
    for partition in sorted(placed):
        for source in [one for one in placed[partition] if one in leaving]:
            fits = [
                one
                for one, room in rooms.items()
                if room.takes_more and one not in leaving and plan.fits(partition, source, one)
            ]
            if fits:
                plan.move(partition, source, min(fits, key=lambda one: plan.cost(partition, source, one)))
    return {
        partition: replicas for partition, replicas in plan.changed() if not any(one in leaving for one in replicas)
    }


def level(placed: Mapping[Partition, Replicas], rooms: Mapping[BrokerId, Room]) -> dict[Partition, Replicas]:
    """New replicas for the partitions that have to move so that brokers differ by one replica at most, and by one
    partition that they should lead, as far as the rules let them."""
    plan = _Plan(placed, rooms)
    while plan.move_one():
        pass
    while plan.turn_one():
        pass
    return dict(plan.changed())


class _Plan:
    """Where replicas are after the moves so far."""

    def __init__(self, placed: Mapping[Partition, Replicas], rooms: Mapping[BrokerId, Room]) -> None:
        self._before = placed
        self._now = dict(placed)
        self._rooms = rooms
        self._held: dict[BrokerId, dict[Partition, None]] = {one: {} for one in sorted(rooms)}
        self._preferred: Counter[BrokerId] = Counter()
        for partition in sorted(placed):
            self._preferred[placed[partition][0]] += 1
            for one in placed[partition]:
                self._held.setdefault(one, {})[partition] = None

    def changed(self) -> Iterator[tuple[Partition, Replicas]]:
        """The partitions whose replicas are other ones, or in another order, than at the beginning."""
        return ((partition, now) for partition, now in self._now.items() if now != self._before[partition])

    def fits(self, partition: Partition, source: BrokerId, target: BrokerId) -> bool:
        """Whether a replica may move: to a broker that has none, nor shares its failure domain with one that stays."""
        others = [one for one in self._now[partition] if one != source]
        domain = self._rooms[target].domain
        return target not in others and target != source and all(self._domain(one) != domain for one in others)

    def cost(self, partition: Partition, source: BrokerId, target: BrokerId) -> tuple[int, int, int, int]:
        """The cost of a target, the smaller the better: it keeps the racks apart, has few replicas, should lead few
        partitions."""
        fewer_racks = self._racks(partition, source, target) < self._racks(partition, source, source)
        leads = self._preferred[target] if self._now[partition][0] == source else 0
        return (fewer_racks, len(self._held[target]), leads, target)

    def move(self, partition: Partition, source: BrokerId, target: BrokerId) -> None:
        """The target takes the place of the source, in the order too."""
        replicas = self._now[partition]
        if replicas[0] == source:
            self._preferred[source] -= 1
            self._preferred[target] += 1
        self._now[partition] = tuple(target if one == source else one for one in replicas)
        del self._held[source][partition]
        self._held[target][partition] = None

    def move_one(self) -> bool:
        """Move a replica from a broker with many to one with at least two fewer. False if none can move."""
        by_load = sorted(self._held, key=lambda one: (len(self._held[one]), one))
        targets = [one for one in by_load if one in self._rooms and self._rooms[one].takes_more]
        for source in reversed(by_load):
            for target in targets:
                if len(self._held[source]) - len(self._held[target]) < 2:
                    break
                partition = self._movable(source, target)
                if partition is not None:
                    self.move(partition, source, target)
                    return True
        return False

    def _movable(self, source: BrokerId, target: BrokerId) -> Partition | None:
        for partition in self._held[source]:
            racks_kept = self._racks(partition, source, target) >= self._racks(partition, source, source)
            if racks_kept and self.fits(partition, source, target):
                return partition
        return None

    def turn_one(self) -> bool:
        """Let another replica of a partition come first, one that should lead at least two fewer. False if none
        can."""
        for source in sorted(self._held, key=lambda one: (-self._preferred[one], one)):
            for partition in self._held[source]:
                replicas = self._now[partition]
                if replicas[0] != source:
                    continue
                target = min(replicas, key=lambda one: (self._preferred[one], one))
                if self._preferred[source] - self._preferred[target] >= 2:
                    self._now[partition] = (target, *(one for one in replicas if one != target))
                    self._preferred[source] -= 1
                    self._preferred[target] += 1
                    return True
        return False

    def _domain(self, broker: BrokerId) -> str | None:
        room = self._rooms.get(broker)
        return None if room is None else room.domain

    def _racks(self, partition: Partition, source: BrokerId, target: BrokerId) -> int:
        """Racks that the replicas are in when the target has taken the source's place."""
        after = (target if one == source else one for one in self._now[partition])
        return len({self._rooms[one].rack if one in self._rooms else None for one in after})
