"""The transform `dedupe`: leaves the first of events that are the same. The work is `logboom.pipeline.dedupe`."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from logboom.base.settings import DurationMs, Texts
from logboom.pipeline.dedupe.seen import FIRST, SECOND, TIME, Window, Words, keys_asked, repeats
from logboom.pipeline.findings import Part
from logboom.pipeline.plan.stateful import EXIT, Advanced, Asked, BatchContext, State, StatefulTransform, dropped_by
from logboom.pipeline.route.values import simple_texts
from logboom.pipeline.state.keys import fingerprints, mixed
from logboom.pipeline.state.memory import SHARDS
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType

_US_IN_MS: Final = 1_000
_FILE_KEYS: Final = ("host", "attributes['log.file.id']", "attributes['log.file.position']")
"""What no two lines of the collector share (docs/collector.md)."""
_DAY_MS: Final = 86_400_000
PART_OF_ID: Final = r"(?P<part>[.][0-9.]+)$"
"""What a split adds to the id of an event."""


class DedupeModel(TransformModel):
    """Drops events whose key was seen within the window."""

    type: Literal["dedupe"]
    by: Texts = Field(default_factory=list)
    """What makes two events the same. Without it: the place in its file of a line that the collector read, and the
    event id of any other event."""

    window: DurationMs = Field(default=600_000, ge=1_000, le=30 * _DAY_MS)
    """How long a key is remembered."""

    time: Literal["arrival", "event"] = "arrival"
    """The clock of the window: `observed_time` of events, or their `time`."""

    max_keys: int = Field(default=10_000_000, ge=10_000, le=1_000_000_000)
    """How many keys are remembered at most; beyond it the oldest are forgotten, which is counted."""


class DedupeTransform(StatefulTransform, frozen=True, kw_only=True, tag="dedupe"):
    """Drops events whose key an earlier event had, on any partition, less than a window away."""

    by: tuple[str, ...] = ()
    window_ms: int
    time: Literal["arrival", "event"] = "arrival"
    max_keys: int = 10_000_000
    condition_line: int = 0

    @property
    def time_column(self) -> str:
        return "observed_time" if self.time == "arrival" else "time"

    @property
    def state_form(self) -> str:
        what = ", ".join(self.by) if self.by else "the place in the file or the event id"
        return f"keys by {what}, {self.time} time, hashed with XXH64"

    def ask(self, batch: pa.RecordBatch, inputs: npt.NDArray[np.int8], context: BatchContext) -> Asked:
        first, second, has_key = self._keys(batch)
        now_us = context.wall_ms * _US_IN_MS
        given = pc.coalesce(batch.column(self.time_column), batch.column("observed_time")).cast(pa.int64())
        times = np.minimum(pc.fill_null(given, now_us).to_numpy(zero_copy_only=False), now_us)
        columns = [pa.array(first), pa.array(second), pa.array(times, mask=~has_key)]
        return Asked(pa.RecordBatch.from_arrays(columns, [FIRST, SECOND, TIME]), first)

    def _keys(self, batch: pa.RecordBatch) -> tuple[Words, Words, npt.NDArray[np.bool_]]:
        """The fingerprints of all events, and which of them have a key."""
        columns = [_texts(sql, batch) for sql in self.by or _FILE_KEYS]
        found = pc.is_valid(pc.coalesce(*columns) if self.by else columns[-1]).to_numpy(zero_copy_only=False)
        first, second = fingerprints(columns, batch.num_rows)
        without = np.flatnonzero(~found)
        if not self.by:
            _tell_parts(columns, batch.column("event_id"), first, second)
        if self.by:
            first[without] = mixed(without.astype(np.uint64))  # answered without being looked for, by any shard
            return first, second, found
        if len(without):
            ids = batch.column("event_id").take(pa.array(without))
            first[without], second[without] = fingerprints([ids], len(without))
        return first, second, np.ones(batch.num_rows, np.bool_)

    def advance(self, state: State, asked: Sequence[pa.RecordBatch], context: BatchContext) -> Advanced:
        window = Window(
            self.window_ms * _US_IN_MS, self.max_keys // SHARDS, context.watermark_us, context.watermark_after_us
        )
        keys, has_key = keys_asked(asked)
        found, next_state, evicted = repeats(state, keys.at(has_key), window)
        exits = np.zeros(len(keys), np.int8)
        exits[has_key] = np.where(found, dropped_by(0), 0)
        ends = np.cumsum([0, *(batch.num_rows for batch in asked)]).tolist()
        return Advanced(
            state=next_state,
            answers=tuple(
                pa.RecordBatch.from_arrays([pa.array(exits[start:end])], [EXIT]) for start, end in pairwise(ends)
            ),
            remembered=sum(table.num_rows for table in next_state),
            counts={"evicted": evicted} if evicted else {},
        )


def _tell_parts(columns: Sequence[pa.Array], ids: pa.Array, first: Words, second: Words) -> None:
    """Other fingerprints for events that a split has made of one: they share the place of its line."""
    if not pc.any(pc.match_substring(ids, ".")).as_py():
        return
    parts = pc.extract_regex(ids, PART_OF_ID).field(0)
    rows = pc.indices_nonzero(pc.fill_null(pc.greater(pc.binary_length(parts), 0), False))
    if len(rows):
        named = [*(column.take(rows) for column in columns), parts.take(rows)]
        places = rows.to_numpy()
        first[places], second[places] = fingerprints(named, len(rows))


def _texts(sql: str, batch: pa.RecordBatch) -> pa.Array:
    texts = simple_texts(sql)
    assert texts is not None, "the compiler has looked at it"
    return texts(batch)


def _compile(model: DedupeModel, common: CommonFields, part: Part) -> DedupeTransform:
    lines = [part.expression("by", sql, wants="any") for sql in model.by]
    for sql in model.by:
        if simple_texts(sql) is None:
            part.problem("by", f"{sql!r} {SIMPLE_ONLY}")
    return DedupeTransform(
        **common,
        by=tuple(model.by),
        window_ms=model.window,
        time=model.time,
        max_keys=model.max_keys,
        condition_line=lines[0] if lines else 0,
    )


SIMPLE_ONLY: Final = (
    "should be a field, an attribute, or coalesce, concat and || of these; let a reshape set an attribute to it before"
)

TRANSFORM: Final = TransformType("dedupe", DedupeModel, DedupeTransform, _compile)
