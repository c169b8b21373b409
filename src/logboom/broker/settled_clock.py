"""The time by which records, offsets and producers age: the wall clock, as far as it can be believed.

What is deleted because it is old cannot be brought back, and a wall clock that is set wrong makes everything old at
once. So this clock is behind the wall clock in two cases:

- The wall clock jumped forward: that counts only once it has lasted for a day. Until then time goes on from before the
  jump, by the monotonic clock, and an operator who sets the clock right again has lost nothing. A process that starts
  goes on from what the one before it has noted (`NotedTime`): a wall clock that is far ahead of that has jumped, as far
  as anybody can tell. If nothing was noted, the wall clock is taken as it is.
- It is ahead of the clocks of most brokers of the cluster, which the controller tells with each lease.

A wall clock that jumped back, or is behind those of the others, counts at once: that makes everything younger. Kafka
deletes by the wall clock alone.
"""

from typing import Final, NamedTuple

from logboom.base.ports import Clock
from logboom.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

JUMP_MS: Final = MINUTE_MS
"""What is less is no jump: the two clocks run apart a little, and time servers step by some seconds."""
_DRIFT: Final = 0.0002
"""How far the clocks may run apart while nobody looks; quartz is off by half of that."""
SETTLES_AFTER_S: Final = DAY_MS / SECOND_MS
DOWN_MS: Final = HOUR_MS
"""Between two processes. What is less is no jump: a broker may be down for a while. More than that delays deletions by
as much, for a day."""
FRESH_S: Final = 0.01
"""An answer may be as old as this: each append asks."""


class _Reading(NamedTuple):
    """What a wall clock showed at one moment of the monotonic clock."""

    wall_ms: int
    at_s: float

    def at(self, now_s: float) -> int:
        """What it shows by now if it has not jumped."""
        return self.wall_ms + int((now_s - self.at_s) * SECOND_MS)

    def is_behind(self, wall_ms: int, now_s: float) -> bool:
        """Whether it is so far behind this time that drift alone does not explain it."""
        return wall_ms > self.at(now_s) + JUMP_MS + (now_s - self.at_s) * SECOND_MS * _DRIFT


class NotedTime(NamedTuple):
    """What a process notes for the next one in its place."""

    own_ms: int
    """The time by the clocks of this machine alone, in milliseconds since 1970."""
    jumped_for_s: float
    """For how long the wall clock had been ahead of it by a jump that did not count yet; 0 if it was not."""


class SettledClock:
    """See the module. For any thread: what one replaces, another finds whole."""

    __slots__ = ("_clock", "_jumped_at_s", "_last", "_others", "_told")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = _Reading(clock.wall_ms(), clock.monotonic_s())
        """The last reading before the jump that has not settled yet, else the last one of all."""
        self._jumped_at_s: float | None = None
        self._others: _Reading | None = None
        self._told = self._last

    def others_show(self, wall_ms: int) -> None:
        """The clocks of most brokers show this now; 0 if that is not known."""
        if wall_ms:
            self._others = _Reading(wall_ms, self._clock.monotonic_s())

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, at most the wall clock's."""
        now_s, told = self._clock.monotonic_s(), self._told
        if now_s - told.at_s < FRESH_S:
            return told.wall_ms
        now_ms, others = self.own_ms(), self._others
        if others is not None and others.is_behind(now_ms, now_s):
            now_ms = others.at(now_s)
        self._told = _Reading(now_ms, now_s)
        return now_ms

    def own_ms(self) -> int:
        """The same by the clocks of this machine alone: what the other brokers are told."""
        wall_ms, now_s = self._clock.wall_ms(), self._clock.monotonic_s()
        return self._last.at(now_s) if self._is_jump(wall_ms, now_s) else wall_ms

    def noted(self) -> NotedTime:
        """What the next process goes on from."""
        own_ms, jumped_at_s = self.own_ms(), self._jumped_at_s
        return NotedTime(own_ms, 0.0 if jumped_at_s is None else self._clock.monotonic_s() - jumped_at_s)

    def resume(self, noted: NotedTime) -> None:
        """Go on from what an earlier process noted. Before anything ages by this clock."""
        wall_ms, now_s = self._clock.wall_ms(), self._clock.monotonic_s()
        if wall_ms - noted.own_ms > (JUMP_MS if noted.jumped_for_s else DOWN_MS):
            self._told = self._last = _Reading(noted.own_ms, now_s)
            self._jumped_at_s = now_s - noted.jumped_for_s

    def _is_jump(self, wall_ms: int, now_s: float) -> bool:
        """Whether the wall clock has jumped to this time, and that does not count yet."""
        if self._last.is_behind(wall_ms, now_s):
            jumped_at_s = self._jumped_at_s = now_s if self._jumped_at_s is None else self._jumped_at_s
            if now_s - jumped_at_s < SETTLES_AFTER_S:
                return True
        self._last, self._jumped_at_s = _Reading(wall_ms, now_s), None
        return False

    def held_back_ms(self) -> int:
        """How far it is behind a wall clock that cannot be believed; 0 if it is not."""
        now_ms = self.now_ms()
        behind_ms = self._clock.wall_ms() - now_ms
        return behind_ms if behind_ms >= JUMP_MS else 0
