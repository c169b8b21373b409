"""What a leader knows of its followers: which processes they are, and since when each was not caught up.

A follower is caught up at a moment if it has synced everything that the leader's log held then. What counts is the
time, not the number of records: a follower that is some thousand records behind and as fast as the leader is in sync,
one that has stopped is not (KIP-16).

Under a load that never pauses no report of a follower has everything that the leader's log holds by then. So where the
log ended at a report is kept until a later report has reached it, and the follower was caught up at the time of the
former. The reports between the two do not replace it: a follower reports while its next records are on their way, and
each of its reports may be behind where the log ended at the one just before.
"""

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from logboom.base.ids import BrokerEpoch, BrokerId, Offset

_UNKNOWN: Final = BrokerEpoch(-1)


@dataclass(slots=True)
class _Follower:
    caught_up_s: float
    broker_epoch: BrokerEpoch = _UNKNOWN
    silent: bool = False
    """Whether it had been silent for some time when it was looked at last."""
    goal: tuple[Offset, float] | None = None
    """Where the leader's log ended at some report, and when: not reached yet."""


class Followers:
    """See the module. Life: that of the partition; `start` begins a leadership."""

    __slots__ = ("_followers", "_lag_max_s")

    def __init__(self, lag_max_s: float) -> None:
        self._lag_max_s = lag_max_s
        self._followers: dict[BrokerId, _Follower] = {}

    def start(self, followers: Iterable[BrokerId], now_s: float) -> None:
        """A leadership begins. Nobody has fetched yet, so each one gets the whole time to do so."""
        self._followers = {replica: _Follower(caught_up_s=now_s) for replica in followers}

    def keep(self, replicas: frozenset[BrokerId]) -> None:
        """Forget the others."""
        self._followers = {replica: one for replica, one in self._followers.items() if replica in replicas}

    def begin_anew(self, replica: BrokerId) -> None:
        """A follower may have another log by now: its pace is not known before it has reported again."""
        one = self._followers.get(replica)
        if one is not None:
            one.goal = None

    def fetched(
        self, replica: BrokerId, broker_epoch: BrokerEpoch, durable_end: Offset, *, log_end: Offset, now_s: float
    ) -> float:
        """A follower has synced below `durable_end`, at a moment when the leader's log ended at `log_end`. Returns how
        long ago the log ended at what this report reaches; infinite where it reaches nothing that was waited for."""
        one = self._followers.setdefault(replica, _Follower(caught_up_s=-math.inf))
        if broker_epoch != one.broker_epoch:
            self.begin_anew(replica)
            one.broker_epoch = broker_epoch
        if durable_end >= log_end:
            one.caught_up_s, one.goal = now_s, None
            return 0.0
        reached = one.goal if one.goal is not None and durable_end >= one.goal[0] else None
        if one.goal is None or reached is not None:
            one.goal = log_end, now_s
        if reached is None:
            return math.inf
        one.caught_up_s = max(one.caught_up_s, reached[1])
        return now_s - reached[1]

    def looked_at(
        self, durable_ends: Mapping[BrokerId, Offset], silent: Container[BrokerId], *, log_end: Offset, now_s: float
    ) -> None:
        """A follower that has everything now is caught up now, although it has nothing to fetch: it is late only if it
        does not get what is written from now on. Unless it was `silent` before too: then nobody knows whether it still
        could."""
        for replica, one in self._followers.items():
            was_silent, one.silent = one.silent, replica in silent
            if durable_ends.get(replica, -1) >= log_end and not (was_silent and one.silent):
                one.caught_up_s = max(one.caught_up_s, now_s)

    def broker_epoch(self, replica: BrokerId) -> BrokerEpoch | None:
        """The broker epoch of the process that fetched last; None if there was no fetch in this leadership."""
        one = self._followers.get(replica)
        return None if one is None or one.broker_epoch == _UNKNOWN else one.broker_epoch

    def lagging(self, replicas: Iterable[BrokerId], now_s: float) -> frozenset[BrokerId]:
        """Those of `replicas` that have not been caught up for longer than the limit, as of the last look at them."""
        return frozenset(replica for replica in replicas if self._is_late(self._followers.get(replica), now_s))

    def not_caught_up_s(self, replica: BrokerId, now_s: float) -> float:
        """For how long it was not caught up; infinite where that was never seen."""
        one = self._followers.get(replica)
        return math.inf if one is None else now_s - one.caught_up_s

    def _is_late(self, one: _Follower | None, now_s: float) -> bool:
        return one is None or now_s - one.caught_up_s > self._lag_max_s
