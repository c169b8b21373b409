"""Which plan a batch runs with: fixed on disk before it runs, so that running it again does the same after an edit.

Knows plans and files. Must not know Spark.
"""

import hmac
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.files import keep_last, make_dir, write_durably
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.nodes import KeyRef, Plan

_PURPOSE: Final = b"logboom: which key a batch was masked with"
KEPT_BATCHES: Final = 200
"""Spark runs at most the last batch again; more are kept for whoever asks what happened."""


class _Pin(msgspec.Struct, frozen=True):
    plan: str
    keys: dict[str, str] = {}
    """By `KeyRef.id`: what tells one secret key from another, and tells nothing else."""


class KeyChangedError(PipelineError):
    """A batch that has to run again would come out otherwise than before."""


def fingerprints(keys: Mapping[str, bytes]) -> dict[str, str]:
    """Of secret keys, which are in no checkpoint."""
    return {name: hmac.digest(key, _PURPOSE, "sha256").hex()[:16] for name, key in keys.items()}


class PinBook:
    """Pins of one pipeline, in its checkpoint."""

    def __init__(self, directory: Path, read_plan: Callable[[str], Plan]) -> None:
        """`read_plan`: a plan from its JSON."""
        self._read_plan = read_plan
        self._batches = directory / "batches"
        self._plans = directory / "plans"
        make_dir(self._batches)
        make_dir(self._plans)

    def pin(self, batch: int, plan: Plan, load_keys: Callable[[tuple[KeyRef, ...]], Mapping[str, bytes]]) -> Plan:
        """The plan this batch was pinned to; pins `plan` where the batch has never run.

        KeyChangedError where a mask had another key when the batch ran first.
        """
        path = self._batches / f"{batch}.json"
        if path.exists():
            pinned = msgspec.json.decode(path.read_bytes(), type=_Pin)
            first = self._read_plan((self._plans / f"{pinned.plan}.plan").read_text())
            now = fingerprints(load_keys(first.key_refs()))
            for name in sorted(name for name, mark in pinned.keys.items() if now.get(name) != mark):
                raise KeyChangedError(
                    f"batch {batch} began with another mask key in {name.partition(':')[2]} and has to run again: run "
                    f"once with the old key, then change it; or remove {path} to have two hashes of its secrets"
                )
            return first
        name = plan.content_hash()
        kept = self._plans / f"{name}.plan"
        if not kept.exists():
            write_durably(kept, plan.to_json().encode())
        write_durably(path, msgspec.json.encode(_Pin(name, fingerprints(load_keys(plan.key_refs())))))
        keep_last(self._batches, KEPT_BATCHES)
        return plan
