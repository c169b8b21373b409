"""Which brokers are alive, as their controller sees it: a lease each, renewed by heartbeats. Pure; time is an argument.

A broker counts its own lease from the moment it sent the heartbeat that was answered (`BrokerLease`), the controller
from the moment it received it (`BrokerLeases`), and ends it later by a margin for clocks of different rates. So the
broker knows that its lease is over before the controller gives its partitions to others, and no two leaders ack at a
time (Gray and Cheriton, "Leases", 1989). Leases are in no log: a new controller gives every broker a whole one.

Times are seconds of a clock that never goes back and goes on while the machine sleeps.
"""

from collections.abc import Iterable
from typing import Final

from logboom.base.ids import BrokerId

CLOCK_RATE_MARGIN: Final = 0.1
"""How much faster or slower than another one a broker's clock may run, as a share."""


class BrokerLeases:
    """The controller's view. Life: that of one controllership."""

    def __init__(self, lease_s: float) -> None:
        assert lease_s > 0
        self._length_s = lease_s * (1 + CLOCK_RATE_MARGIN)
        self._ends_s: dict[BrokerId, float] = {}

    def begin(self, brokers: Iterable[BrokerId], now_s: float) -> None:
        """This controllership begins: all unfenced brokers have a whole lease, since nobody knows when theirs began."""
        self._ends_s = dict.fromkeys(brokers, now_s + self._length_s)

    def renew_all(self, now_s: float) -> None:
        """Give a whole lease to every broker that has one, over or not: the controller was paused, and has heard from
        nobody in that time. A lease that ends later than it must is safe."""
        self.begin(tuple(self._ends_s), now_s)

    def renew(self, broker: BrokerId, now_s: float) -> None:
        """A heartbeat of a registered broker was received at `now_s`; a later one may be known already."""
        self._ends_s[broker] = max(self._ends_s.get(broker, now_s), now_s + self._length_s)

    def drop(self, broker: BrokerId) -> None:
        """A broker was fenced or left."""
        self._ends_s.pop(broker, None)

    def expired(self, now_s: float) -> tuple[BrokerId, ...]:
        """Brokers whose leases are over, to be fenced, by id."""
        return tuple(sorted(broker for broker, end_s in self._ends_s.items() if end_s <= now_s))

    @property
    def next_end_s(self) -> float | None:
        """When the next lease ends."""
        return min(self._ends_s.values(), default=None)


class BrokerLease:
    """A broker's own view of its lease. Life: that of one registration."""

    __slots__ = ("_end_s", "_length_s")

    def __init__(self, lease_s: float) -> None:
        assert lease_s > 0
        self._length_s = lease_s
        self._end_s = float("-inf")

    def renewed(self, sent_s: float) -> None:
        """The controller answered the heartbeat that was sent at `sent_s`. Answers may come out of order."""
        self._end_s = max(self._end_s, sent_s + self._length_s)

    def end(self) -> None:
        """This broker no longer acts as a leader."""
        self._end_s = float("-inf")

    def holds(self, now_s: float) -> bool:
        """Whether this broker may act as a leader."""
        return now_s < self._end_s

    @property
    def end_s(self) -> float:
        """When it ends, unless it is renewed."""
        return self._end_s
