"""Which plan a batch runs with: fixed on disk before it runs, so that running it again does the same after an edit.

Knows plans and files. Must not know Spark.
"""

from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.files import keep_last, make_dir, write_durably
from logboom.pipeline.plan import Plan

KEPT_BATCHES: Final = 200
"""Spark runs at most the last batch again; more are kept for whoever asks what happened."""


class _Pin(msgspec.Struct, frozen=True):
    plan: str


class PinBook:
    """Pins of one pipeline, in its checkpoint."""

    def __init__(self, directory: Path) -> None:
        self._batches = directory / "batches"
        self._plans = directory / "plans"
        make_dir(self._batches)
        make_dir(self._plans)

    def pin(self, batch: int, plan: Plan) -> Plan:
        """The plan this batch was pinned to; pins `plan` where the batch has never run."""
        path = self._batches / f"{batch}.json"
        if path.exists():
            pinned = msgspec.json.decode(path.read_bytes(), type=_Pin)
            return Plan.from_json((self._plans / f"{pinned.plan}.plan").read_text())
        name = plan.content_hash()
        kept = self._plans / f"{name}.plan"
        if not kept.exists():
            write_durably(kept, plan.to_json().encode())
        write_durably(path, msgspec.json.encode(_Pin(name)))
        keep_last(self._batches, KEPT_BATCHES)
        return plan
