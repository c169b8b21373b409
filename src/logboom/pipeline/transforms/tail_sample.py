"""The transform `tail_sample`: keeps or drops traces as a whole, once their events have come. The work is
`logboom.pipeline.stateful.tail_sampling`."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from logboom.base.settings import DurationMs, SizeBytes
from logboom.base.units import GIB, MIB
from logboom.pipeline.event.record_batch import whole_batch
from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.findings import Part
from logboom.pipeline.plan.dials import Dial, DialValues
from logboom.pipeline.plan.stateful import EXIT, TAKEN, Advanced, Asked, BatchContext, State, StatefulTransform
from logboom.pipeline.state.memory import SHARDS
from logboom.pipeline.stateful import tail_sampling
from logboom.pipeline.stateful.grouping import sizes_of, text_words, times_ms
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType
from logboom.pipeline.transforms.dialled import Dialled, DialParts, fields_of, time_dial
from logboom.pipeline.transforms.stateful_parts import (
    HELD_BYTES_MAX,
    HELD_EVENTS_MAX,
    checked_condition,
    checked_text,
    held_dials,
    rows_where,
    texts_of,
)

_WAIT_MIN_MS, _WAIT_MAX_MS = 1_000, 3_600_000
_SLOWER_MAX_MS: Final = 365 * 86_400_000
_RARE_MAX: Final = 1_000_000
_KEEP: Final = "keep."
"""What stands before the name of a rule in the setting of its dial."""
_TIMES: Final = {"wait": "wait_ms", "slower_than": "slower_ms"}


class TailSampleModel(TransformModel):
    """Keeps whole traces."""

    type: Literal["tail_sample"]
    wait: Dialled[Annotated[DurationMs, Field(ge=_WAIT_MIN_MS, le=_WAIT_MAX_MS)]] = 30_000
    """How long after its first event has come a trace is decided."""

    keep: dict[str, str] = Field(default_factory=dict)
    """Names and conditions: a trace stays that has an event which one of them is true of."""

    slower_than: Dialled[Annotated[DurationMs, Field(ge=1, le=_SLOWER_MAX_MS)]] | None = None
    """A trace stays whose first and last event are at least so far apart."""

    rare_by: str | None = None
    """What may be rare, as `service`: of each the first `rare_first` traces a minute stay."""

    rare_first: Dialled[Annotated[int, Field(ge=1, le=_RARE_MAX)]] = 1
    """How many, in each of 16 shards."""

    rate: Dialled[Annotated[float, Field(ge=1, allow_inf_nan=False)]] | None = None
    """Of all other traces one in so many stays; without it, none."""

    key: str = "trace_id"
    """What makes events one trace; an event without it is a trace of its own."""

    max_events: Dialled[Annotated[int, Field(ge=SHARDS, le=HELD_EVENTS_MAX)]] = 1_000_000
    """How many events may wait; beyond it the oldest traces are decided early."""

    max_bytes: Dialled[Annotated[SizeBytes, Field(ge=MIB, le=HELD_BYTES_MAX)]] = GIB
    """How many bytes may wait."""


class TailSampleTransform(StatefulTransform, frozen=True, kw_only=True, tag="tail_sample"):
    """Holds the events of a trace until it is decided. `rate` is 0 if nothing but the rules keeps a trace."""

    drops_held: ClassVar[bool] = True

    wait_ms: int
    keep: tuple[tuple[str, str], ...] = ()
    slower_ms: int | None = None
    rare_by: str | None = None
    rare_first: int = 1
    rate: float = 0.0
    key: str = "trace_id"
    max_events: int
    max_bytes: int
    condition_line: int = 0
    off: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Names of `keep` that keep nothing, until their dials are on again."""

    @property
    def settings_with_dials(self) -> tuple[Dial, ...]:
        rate = (Dial(setting="rate", value=self.rate, min=1),) if self.rate else ()
        switches = (
            Dial(
                setting=f"{_KEEP}{name}", name=f"{self.name}.{name}", kind="switch", value=name not in (self.off or ())
            )
            for name, _ in self.keep
        )
        return (*rate, *switches, *self._limits)

    @property
    def _limits(self) -> tuple[Dial, ...]:
        found = [time_dial("wait", self.wait_ms, at_least=_WAIT_MIN_MS, at_most=_WAIT_MAX_MS)]
        if self.slower_ms is not None:
            found.append(time_dial("slower_than", self.slower_ms, at_least=1, at_most=_SLOWER_MAX_MS))
        if self.rare_by is not None:
            found.append(Dial(setting="rare_first", value=self.rare_first, kind="whole", min=1, max=_RARE_MAX))
        found += held_dials(self.max_events, self.max_bytes)
        return tuple(msgspec.structs.replace(dial, name=f"{self.name}.{dial.setting}") for dial in found)

    def turned(self, values: DialValues) -> Self:
        off = set(self.off or ())
        for name, _ in self.keep:
            if (on := values.get(f"{_KEEP}{name}")) is not None:
                off = off - {name} if on else off | {name}
        names = tuple(name for name, _ in self.keep if name in off)
        fields = fields_of({name: value for name, value in values.items() if not name.startswith(_KEEP)}, _TIMES)
        return msgspec.structs.replace(self, off=names or msgspec.UNSET, **fields)

    @property
    def changes_weights(self) -> bool:
        return self.rate > 0

    @property
    def leaves_by_time(self) -> bool:
        return True

    @property
    def state_form(self) -> str:
        return f"traces by {self.key}"

    def ask(self, batch: pa.RecordBatch, inputs: npt.NDArray[np.int8], context: BatchContext) -> Asked:
        keys = texts_of(self.key, batch)
        words = text_words(pc.coalesce(keys, batch.column("event_id")))
        keeps = np.zeros(batch.num_rows, np.bool_)
        for name, condition in self.keep:
            if name not in (self.off or ()):
                keeps |= rows_where(condition, batch)
        rare = np.zeros(batch.num_rows, np.uint64)
        if self.rare_by is not None:
            rare = text_words(texts_of(self.rare_by, batch))
        rows = batch.select(LIVE_SCHEMA.names)
        for name, values in (
            (tail_sampling.TRACE, words),
            (tail_sampling.ALONE, keys.is_null().to_numpy(zero_copy_only=False)),
            (tail_sampling.KEEPS, keeps),
            (tail_sampling.SIZE, sizes_of(batch)),
            (tail_sampling.TIME, times_ms(batch, context.wall_ms)),
            (tail_sampling.RARE, rare),
        ):
            rows = rows.append_column(name, pa.array(values))
        return Asked(rows, words, np.full(batch.num_rows, TAKEN, np.int8))

    def advance(self, state: State, asked: Sequence[pa.RecordBatch], context: BatchContext) -> Advanced:
        rules = tail_sampling.TailRules(
            name=self.name,
            wait_ms=self.wait_ms,
            rate=self.rate,
            slower_ms=self.slower_ms,
            rare=self.rare_first if self.rare_by is not None else 0,
            events_max=max(1, self.max_events // SHARDS),
            bytes_max=self.max_bytes // SHARDS,
        )
        rows = pa.Table.from_batches(asked) if asked else tail_sampling.ROWS.empty_table()
        decided = tail_sampling.advance(rules, state, rows, context.wall_ms, ends=context.ends)
        made, dropped = None, 0
        if decided.rows is not None:
            kept = decided.rows.select(LIVE_SCHEMA.names).filter(pa.array(decided.stays))
            dropped = decided.rows.num_rows - kept.num_rows
            if kept.num_rows:
                weights = pa.array(decided.weights[decided.stays])
                kept = kept.set_column(LIVE_SCHEMA.get_field_index("weight"), "weight", weights)
                kept = kept.append_column(EXIT, pa.array(np.zeros(kept.num_rows, np.int8)))
                made = whole_batch(kept)
        return Advanced(
            state=decided.state,
            made=made,
            dropped={self.name: dropped} if dropped else {},
            held=decided.held,
            remembered=decided.opened,
            counts={"early": decided.early} if decided.early else {},
        )


def _compile(model: TailSampleModel, common: CommonFields, part: Part) -> TailSampleTransform:
    line = checked_text(part, "key", model.key)
    for name, condition in model.keep.items():
        line = checked_condition(part, ("keep", name), condition)
    if model.rare_by is not None:
        checked_text(part, "rare_by", model.rare_by)
    if not model.keep and model.slower_than is None and model.rare_by is None and model.rate is None:
        part.problem((), "keeps nothing: it needs one of keep, slower_than, rare_by and rate")
    dials = DialParts(part)
    rate = 0.0 if model.rate is None else dials.number("rate", model.rate, at_least=1)
    return TailSampleTransform(
        **common,
        wait_ms=dials.milliseconds("wait", model.wait, at_least=_WAIT_MIN_MS, at_most=_WAIT_MAX_MS),
        keep=tuple(model.keep.items()),
        slower_ms=None
        if model.slower_than is None
        else dials.milliseconds("slower_than", model.slower_than, at_least=1, at_most=_SLOWER_MAX_MS),
        rare_by=model.rare_by,
        rare_first=dials.whole("rare_first", model.rare_first, at_least=1, at_most=_RARE_MAX),
        rate=rate,
        key=model.key,
        max_events=dials.whole("max_events", model.max_events, at_least=SHARDS, at_most=HELD_EVENTS_MAX),
        max_bytes=dials.whole("max_bytes", model.max_bytes, at_least=MIB, at_most=HELD_BYTES_MAX),
        condition_line=line,
        named_dials=dials.named(),
    )


TRANSFORM: Final = TransformType("tail_sample", TailSampleModel, TailSampleTransform, _compile)
