"""Brokers that may just have gone: what clients are to be told of them, beside what the metadata says.

The metadata learns of the death of a broker when its lease is over, a second later. Clients ask before that, since
their connections broke, and after it. How long a producer on librdkafka stands still is decided by what it is told:

- An answer that names the dead leader still ends its quick search for a leader, and it looks again only with its next
  round, which comes every second. Where a partition has no leader, it asks again after 100 ms, 200 ms and so on. So a
  leader to which this broker has just lost its connections is told as none (LEADER_NOT_AVAILABLE), as long as the
  metadata may not know of its death yet; after that the metadata is right.
- The quick search begins with a request that failed with the leader. A producer that had none under way looks with its
  rounds alone, so Metadata waits a moment for the next leader before it says that there is none (`apis.metadata`).
- An answer that names the new leader, and the broker of the old one no more, makes it end that broker before it has
  moved the partition, which then belongs to nobody until the next round (librdkafka 2.16). So a broker is named
  a little longer than it is alive. It leads nothing then; clients that try it find nobody, and try the next.

Knows brokers by id; on the loop.
"""

from collections.abc import Callable
from typing import Final

from logboom.base.ids import BrokerId
from logboom.base.ports import Clock
from logboom.broker.peers import Peers
from logboom.metadata import ImageDelta

_LEASES: Final = 2
"""For how many leases a lost connection counts: that of the broker, and one that a new controller waits again."""
_NAMED_S: Final = 5.0
"""For how long a fenced broker is named: some rounds of clients that look once a second."""


class SuspectedBrokers:
    """See the module. Told of every change of the image."""

    def __init__(self, peers: Peers, clock: Clock, lease_s: Callable[[], float]) -> None:
        self._peers = peers
        self._clock = clock
        self._lease_s = lease_s
        self._fenced_s: dict[BrokerId, float] = {}

    def image_changed(self, delta: ImageDelta) -> None:
        """Take note of brokers that were fenced."""
        before, after = delta.before.brokers, delta.after.brokers
        if before is after:
            return
        for broker, was in before.items():
            now = after.get(broker)
            if now is None or not now.fenced:
                self._fenced_s.pop(broker, None)
            elif not was.fenced:
                self._fenced_s[broker] = self._clock.monotonic_s()

    def fenced_lately(self, broker: BrokerId) -> bool:
        """Whether a broker was fenced so short a time ago that clients have to be told still where it was."""
        fenced_s = self._fenced_s.get(broker)
        return fenced_s is not None and self._clock.monotonic_s() - fenced_s < _NAMED_S

    def lost_lately(self, broker: BrokerId) -> bool:
        """Whether a broker has gone from here, and the metadata may not know of it yet."""
        lost_s = self._peers.lost_for_s(broker)
        return lost_s is not None and lost_s < _LEASES * self._lease_s()
