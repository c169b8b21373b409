"""Which faults a run has, and when: planned from the seed before the run begins, so that a run can be had with fewer.

Each victim, a node or the network or whoever administers the cluster, has a lane: its faults come one after the other.
A fault does not begin before its time, but may begin later where the one before it took longer. What a fault draws it
draws from chance of its own (`PlannedFault.number`), so leaving one out changes nothing about what the others are; that
is what makes the search for the fewest faults that still break a promise worth its time (`shrinking`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Generic, Self, TypeVar

from logboom.base.errors import LogboomError
from logboom.sim.simulation import Simulation

LaneType = TypeVar("LaneType", bound="Lane", contravariant=True)


@dataclass(frozen=True)
class FaultKind(Generic[LaneType]):
    """One way in which something goes wrong."""

    act: Callable[[LaneType], Awaitable[None]]
    """Hurts the victim, and leaves it so that it works again or is told to; takes `Lane.length_s` of time for it."""
    lasts_max_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault of one run."""

    at_s: float
    """When it may begin, in simulated seconds after the first one might."""
    lane: str
    """What it happens to: the name of a node, or one of the names of the scenario's other lanes."""
    name: str
    length_s: float
    number: int
    """Its place in the whole plan of its lane, from which its chance is drawn."""


Schedule = tuple[PlannedFault, ...]


def plan(
    chance: Random,
    lane: str,
    kinds: Mapping[str, FaultKind[Any]],
    until_s: float,
    pause_max_s: float,
    stretch: float = 1.0,
) -> Schedule:
    """The faults of one lane, at least one: any kind is as likely, each begins after the one before it has ended.

    Each lasts up to `stretch` times as long as its kind says, and as likely twice as long as half as long.
    """
    planned: list[PlannedFault] = []
    at_s = chance.uniform(0, min(pause_max_s, until_s))
    while kinds and at_s < until_s:
        name = chance.choice(tuple(kinds))
        length_s = chance.uniform(0, kinds[name].lasts_max_s)
        if stretch > 1:
            length_s *= stretch ** chance.random()
        planned.append(PlannedFault(at_s, lane, name, length_s, len(planned)))
        at_s += length_s + chance.uniform(0, pause_max_s)
    return tuple(planned)


class Lane:
    """The faults of one victim, one after the other. Life: that of the run."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.chance = simulation.fork(f"lane/{name}")
        """Of the fault that is at work; of its own before the first one."""
        self.length_s = 0.0
        """How long the fault that is at work is to last."""
        self.counts: dict[str, int] = {}
        """How often each fault came."""

    async def run(self, schedule: Schedule, kinds: Mapping[str, FaultKind[Self]], until_s: float) -> None:
        """Go through the faults of this lane in a schedule; none begins `until_s` seconds from now or later."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for planned in schedule:
            if planned.lane != self.name:
                continue
            await asyncio.sleep(began_s + planned.at_s - loop.time())
            if loop.time() - began_s >= until_s:
                break
            self.chance = self.simulation.fork(f"fault/{self.name}/{planned.number}")
            self.length_s = planned.length_s
            self.counts[planned.name] = self.counts.get(planned.name, 0) + 1
            self.simulation.scheduler.record("trouble", f"{self.name} {planned.name}")
            await kinds[planned.name].act(self)

    async def last(self) -> None:
        """Let it hurt for as long as the fault is to last."""
        await asyncio.sleep(self.length_s)

    async def pause(self, max_s: float) -> None:
        """A moment that is not a part of what was planned."""
        await asyncio.sleep(self.chance.uniform(0, max_s))


class ScheduleError(LogboomError):
    """A file does not hold a schedule; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A run that can be had again: what a schedule file holds."""

    seed: int
    nodes: int
    troubled_s: float
    faults: Schedule
    stretch: float = 1.0
    violations: Sequence[str] = field(default=())
    """What the run broke when it was written down; for people."""

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> "Replay":
        """From a file. Raises ScheduleError."""
        try:
            faults = tuple(
                PlannedFault(
                    at_s=float(one["at_s"]),
                    lane=str(one["lane"]),
                    name=str(one["name"]),
                    length_s=float(one["length_s"]),
                    number=int(one["number"]),
                )
                for one in value["faults"]
            )
            return cls(
                seed=int(value["seed"]),
                nodes=int(value["nodes"]),
                troubled_s=float(value["troubled_s"]),
                faults=faults,
                stretch=float(value.get("stretch", 1)),
                violations=tuple(map(str, value.get("violations", ()))),
            )
        except KeyError as error:
            raise ScheduleError(f"{error} is missing") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise ScheduleError(str(error)) from error
