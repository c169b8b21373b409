"""The transform `dedupe`: leaves the first of events that are the same. The work is `logboom.pipeline.dedupe`."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from logboom.base.settings import DurationMs, Texts
from logboom.pipeline.aggregate.open_windows import OpenWindows
from logboom.pipeline.dedupe.repeat_counts import METRICS, ended, with_repeats
from logboom.pipeline.dedupe.seen import (
    FIRST,
    SECOND,
    TIME,
    Found,
    Keys,
    Window,
    Words,
    is_table_of_keys,
    keys_asked,
    repeats,
)
from logboom.pipeline.findings import Part
from logboom.pipeline.plan.dials import Dial, DialValues
from logboom.pipeline.plan.stateful import Advanced, Asked, BatchContext, State, StatefulTransform, dropped_by
from logboom.pipeline.route.values import attribute_name, simple_texts
from logboom.pipeline.state.keys import fingerprints, mixed
from logboom.pipeline.state.memory import SHARDS
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType
from logboom.pipeline.transforms.dialled import Dialled, DialParts, fields_of, time_dial
from logboom.pipeline.transforms.stateful_parts import answers_for, asked_column, texts_of

_US_IN_MS: Final = 1_000
_FILE_KEYS: Final = ("host", "attributes['log.file.id']", "attributes['log.file.position']")
"""What no two lines of the collector share (docs/collector.md)."""
_WINDOW_MIN_MS, _WINDOW_MAX_MS = 1_000, 30 * 86_400_000
_KEYS_MIN, _KEYS_MAX = 10_000, 1_000_000_000
PART_OF_ID: Final = r"(?P<part>[.][0-9.]+)$"
"""What a split adds to the id of an event."""
REPEATS: Final = "repeats"
"""The output for events that tell how often another one was repeated."""
_LABELS, _WEIGHT = "labels", "weight"
_encode = msgspec.json.Encoder().encode


class DedupeModel(TransformModel):
    """Drops events whose key was seen within the window."""

    type: Literal["dedupe"]
    by: Texts = Field(default_factory=list)
    """What makes two events the same. Without it: the place in its file of a line that the collector read, and the
    event id of any other event."""

    window: Dialled[Annotated[DurationMs, Field(ge=_WINDOW_MIN_MS, le=_WINDOW_MAX_MS)]] = 600_000
    """How long a key is remembered; a dial for it has seconds."""

    time: Literal["arrival", "event"] = "arrival"
    """The clock of the window: `observed_time` of events, or their `time`."""

    max_keys: Dialled[Annotated[int, Field(ge=_KEYS_MIN, le=_KEYS_MAX)]] = 10_000_000
    """How many keys are remembered at most; beyond it the oldest are forgotten, which is counted."""

    keep: Literal["first"] = "first"
    """Which event stays of those that are the same."""

    count_repeats: bool = False
    """Whether an event by the output `repeats` tells, when the window of a key ends, how often it was repeated."""


class DedupeTransform(StatefulTransform, frozen=True, kw_only=True, tag="dedupe"):
    """Drops events whose key an earlier event had, on any partition, less than a window away."""

    by: tuple[str, ...] = ()
    window_ms: int
    time: Literal["arrival", "event"] = "arrival"
    max_keys: int = 10_000_000
    condition_line: int = 0
    count_repeats: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.name, f"{self.name}.{REPEATS}") if self.count_repeats else (self.name,)

    @property
    def leaves_by_time(self) -> bool:
        return bool(self.count_repeats)

    @property
    def settings_with_dials(self) -> tuple[Dial, ...]:
        return (
            time_dial("window", self.window_ms, at_least=_WINDOW_MIN_MS, at_most=_WINDOW_MAX_MS),
            Dial(setting="max_keys", value=self.max_keys, kind="whole", min=_KEYS_MIN, max=_KEYS_MAX),
        )

    def turned(self, values: DialValues) -> Self:
        return msgspec.structs.replace(self, **fields_of(values, {"window": "window_ms"}))

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
        columns = {FIRST: pa.array(first), SECOND: pa.array(second), TIME: pa.array(times, mask=~has_key)}
        if self.count_repeats:
            columns |= {_LABELS: self._labels(batch), _WEIGHT: pc.fill_null(batch.column("weight"), 1.0)}
        return Asked(pa.RecordBatch.from_pydict(columns), first)

    def _labels(self, batch: pa.RecordBatch) -> pa.Array:
        """What the key of each event is, as JSON."""
        names = [attribute_name(sql) or sql for sql in self.by or ("event_id", *_FILE_KEYS)]
        texts = [texts_of(sql, batch).to_pylist() for sql in self.by or ("event_id", *_FILE_KEYS)]
        rows = (dict(zip(names, row, strict=True)) for row in zip(*texts, strict=True))
        found = [{name: text for name, text in row.items() if text is not None} for row in rows]
        return pa.array([_encode(row).decode() for row in found], pa.string())

    def _keys(self, batch: pa.RecordBatch) -> tuple[Words, Words, npt.NDArray[np.bool_]]:
        """The fingerprints of all events, and which of them have a key."""
        columns = [texts_of(sql, batch) for sql in self.by or _FILE_KEYS]
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
        keys, has_key = keys_asked([batch.select([FIRST, SECOND, TIME]) for batch in asked])
        found = repeats([table for table in state if is_table_of_keys(table)], keys.at(has_key), window)
        exits = np.zeros(len(keys), np.int8)
        exits[has_key] = np.where(found.repeats, dropped_by(0), 0)
        counted, made = self._counted(state, asked, keys.at(has_key), has_key, found, context)
        return Advanced(
            state=(*found.state, *counted.state()),
            answers=answers_for(asked, exits) if asked else (),
            made=made,
            remembered=sum(table.num_rows for table in found.state),
            counts={"evicted": found.evicted} if found.evicted else {},
        )

    def _counted(
        self,
        state: State,
        asked: Sequence[pa.RecordBatch],
        keys: Keys,
        has_key: npt.NDArray[np.bool_],
        found: Found,
        context: BatchContext,
    ) -> tuple[OpenWindows, pa.RecordBatch | None]:
        """How often keys were repeated that are open, and the events of those that are not any more."""
        opened = OpenWindows(METRICS, (), ())
        if not self.count_repeats:
            return opened, None
        opened, _ = OpenWindows.of(METRICS, state)
        rows = np.flatnonzero(found.repeats)
        if len(rows):
            labels = pa.concat_arrays([batch.column(_LABELS) for batch in asked]).take(
                pa.array(np.flatnonzero(has_key)[rows])
            )
            weights = asked_column(asked, _WEIGHT).astype(np.float64)[has_key][rows]
            opened = with_repeats(opened, keys.at(rows), found.opened[rows], weights, labels)
        mark = context.watermark_after_us
        if context.ends:
            before = np.iinfo(np.int64).max
        else:
            before = np.iinfo(np.int64).min if mark is None else mark - self.window_ms * _US_IN_MS + 1
        return ended(opened, before, context.wall_ms, 1)


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


def _compile(model: DedupeModel, common: CommonFields, part: Part) -> DedupeTransform:
    dials = DialParts(part)
    lines = [part.expression("by", sql, wants="any") for sql in model.by]
    for sql in model.by:
        if simple_texts(sql) is None:
            part.problem("by", f"{sql!r} {SIMPLE_ONLY}")
    return DedupeTransform(
        **common,
        by=tuple(model.by),
        window_ms=dials.milliseconds("window", model.window, at_least=_WINDOW_MIN_MS, at_most=_WINDOW_MAX_MS),
        time=model.time,
        max_keys=dials.whole("max_keys", model.max_keys, at_least=_KEYS_MIN, at_most=_KEYS_MAX),
        condition_line=lines[0] if lines else 0,
        count_repeats=model.count_repeats or msgspec.UNSET,
        named_dials=dials.named(),
    )


SIMPLE_ONLY: Final = (
    "should be a field, an attribute, or coalesce, concat and || of these; let a reshape set an attribute to it before"
)

TRANSFORM: Final = TransformType("dedupe", DedupeModel, DedupeTransform, _compile)
