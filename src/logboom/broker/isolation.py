"""What a broker does for its clients that reach it while it reaches no controller.

Its leaderships go to others, and it hears nothing of that: what is appended here waits for a commit that does not come,
for as long as the client waits for an answer. So those who wait are sent to look for another leader, again and again,
once the broker has been without a lease for long.
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


async def send_clients_on(
    partitions: Callable[[], Iterable[Partition]], holds_lease: Callable[[], bool], lease: Pause
) -> None:
    """Runs until it is cancelled; looks once in each `lease`."""
    missed = 0
    while True:
        await lease.over()
        missed = 0 if holds_lease() else missed + 1
        if missed < LEASES:
            continue
        for partition in partitions():
            if partition.role.leads:
                partition.role.leader.replication_step(LeaseMissed())
