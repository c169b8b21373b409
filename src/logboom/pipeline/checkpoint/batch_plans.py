"""Which plan a batch runs with: recorded on disk before it runs, so that a repeated run does the same even if the file
was edited meanwhile.

Knows plans, the fingerprints of mask keys and files. Must not know Spark or the log; whether a pinned batch may take
another plan is decided in `logboom.pipeline.run.batch_planner`.
"""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.checked import checked, read_checked, with_checksum, write_checked
from logboom.pipeline.checkpoint.files import keep_last, make_dir, write_durably
from logboom.pipeline.plan.dials import DialValues, Value
from logboom.pipeline.plan.nodes import Plan

_PURPOSE: Final = b"logboom: which key a batch was masked with"
KEPT_BATCHES: Final = 200
"""Spark repeats at most the last batch; more pins are kept to show which plan earlier batches ran with."""

_ADVICE: Final = (
    "remove the files of pins/: a batch that has to be repeated then runs with the pipeline's current file, and "
    "its earlier output may appear twice"
)

StreamEnds = Mapping[str, Mapping[str, int]]
"""Stream -> partition -> the offset after its last record."""


class _PinFile(msgspec.Struct, frozen=True):
    plan: str
    keys: dict[str, str] = {}
    """By `KeyRef.id`: a value that distinguishes secret keys and reveals nothing else about them."""
    ends: dict[str, dict[str, int]] | None = None
    """None in pins that earlier versions wrote."""
    generation: int = 0
    tables: dict[str, str] = {}
    dials: dict[str, Value] = {}
    wall_ms: int = 0
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class PinnedPlan:
    """The plan that a batch runs with."""

    plan: Plan
    plan_hash: str
    keys: Mapping[str, str]
    """Fingerprints of the mask keys of its first run, by `KeyRef.id`."""
    ends: StreamEnds | None
    """The end offsets of the plan's output streams before the batch wrote its first record; None in old pins."""
    generation: int
    """How often the batch was pinned again. Readers of edges use it to distinguish the records of different
    attempts."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """The versions of the tables that it runs with, by `TableRef.id`."""
    dials: DialValues = field(default_factory=dict)
    """The positions of changed dials, by name."""
    wall_ms: int = 0
    """The time when the batch began, in milliseconds since 1970; always later than that of the previous batch."""
    is_last: bool = False
    """Whether transforms emit all that they hold, since nothing comes after this batch."""

    @property
    def turned(self) -> Plan:
        """The plan with its dials at their pinned positions."""
        return self.plan.turned(self.dials)


def fingerprints(keys: Mapping[str, bytes]) -> dict[str, str]:
    """Fingerprints of the secret keys; the keys themselves are never in a checkpoint."""
    return {name: hmac.digest(key, _PURPOSE, "sha256").hex()[:16] for name, key in keys.items()}


class BatchPlans:
    """The pins of one pipeline's batches, in its checkpoint."""

    def __init__(self, directory: Path, read_plan: Callable[[str], Plan]) -> None:
        """`read_plan`: a plan from its JSON."""
        self._read_plan = read_plan
        self._batches = directory / "batches"
        self._plans = directory / "plans"
        make_dir(self._batches)
        make_dir(self._plans)

    def pinned(self, batch: int) -> PinnedPlan | None:
        """What a batch is pinned to; None if it has never run."""
        path = self._batches / f"{batch}.json"
        if not path.exists():
            return None
        pin = read_checked(path, _PinFile, _ADVICE)
        kept = self._plans / f"{pin.plan}.plan"
        plan = self._read_plan(checked(kept, kept.read_bytes(), _ADVICE).decode())
        return PinnedPlan(
            plan, pin.plan, pin.keys, pin.ends, pin.generation, pin.tables, pin.dials, pin.wall_ms, pin.is_last
        )

    def pin(
        self,
        batch: int,
        plan: Plan,
        keys: Mapping[str, bytes],
        ends: StreamEnds,
        generation: int = 0,
        tables: Mapping[str, str] | None = None,
        dials: DialValues | None = None,
        wall_ms: int = 0,
        *,
        is_last: bool = False,
    ) -> None:
        """Durably pins a batch to a plan, before any of its records is written; `ends`, `wall_ms`, `is_last` as in
        `PinnedPlan`."""
        name = plan.content_hash()
        kept = self._plans / f"{name}.plan"
        if not kept.exists():
            write_durably(kept, with_checksum(plan.to_json().encode()))
        known_ends = {stream: dict(offsets) for stream, offsets in ends.items()}
        pin = _PinFile(
            name, fingerprints(keys), known_ends, generation, dict(tables or {}), dict(dials or {}), wall_ms, is_last
        )
        write_checked(self._batches / f"{batch}.json", pin)
        keep_last(self._batches, KEPT_BATCHES)

    def wall_ms(self, batch: int) -> int:
        """The time to which a batch is pinned; 0 if it has never run."""
        path = self._batches / f"{batch}.json"
        return read_checked(path, _PinFile, _ADVICE).wall_ms if path.exists() else 0

    def last_name(self) -> str | None:
        """The pipeline's name in the plan of the newest pinned batch."""
        batches = [int(path.stem) for path in self._batches.glob("*.json") if path.stem.isdigit()]
        pin = self.pinned(max(batches)) if batches else None
        return None if pin is None else pin.plan.name
