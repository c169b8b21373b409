"""How a run ended: what every kind of scenario tells."""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from logboom.sim.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    seed: int
    digest: str
    """Equal for equal runs."""
    events: int
    nodes: int
    simulated_s: float
    violations: tuple[str, ...]
    schedule: Schedule
    """The faults that were planned; those at its end may not have come."""
    faults: Mapping[str, int]
    """How often each fault came."""
    met: Mapping[str, int]
    """What the faults did to the brokers, and what those made of it, and how often (`coverage`)."""
    records_acked: int
    records_final: int
    polls: int
    commits: int
    last_lines: tuple[str, ...]
    """The end of the trace, where something was violated."""


def place_of(error: BaseException) -> str:
    """The last line of Logboom's own on the way to an error."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "logboom" in frame.filename]
    return f"{frames[-1].filename.rpartition('logboom/')[2]}:{frames[-1].lineno}" if frames else "elsewhere"
