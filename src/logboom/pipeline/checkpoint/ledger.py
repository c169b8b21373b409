"""The records that entered a batch and their outcomes: the balance that must hold, and the files that store it.

    records in + copies + made + held before = records out + dropped by a named rule + dead letters + held after

Held events are in the state of a transform. Made events are those that a transform creates from others; the others are
dropped under its name.

Knows counts and the layout that names them. Must not know Spark.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.checked import read_checked, write_checked
from logboom.pipeline.checkpoint.files import keep_last, make_dir, numbered
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.execute.stages import (
    ABANDONED,
    BYTES_IN,
    BYTES_OUT,
    COPIES,
    FAILURES,
    HELD_AFTER,
    HELD_BEFORE,
    IN,
    MADE,
    MASKED,
    MISSED,
    NOTED,
    PLACE,
    REMEMBERED,
)
from logboom.pipeline.plan.dials import DialValues, Value
from logboom.pipeline.plan.layout import Layout, Place

KEPT_BATCHES: Final = 1_000
_ADVICE: Final = "remove the file: no record is lost, but the totals of the pipeline then lack the counts of this batch"


class BalanceError(PipelineError):
    """A batch whose records do not add up: a bug in the pipeline, which stops so that no record is lost unnoticed."""


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one batch, or of many together."""

    records_in: dict[str, int]
    """By source."""
    bytes_in: int
    copies: int
    """Additional records, because one record took several routes."""
    out: dict[str, int]
    """By the sink that the router wrote, or the edge that deliveries read."""
    bytes_out: int
    dropped: dict[str, int]
    """By the rule that dropped them."""
    dead: dict[str, int]
    """By the stage at which they became dead letters."""
    masked: dict[str, int]
    """Replacements in records, by the label of the rule."""
    batches: int = 1
    missed: dict[str, int] = {}
    """Keys that were missing in a table, by the transform that looked them up."""
    made: dict[str, int] = {}
    """New events, by the transform that made them."""
    held_before: dict[str, int] = {}
    """Events that a transform had in its state when the batch, or the first of several, began."""
    held: dict[str, int] = {}
    """Events that a transform has in its state after the batch."""
    remembered: dict[str, int] = {}
    """Keys, windows and similar entries that a transform has in its state after the batch."""
    failed: dict[str, int] = {}
    """Expressions without a result because a part of them failed on a record or event, by name."""
    noted: dict[str, int] = {}
    """Other counts of transforms, as `TRANSFORM.WHAT`."""
    out_bytes: dict[str, int] = {}
    """`bytes_out` by sink or edge; empty in ledgers of earlier versions."""
    in_bytes: dict[str, int] = {}
    """`bytes_in` by source; empty in ledgers of earlier versions."""
    routed: dict[str, dict[str, int]] = {}
    """For each sink that the router wrote: its part of `out` by the output that its events came from; empty in ledgers
    of earlier versions. Edges are not here: they have the name of their output."""
    routed_bytes: dict[str, dict[str, int]] = {}
    """The same for `out_bytes`."""

    @property
    def missing(self) -> int:
        """How many records are unaccounted for: 0 if the batch balances, negative if there are too many."""
        came = (self.records_in, self.made, self.held_before)
        gone = (self.out, self.dropped, self.dead, self.held)
        return self.copies + sum(sum(some.values()) for some in came) - sum(sum(some.values()) for some in gone)

    def check(self) -> None:
        """BalanceError if the records do not add up."""
        if self.missing:
            raise BalanceError(f"the batch does not balance, {self.missing} records are unaccounted for: {self}")

    def plus(self, other: "Ledger") -> "Ledger":
        """The sum of both; the other ledger is the later one."""
        return Ledger(
            records_in=_sum(self.records_in, other.records_in),
            bytes_in=self.bytes_in + other.bytes_in,
            copies=self.copies + other.copies,
            out=_sum(self.out, other.out),
            bytes_out=self.bytes_out + other.bytes_out,
            dropped=_sum(self.dropped, other.dropped),
            dead=_sum(self.dead, other.dead),
            masked=_sum(self.masked, other.masked),
            batches=self.batches + other.batches,
            missed=_sum(self.missed, other.missed),
            made=_sum(self.made, other.made),
            held_before=self.held_before if self.batches else other.held_before,
            held=other.held,
            remembered=other.remembered,
            failed=_sum(self.failed, other.failed),
            noted=_sum(self.noted, other.noted),
            out_bytes=_sum(self.out_bytes, other.out_bytes),
            in_bytes=_sum(self.in_bytes, other.in_bytes),
            routed=_sum_each(self.routed, other.routed),
            routed_bytes=_sum_each(self.routed_bytes, other.routed_bytes),
        )


