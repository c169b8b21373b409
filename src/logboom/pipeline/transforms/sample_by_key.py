"""The transform `sample` with a rate for each key, which depends on what comes: at most this many events a second, or a
rate by which about so many stay. The work is `logboom.pipeline.stateful`."""

from collections.abc import Sequence
from typing import Any, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logboom.pipeline.plan.dials import Dial, DialValues
from logboom.pipeline.plan.stateful import Advanced, Asked, BatchContext, State, StatefulTransform, dropped_by
from logboom.pipeline.state.memory import SHARDS
from logboom.pipeline.stateful import target_rate, token_bucket
from logboom.pipeline.stateful.grouping import Mask, Weights, weights_of
from logboom.pipeline.transforms.dialled import exclude_dials, fields_of, time_dial, with_exclude
from logboom.pipeline.transforms.stateful_parts import (
    answers_for,
    asked_column,
    draw_words,
    key_words,
    rows_where,
    with_weights,
)

PER_SECOND_MIN: Final = 1e-6
"""The least that a key may be allowed."""
OVER_MIN_MS, OVER_MAX_MS = 1_000, 86_400_000
KEYS_MAX: Final = 10_000_000
_KEY, _DRAW, _WEIGHT, _ALWAYS = "key", "draw", "weight", "always"


class SampleByKey(StatefulTransform, frozen=True, kw_only=True, tag="sample_by_key"):
    """Keeps of each key at most `per_second` events, or about `target_per_second`; one of both is set."""

    per_second: float | None = None
    target_per_second: float | None = None
    over_ms: int
    by: str | None = None
    key: str = "trace_id"
    exclude: str | None = None
    max_keys: int
    condition_line: int = 0
    exclude_enabled: bool | msgspec.UnsetType = msgspec.UNSET
    """False: nothing is excluded, until its dial is on again. Left out of a plan where it is true."""

    @property
    def settings_with_dials(self) -> tuple[Dial, ...]:
        keys = Dial(setting="max_keys", value=self.max_keys, kind="whole", min=SHARDS, max=KEYS_MAX)
        exclude = exclude_dials(self.exclude, self.exclude_enabled)
        if self.per_second is not None:
            return (Dial(setting="per_second", value=self.per_second, min=PER_SECOND_MIN), keys, *exclude)
        target = Dial(setting="target_per_second", value=self.target_per_second or 0.0, min=PER_SECOND_MIN)
        over = time_dial("over", self.over_ms, at_least=OVER_MIN_MS, at_most=OVER_MAX_MS)
        return (target, keys, over, *exclude)

    def turned(self, values: DialValues) -> Self:
        return msgspec.structs.replace(self, **fields_of(with_exclude(values), {"over": "over_ms"}))

    @property
    def changes_weights(self) -> bool:
        return True

    @property
    def state_form(self) -> str:
        what = "buckets" if self.per_second is not None else "averages"
        return f"{what} by {self.by or 'nothing'}"

    def ask(self, batch: pa.RecordBatch, inputs: npt.NDArray[np.int8], context: BatchContext) -> Asked:
        words = key_words(self.by, batch)
        columns = {
            _KEY: pa.array(words),
            _DRAW: pa.array(draw_words(self.key, self.name, batch)),
            _WEIGHT: pa.array(weights_of(batch)),
            _ALWAYS: pa.array(rows_where(None if self.exclude_enabled is False else self.exclude, batch)),
        }
        return Asked(pa.RecordBatch.from_pydict(columns), words)

    def advance(self, state: State, asked: Sequence[pa.RecordBatch], context: BatchContext) -> Advanced:
        if not any(batch.num_rows for batch in asked):  # time alone changes nothing before the next events come
            remembered = sum(table.num_rows for table in state)
            return Advanced(state=state, answers=answers_for(asked, np.zeros(0, np.int8)), remembered=remembered)
        rows = {name: asked_column(asked, name) for name in (_KEY, _DRAW, _WEIGHT, _ALWAYS)}
        drawn = ~rows[_ALWAYS].astype(np.bool_)
        given = {name: values[drawn] for name, values in rows.items()}
        stays, weights, after, forgotten = self._sampled(state, given, context)
        exits, grown = np.zeros(len(drawn), np.int8), rows[_WEIGHT].astype(np.float64)
        exits[drawn] = np.where(stays, 0, dropped_by(0))
        grown[drawn] = weights
        answers = answers_for(asked, exits, {_WEIGHT: pa.array(grown)})
        counts = {"forgotten": round(forgotten)} if round(forgotten) else {}
        return Advanced(state=(after,), answers=answers, remembered=after.num_rows, counts=counts)

    def _sampled(self, state: State, rows: Any, context: BatchContext) -> tuple[Mask, Weights, pa.Table, float]:
        before = state[0] if state else None
        keys, draws = rows[_KEY].astype(np.uint64), rows[_DRAW].astype(np.uint64)
        weights = rows[_WEIGHT].astype(np.float64)
        share = max(1, self.max_keys // SHARDS)
        if self.per_second is not None:
            bucket = token_bucket.Bucket(self.per_second, share)
            return token_bucket.advance(bucket, before, keys, draws, weights, context.wall_ms)
        assert self.target_per_second is not None
        target = target_rate.Target(self.target_per_second, self.over_ms, share)
        stays, rates, after = target_rate.advance(target, before, keys, draws, context.wall_ms)
        return stays, weights * rates, after, 0.0

    def answered(self, batch: pa.RecordBatch, answers: pa.RecordBatch) -> pa.RecordBatch:
        return with_weights(batch, answers.column(_WEIGHT))
