"""What a broker does for its clients while they can reach it but it reaches no controller.

Its leaderships go to other brokers, and it does not learn of that: an append here waits for a commit that does not
come, for as long as the client waits for an answer. So once the broker has been without a lease for long, clients that
wait are told, again and again, to look for another leader. A front end that gets a share of what clients send, as a
member of a NATS queue group does, then leaves its share to others (`Isolation`).
"""

from collections.abc import Callable, Iterable
from typing import Final

from logboom.broker.disk.maintenance import Pause
from logboom.broker.partition.replica import Partition
from logboom.replication.leadership import LeaseMissed

LEASES: Final = 3
"""For this many leases it waits for a controller: after one others lead, and a change of the controller takes two."""
NAMED_LEASES: Final = 10
"""For this many it is named in Metadata. A client that has no other connection asks nobody else as long as that names
this broker; one of librdkafka ends a broker that it hears of no more, with the requests that wait there."""


class Isolation:
    """Whether this broker has been without a lease for so long that others lead in its place. On the loop."""

    def __init__(self) -> None:
        self.lasts = False
        self._watchers: list[Callable[[], None]] = []

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever it begins or ends."""
        self._watchers.append(callback)

    def missed(self, leases: int) -> None:
        """For how many leases there has been none; 0: there is one."""
        lasts = leases >= LEASES
        if lasts != self.lasts:
            self.lasts = lasts
            for callback in self._watchers:
                callback()


async def send_clients_on(
    partitions: Callable[[], Iterable[Partition]], holds_lease: Callable[[], bool], lease: Pause, isolation: Isolation
) -> None:
    """Runs until it is cancelled; looks once in each `lease`."""
    missed = 0
    while True:
        await lease.over()
        missed = 0 if holds_lease() else missed + 1
        isolation.missed(missed)
        if missed < LEASES:
            continue
        for partition in partitions():
            if partition.role.leads:
                partition.role.leader.replication_step(LeaseMissed())