EMPTY: Final = Ledger(
    records_in={}, bytes_in=0, copies=0, out={}, bytes_out=0, dropped={}, dead={}, masked={}, batches=0
)


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger of one batch, the plan it ran with, and the totals up to and including it."""

    batch: int
    plan: str
    started_at: str
    duration_ms: int
    ledger: Ledger
    total: Ledger
    tables: dict[str, str] = {}
    """The version of each table that the batch used, by `TableRef.id`."""
    dials: dict[str, Value] = {}
    """The positions of changed dials, by name."""


class BatchLedgers:
    """The ledgers of a pipeline's batches, one file each; a batch that runs again replaces its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        make_dir(directory)

    def record(
        self,
        *,
        batch: int,
        plan: str,
        started_at: str,
        duration_ms: int,
        ledger: Ledger,
        tables: Mapping[str, str] | None = None,
        dials: DialValues | None = None,
    ) -> BatchRecord:
        """Stores a balanced batch durably; an unbalanced one is not stored and raises BalanceError."""
        ledger.check()
        before = self.last(before=batch)
        total = ledger if before is None else before.total.plus(ledger)
        entry = BatchRecord(
            batch=batch,
            plan=plan,
            started_at=started_at,
            duration_ms=duration_ms,
            ledger=ledger,
            total=total,
            tables=dict(tables or {}),
            dials=dict(dials or {}),
        )
        write_checked(self._directory / f"{batch}.json", entry)
        keep_last(self._directory, KEPT_BATCHES)
        return entry

    def last(self, before: int | None = None) -> BatchRecord | None:
        """The newest entry, or the newest of a batch below `before`."""
        for number, path in reversed(numbered(self._directory)):
            if before is None or number < before:
                return read_checked(path, BatchRecord, _ADVICE)
        return None

    def entries(self) -> list[BatchRecord]:
        """All stored entries, oldest first."""
        return [read_checked(path, BatchRecord, _ADVICE) for _, path in numbered(self._directory)]


def ledger_of(layout: Layout, counts: Mapping[str, int]) -> Ledger:
    """The ledger from the counts that were taken under the names of `logboom.pipeline.execute.stages`."""

    def at(*kinds: str, what: str = PLACE) -> dict[str, int]:
        found: dict[str, int] = {}
        for place in layout.places:
            if place.kind in kinds:
                name = _counted_as(place)
                found[name] = found.get(name, 0) + counts.get(f"{what}:{place.code}", 0)
        return found

    def routed(what: str) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for place in layout.places:
            if place.kind == "direct":
                found.setdefault(place.node, {})[place.edge] = counts.get(f"{what}:{place.code}", 0)
        return found

    def by_name(kind: str) -> dict[str, int]:
        head = f"{kind}:"
        return {name.removeprefix(head): number for name, number in counts.items() if name.startswith(head)}

    in_bytes = {source.name: counts.get(f"{BYTES_IN}:{source.name}", 0) for source in layout.plan.sources}
    return Ledger(
        records_in={source.name: counts.get(f"{IN}:{source.name}", 0) for source in layout.plan.sources},
        bytes_in=sum(in_bytes.values()),
        copies=counts.get(COPIES, 0),
        out=at("direct", "edge"),
        bytes_out=counts.get(BYTES_OUT, 0),
        dropped=_sum(at("dropped"), by_name(ABANDONED)),
        dead=at("dead"),
        masked={label: counts.get(f"{MASKED}:{label}", 0) for label in layout.plan.mask_labels()},
        missed={label: counts.get(f"{MISSED}:{label}", 0) for label in layout.plan.miss_labels()},
        failed=_failed(layout, counts),
        made=by_name(MADE),
        held_before=by_name(HELD_BEFORE),
        held=by_name(HELD_AFTER),
        remembered=by_name(REMEMBERED),
        noted=by_name(NOTED),
        out_bytes=at("direct", "edge", what=BYTES_OUT),
        in_bytes=in_bytes,
        routed=routed(PLACE),
        routed_bytes=routed(BYTES_OUT),
    )


def _failed(layout: Layout, counts: Mapping[str, int]) -> dict[str, int]:
    return {rule: counts.get(f"{FAILURES}:{rule}", 0) for rule in layout.failure_rules()}


def _counted_as(place: Place) -> str:
    return place.edge if place.kind == "edge" else place.node


def _sum(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {key: left.get(key, 0) + right.get(key, 0) for key in (*left, *(key for key in right if key not in left))}


def _sum_each(
    left: Mapping[str, Mapping[str, int]], right: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    return {key: _sum(left.get(key, {}), right.get(key, {})) for key in dict.fromkeys((*left, *right))}
