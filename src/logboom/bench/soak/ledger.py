"""What was sent, acked and read in every partition, and what may not be: lost, doubled, out of order, skipped.

Each partition has one producer that numbers its records from 0, so record n must stand at offset n: a lost record
pulls the later ones forward, a doubled one pushes them back. Knows numbers; no client, no clock.
"""

import threading
from collections import Counter
from dataclasses import dataclass, field

FAULTS_KEPT = 100
Place = tuple[str, int]


@dataclass
class _Partition:
    sent: int = 0
    acked: int = 0
    audited: int = 0
    groups: dict[str, int] = field(default_factory=dict)


class Ledger:
    """Shared by all workers of a soak; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partitions: dict[Place, _Partition] = {}
        self.faults: list[str] = []
        """What may not be, the first hundred."""
        self.fault_count = 0
        self.counts: Counter[str] = Counter()
        """What may be: redeliveries, jumps of the slow reader, rebalances, streams made and removed."""

    def _at(self, place: Place) -> _Partition:
        return self._partitions.setdefault(place, _Partition())

    def fault(self, sentence: str) -> None:
        """Something that may not be."""
        with self._lock:
            self._fault(sentence)

    def _fault(self, sentence: str) -> None:
        self.fault_count += 1
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(sentence)

    def count(self, what: str, by: int = 1) -> None:
        """Something that may be."""
        with self._lock:
            self.counts[what] += by

    def next_number(self, place: Place) -> int:
        """The number of the next record; it counts as sent from now on."""
        with self._lock:
            partition = self._at(place)
            partition.sent += 1
            return partition.sent - 1

    def acked(self, place: Place, number: int, offset: int) -> None:
        """Record `number` was acked at `offset`. With one producer a partition they must be equal and in order."""
        with self._lock:
            partition = self._at(place)
            if number != partition.acked:
                self._fault(f"{place}: record {number} was acked after {partition.acked - 1}")
            if offset not in (number, -1):  # -1: a retry that the broker knew already tells no offset
                self._fault(f"{place}: record {number} was acked at offset {offset}")
            partition.acked = max(partition.acked, number + 1)

    def read(self, place: Place, offset: int, number: int, who: str) -> None:
        """Any reader: the record at `offset` is number `offset`."""
        if number != offset:
            what = "doubled" if number < offset else "lost"
            self.fault(f"{place}: {who} found record {number} at offset {offset}: something before it was {what}")

    def audited(self, place: Place, offset: int) -> None:
        """The auditor reads every offset once, in order."""
        with self._lock:
            partition = self._at(place)
            if offset != partition.audited:
                self._fault(f"{place}: offset {offset} came after {partition.audited - 1}")
            partition.audited = offset + 1

    def processed(self, group: str, place: Place, offset: int) -> None:
        """A group may see a record again after a rebalance or a restart, and may not skip one."""
        with self._lock:
            partition = self._at(place)
            reached = partition.groups.get(group, 0)
            if offset > reached:
                self._fault(f"{place}: {group} skipped from offset {reached} to {offset}")
            elif offset < reached:
                self.counts["redelivered"] += 1
            partition.groups[group] = max(reached, offset + 1)

    def waiting(self, place: Place) -> int:
        """Records sent and not acked yet."""
        with self._lock:
            partition = self._at(place)
            return partition.sent - partition.acked

    def total_acked(self) -> int:
        """Records acked in all partitions."""
        with self._lock:
            return sum(partition.acked for partition in self._partitions.values())

    def ends(self) -> dict[Place, int]:
        """How many records each partition must hold, or have held, once everything sent is acked."""
        with self._lock:
            return {place: partition.sent for place, partition in self._partitions.items()}

    def behind(self, groups: dict[str, tuple[str, ...]]) -> list[str]:
        """Readers that have not reached the end yet; `groups` names the streams of each group."""
        with self._lock:
            found = []
            for place, partition in self._partitions.items():
                if partition.acked < partition.sent:
                    found.append(f"{place}: {partition.sent - partition.acked} records are not acked")
                if partition.audited < partition.sent:
                    found.append(f"{place}: the auditor is at {partition.audited} of {partition.sent}")
                for group, streams in groups.items():
                    reached = partition.groups.get(group, 0)
                    if place[0] in streams and reached < partition.sent:
                        found.append(f"{place}: {group} is at {reached} of {partition.sent}")
            return found
