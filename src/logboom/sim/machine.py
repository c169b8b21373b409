"""The Clock and Ids ports in simulated time and under a seed."""

from random import Random
from typing import Final
from uuid import UUID

from logboom.sim.scheduler import Scheduler

BEGINNING_MS: Final = 1_767_225_600_000
"""2026-01-01 UTC, the wall clock's time when the simulation's is 0."""


class SimClock:
    """The Clock port."""

    def __init__(self, scheduler: Scheduler, *, rate: float = 1.0) -> None:
        """`rate`: how many of its seconds pass in one second; quartz is off by up to 100 millionths."""
        self.wall_offset_ms = 0
        """How far the wall clock is off; it may jump."""
        self._scheduler = scheduler
        self._rate = rate

    def wall_ms(self) -> int:
        return BEGINNING_MS + self.wall_offset_ms + int(self._scheduler.now_s * self._rate * 1_000)

    def monotonic_s(self) -> float:
        return self._scheduler.now_s * self._rate

    def monotonic_ns(self) -> int:
        return int(self._scheduler.now_s * self._rate * 1_000_000_000)


class SimIds:
    """The Ids port: as random as the real one, and the same for the same seed."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def uuid(self) -> UUID:
        return UUID(int=self._chance.getrandbits(128), version=4)

    def below(self, bound: int) -> int:
        return self._chance.randrange(bound)
