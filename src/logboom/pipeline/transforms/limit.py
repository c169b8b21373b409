"""The transform `limit`: how much of each key may pass in a window of the clock. The work is
`logboom.pipeline.stateful.volume_limit`."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from logboom.base.settings import DurationMs, SizeBytes
from logboom.pipeline.findings import Part
from logboom.pipeline.plan.dials import Dial
from logboom.pipeline.plan.sampling import BITS, SPACE
from logboom.pipeline.plan.stateful import Advanced, Asked, BatchContext, State, StatefulTransform, dropped_by
from logboom.pipeline.state.memory import SHARDS
from logboom.pipeline.stateful import volume_limit
from logboom.pipeline.stateful.grouping import Words, sizes_of, weights_of
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType
from logboom.pipeline.transforms.dialled import Dialled, DialParts
from logboom.pipeline.transforms.stateful_parts import (
    answers_for,
    asked_column,
    checked_text,
    draw_words,
    key_words,
    with_weights,
)

OVER: Final = "over"
"""The output for events over the cap, with `over: divert`."""
_KEY, _SIZE, _DRAW, _FACTOR = "key", "size", "draw", "factor"
_DAY_MS: Final = 86_400_000
_WEEK_MS: Final = 7 * _DAY_MS
_KEYS_MAX: Final = 10_000_000


class LimitModel(TransformModel):
    """Caps the volume of each key."""

    type: Literal["limit"]
    events: Dialled[Annotated[int, Field(ge=1)]] | None = None
    """So many events may pass in a window."""

    bytes: Dialled[Annotated[SizeBytes, Field(ge=1)]] | None = None
    """Events of this many bytes may pass in a window."""

    per: DurationMs = Field(default=_DAY_MS, ge=1_000, le=_WEEK_MS)
    """The window; it begins at multiples of itself from 1970 on, in UTC: one of a day at midnight."""

    by: str | None = None
    """The key that has a cap of its own; without it there is one cap."""

    over: Literal["drop", "sample", "divert"] = "drop"
    """What becomes of events over the cap: dropped, one in `rate` kept, or sent to the output `over`."""

    rate: Dialled[Annotated[float, Field(ge=1, allow_inf_nan=False)]] | None = None
    """Of `over: sample`: keep one in so many."""

    key: str = "trace_id"
    """Of `over: sample`: events with the same key are kept or dropped together."""

    max_keys: Dialled[Annotated[int, Field(ge=SHARDS, le=_KEYS_MAX)]] = 100_000
    """Keys that come when there are so many in one window share a cap."""


class LimitTransform(StatefulTransform, frozen=True, kw_only=True, tag="limit"):
    """Lets pass what is under the cap; one of `events` and `bytes` is set."""

    events: int | None = None
    bytes: int | None = None
    per_ms: int
    by: str | None = None
    over: Literal["drop", "sample", "divert"]
    rate: float = 1.0
    key: str = "trace_id"
    max_keys: int
    condition_line: int = 0

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.name, f"{self.name}.{OVER}") if self.over == "divert" else (self.name,)

    @property
    def settings_with_dials(self) -> tuple[Dial, ...]:
        setting, most = ("events", self.events) if self.events is not None else ("bytes", self.bytes)
        caps = Dial(setting=setting, value=most or 0, kind="whole", min=1)
        rate = (Dial(setting="rate", value=self.rate, min=1),) if self.over == "sample" else ()
        return (caps, *rate, Dial(setting="max_keys", value=self.max_keys, kind="whole", min=SHARDS, max=_KEYS_MAX))

    @property
    def changes_weights(self) -> bool:
        return self.over == "sample"

    @property
    def state_form(self) -> str:
        what = "events" if self.events is not None else "bytes"
        return f"{what} by {self.by or 'nothing'} in windows of {self.per_ms // 1_000} s"

    def ask(self, batch: pa.RecordBatch, inputs: npt.NDArray[np.int8], context: BatchContext) -> Asked:
        words = key_words(self.by, batch)
        sizes = np.ones(batch.num_rows, np.int64) if self.events is not None else sizes_of(batch)
        columns = {_KEY: pa.array(words), _SIZE: pa.array(sizes)}
        if self.over == "sample":
            columns[_DRAW] = pa.array(draw_words(self.key, self.name, batch))
        return Asked(pa.RecordBatch.from_pydict(columns), words)

    def advance(self, state: State, asked: Sequence[pa.RecordBatch], context: BatchContext) -> Advanced:
        if not asked:
            return Advanced(state=state, remembered=_keys_in(state))
        most = self.events if self.events is not None else self.bytes or 0
        cap = volume_limit.Cap(most, self.per_ms, max(1, self.max_keys // SHARDS))
        keys, sizes = asked_column(asked, _KEY).astype(np.uint64), asked_column(asked, _SIZE).astype(np.int64)
        over, after = volume_limit.advance(cap, state[0] if state else None, keys, sizes, context.wall_ms)
        exits = np.where(over, 1 if self.over == "divert" else dropped_by(0), 0).astype(np.int8)
        factors = np.ones(len(over))
        if self.over == "sample":
            draws: Words = asked_column(asked, _DRAW).astype(np.uint64)
            kept = over & (draws >> np.uint64(64 - BITS) < np.uint64(int(SPACE / self.rate)))
            exits[kept], factors[kept] = 0, self.rate
        answers = answers_for(asked, exits, {_FACTOR: pa.array(factors)})
        return Advanced(state=(after,), answers=answers, remembered=after.num_rows, counts=_noted(over))

    def answered(self, batch: pa.RecordBatch, answers: pa.RecordBatch) -> pa.RecordBatch:
        if self.over != "sample":
            return batch
        return with_weights(batch, pa.array(weights_of(batch) * answers.column(_FACTOR).to_numpy()))


def _keys_in(state: State) -> int:
    return sum(table.num_rows for table in state)


def _noted(over: npt.NDArray[np.bool_]) -> dict[str, int]:
    return {OVER: int(over.sum())} if over.any() else {}


def _compile(model: LimitModel, common: CommonFields, part: Part) -> LimitTransform | None:
    line = checked_text(part, "by", model.by) if model.by is not None else part.line
    if (model.rate is None) == (model.over == "sample"):
        part.problem((), "needs rate with over: sample" if model.rate is None else "rate goes with over: sample alone")
    if model.over == "sample":
        checked_text(part, "key", model.key)
    if (model.events is None) == (model.bytes is None):
        part.problem((), "needs exactly one of events and bytes")
        return None
    dials = DialParts(part)
    events, size = (
        None if given is None else dials.whole(key, given, at_least=1)
        for key, given in (("events", model.events), ("bytes", model.bytes))
    )
    return LimitTransform(
        **common,
        events=events,
        bytes=size,
        per_ms=model.per,
        by=model.by,
        over=model.over,
        rate=1.0 if model.rate is None else dials.number("rate", model.rate, at_least=1),
        key=model.key,
        max_keys=dials.whole("max_keys", model.max_keys, at_least=SHARDS, at_most=_KEYS_MAX),
        condition_line=line,
        named_dials=dials.named(),
    )


TRANSFORM: Final = TransformType("limit", LimitModel, LimitTransform, _compile)
