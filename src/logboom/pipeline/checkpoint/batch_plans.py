"""Which plan a batch runs with: fixed on disk before it runs, so that running it again does the same after an edit.

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
"""Spark runs at most the last batch again; more are kept to answer what a batch ran with."""

_ADVICE: Final = (
    "remove the files of pins/: a batch that has to run again then does so with the pipeline as it is in its file, and "
    "what it wrote before may be there twice"
)

StreamEnds = Mapping[str, Mapping[str, int]]
"""Stream -> partition -> the offset behind its last record."""


class _PinFile(msgspec.Struct, frozen=True):
    plan: str
    keys: dict[str, str] = {}
    """By `KeyRef.id`: what tells one secret key from another, and tells nothing else."""
    ends: dict[str, dict[str, int]] | None = None
    """None in pins that earlier versions wrote."""
    generation: int = 0
    tables: dict[str, str] = {}
    dials: dict[str, Value] = {}
    wall_ms: int = 0


@dataclass(frozen=True, slots=True)
class PinnedPlan:
    """The plan that a batch runs with."""

    plan: Plan
    plan_hash: str
    keys: Mapping[str, str]
    """Fingerprints of the mask keys that it ran with first, by `KeyRef.id`."""
    ends: StreamEnds | None
    """Where the plan's output streams ended before the batch could write the first record; None in old pins."""
    generation: int
    """How often the batch was pinned again. Readers of edges tell the records of one generation from another's."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """The versions of the tables that it runs with, by `TableRef.id`."""
    dials: DialValues = field(default_factory=dict)
    """Where the dials stand that were turned, by name."""
    wall_ms: int = 0
    """The time of day when the batch was begun, in milliseconds since 1970, and later than that of the batch before."""

    @property
    def turned(self) -> Plan:
        """What the batch does: the plan with its dials where they stand."""
        return self.plan.turned(self.dials)


def fingerprints(keys: Mapping[str, bytes]) -> dict[str, str]:
    """Of secret keys, which are in no checkpoint."""
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
        """What a batch is pinned to; None where it has never run."""
        path = self._batches / f"{batch}.json"
        if not path.exists():
            return None
        pin = read_checked(path, _PinFile, _ADVICE)
        kept = self._plans / f"{pin.plan}.plan"
        plan = self._read_plan(checked(kept, kept.read_bytes(), _ADVICE).decode())
        return PinnedPlan(plan, pin.plan, pin.keys, pin.ends, pin.generation, pin.tables, pin.dials, pin.wall_ms)

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
    ) -> None:
        """Durably pins a batch to a plan, before anything of it is written; `ends`, `wall_ms` as in `PinnedPlan`."""
        name = plan.content_hash()
        kept = self._plans / f"{name}.plan"
        if not kept.exists():
            write_durably(kept, with_checksum(plan.to_json().encode()))
        known_ends = {stream: dict(offsets) for stream, offsets in ends.items()}
        pin = _PinFile(name, fingerprints(keys), known_ends, generation, dict(tables or {}), dict(dials or {}), wall_ms)
        write_checked(self._batches / f"{batch}.json", pin)
        keep_last(self._batches, KEPT_BATCHES)

    def wall_ms(self, batch: int) -> int:
        """The time of day that a batch is pinned to; 0 where it has never run."""
        path = self._batches / f"{batch}.json"
        return read_checked(path, _PinFile, _ADVICE).wall_ms if path.exists() else 0

    def last_name(self) -> str | None:
        """The name of the pipeline whose plan the newest pinned batch has."""
        batches = [int(path.stem) for path in self._batches.glob("*.json") if path.stem.isdigit()]
        pin = self.pinned(max(batches)) if batches else None
        return None if pin is None else pin.plan.name
