"""Brokers that may just have died: what clients are told about them in addition to the metadata.

The metadata learns of the death of a broker when its lease is over, a second later. Clients ask before that, because
their connections broke, and after it. The answers decide for how long a producer on librdkafka makes no progress:

- An answer that names the dead leader still ends its quick search for a leader, and it looks again only with its next
  round, which comes every second. If a partition has no leader, it asks again after 100 ms, 200 ms and so on. So a
  leader to which this broker has just lost its connections is reported as none (LEADER_NOT_AVAILABLE), as long as the
  metadata may not know of its death yet; after that the metadata is right.
- The quick search begins with a request that failed at the leader. A producer that had no request in flight looks only
  with its rounds, so Metadata waits a moment for the next leader before it reports that there is none
  (`apis.metadata`).
- An answer that names the new leader, but no longer the broker of the old one, makes librdkafka 2.16 remove that broker
  before it has moved the partition, which then belongs to no broker until the next round. So a broker is named for a
  little longer than it is alive. It leads nothing then; clients that try it find nobody there, and try the next one.

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
        """Whether a broker was fenced so recently that clients must still be told its address."""
        fenced_s = self._fenced_s.get(broker)
        return fenced_s is not None and self._clock.monotonic_s() - fenced_s < _NAMED_S

    def lost_lately(self, broker: BrokerId) -> bool:
        """Whether this broker has lost its connections to a broker, and the metadata may not know of that yet."""
        lost_s = self._peers.lost_for_s(broker)
        return lost_s is not None and lost_s < _LEASES * self._lease_s()
