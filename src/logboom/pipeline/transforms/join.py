"""The transform `join`: events of two inputs that have the same key become one. The work is
`logboom.pipeline.stateful.interval_join`."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, ClassVar, Final, Literal, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from logboom.base.settings import DurationMs, SizeBytes, Texts
from logboom.base.units import GIB, MIB
from logboom.pipeline.event.record_batch import whole_batch
from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.findings import Part
from logboom.pipeline.plan.dials import Dial, DialValues
from logboom.pipeline.plan.stateful import EXIT, TAKEN, Advanced, Asked, BatchContext, State, StatefulTransform
from logboom.pipeline.state.memory import SHARDS
from logboom.pipeline.stateful import interval_join
from logboom.pipeline.stateful.grouping import sizes_of, text_words, times_ms
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType
from logboom.pipeline.transforms.dialled import Dialled, DialParts, fields_of, time_dial
from logboom.pipeline.transforms.stateful_parts import (
    HELD_BYTES_MAX,
    HELD_EVENTS_MAX,
    checked_text,
    held_dials,
    texts_of,
)

_WINDOW_MIN_MS, _DAY_MS = 1_000, 86_400_000
_MATCHES_MAX: Final = 10_000


class JoinModel(TransformModel):
    """Brings events of two inputs together."""

    type: Literal["join"]
    inputs: Texts = Field(default_factory=list)
    """Stays empty: what it reads is `left` and `right`."""

    left: Texts = Field(min_length=1)
    """Names of inputs whose events keep their fields; `*` stands for any characters."""

    right: Texts = Field(min_length=1)
    """Names of inputs whose events become an attribute of the left ones."""

    on: str = "trace_id"
    """The key; events without one are not joined."""

    on_right: str | None = None
    """The key of right events, where it is another one."""

    into: str = Field(min_length=1)
    """The attribute of a joined event that holds the right one: fields as in the event, attributes in `attributes`."""

    window: Dialled[Annotated[DurationMs, Field(ge=_WINDOW_MIN_MS, le=_DAY_MS)]] = 60_000
    """How far apart the times of two events may be, and how long an event waits for another after it has come."""

    unmatched: Literal["separate", "merged"] = "separate"
    """Where events go that met nobody: to the outputs `left` and `right`, or with the joined ones."""

    max_matches: Dialled[Annotated[int, Field(ge=1, le=_MATCHES_MAX)]] = 100
    """With how many of the other side an event is joined at most in one batch."""

    max_events: Dialled[Annotated[int, Field(ge=SHARDS, le=HELD_EVENTS_MAX)]] = 1_000_000
    """How many events may wait; beyond it the oldest ones cease to wait."""

    max_bytes: Dialled[Annotated[SizeBytes, Field(ge=MIB, le=HELD_BYTES_MAX)]] = GIB
    """How many bytes may wait."""


class JoinTransform(StatefulTransform, frozen=True, kw_only=True, tag="join"):
    """Holds events for `window_ms`. `right`: what is written there, by which inputs are told apart."""

    drops_held: ClassVar[bool] = True

    right: tuple[str, ...]
    on: str
    on_right: str
    into: str
    window_ms: int
    merged: bool
    max_matches: int
    max_events: int
    max_bytes: int
    condition_line: int = 0

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.name,) if self.merged else (self.name, f"{self.name}.left", f"{self.name}.right")

    @property
    def settings_with_dials(self) -> tuple[Dial, ...]:
        return (
            time_dial("window", self.window_ms, at_least=_WINDOW_MIN_MS, at_most=_DAY_MS),
            Dial(setting="max_matches", value=self.max_matches, kind="whole", min=1, max=_MATCHES_MAX),
            *held_dials(self.max_events, self.max_bytes),
        )

    def turned(self, values: DialValues) -> Self:
        return msgspec.structs.replace(self, **fields_of(values, {"window": "window_ms"}))

    @property
    def drop_rules(self) -> tuple[str, ...]:
        return (f"{self.name}.joined",)

    @property
    def leaves_by_time(self) -> bool:
        return True

    @property
    def state_form(self) -> str:
        return f"events of {', '.join(self.inputs)} by {self.on} and {self.on_right}"

    def ask(self, batch: pa.RecordBatch, inputs: npt.NDArray[np.int8], context: BatchContext) -> Asked:
        is_right = np.array([self._is_right(edge) for edge in self.inputs])[inputs]
        right_rows = pa.array(is_right)
        keys = pa.compute.if_else(right_rows, texts_of(self.on_right, batch), texts_of(self.on, batch))
        has_key = keys.is_valid().to_numpy(zero_copy_only=False)
        alone = np.where(is_right, 0 if self.merged else 2, 0 if self.merged else 1)
        exits = np.where(has_key, TAKEN, alone).astype(np.int8)
        words = text_words(keys)
        rows = batch.select(LIVE_SCHEMA.names)
        for name, values in (
            (interval_join.KEY, words),
            (interval_join.SIDE, np.where(is_right, interval_join.RIGHT, interval_join.LEFT)),
            (interval_join.TIME, times_ms(batch, context.wall_ms)),
            (interval_join.SIZE, sizes_of(batch)),
        ):
            rows = rows.append_column(name, pa.array(values))
        return Asked(rows.filter(pa.array(has_key)), words[has_key], exits)

    def _is_right(self, edge: str) -> bool:
        return any(fnmatchcase(edge, pattern) for pattern in self.right)

    def advance(self, state: State, asked: Sequence[pa.RecordBatch], context: BatchContext) -> Advanced:
        rules = interval_join.JoinRules(
            window_ms=self.window_ms,
            matches_max=self.max_matches,
            prefix=self.into,
            events_max=max(1, self.max_events // SHARDS),
            bytes_max=self.max_bytes // SHARDS,
        )
        rows = pa.Table.from_batches(asked) if asked else interval_join.ROWS.empty_table()
        joined = interval_join.advance(rules, state, rows, context.wall_ms, ends=context.ends)
        return Advanced(
            state=joined.state,
            made=self._leaving(joined),
            dropped={self.drop_rules[0]: joined.met} if joined.met else {},
            held=joined.held,
            remembered=joined.held,
            counts={what: count for what, count in (("early", joined.early), ("cut", joined.cut)) if count},
        )

    def _leaving(self, joined: interval_join.Joined) -> pa.RecordBatch | None:
        pieces = []
        if joined.pairs is not None:
            exits = pa.array(np.zeros(joined.pairs.num_rows, np.int8))
            pieces.append(pa.Table.from_batches([joined.pairs]).append_column(EXIT, exits))
        if joined.alone.num_rows:
            sides = joined.alone.column(interval_join.SIDE).to_numpy()
            exits = np.where(sides == interval_join.RIGHT, 2, 1) * (0 if self.merged else 1)
            pieces.append(joined.alone.select(LIVE_SCHEMA.names).append_column(EXIT, pa.array(exits.astype(np.int8))))
        return whole_batch(pa.concat_tables(pieces)) if pieces else None


def _compile(model: JoinModel, common: CommonFields, part: Part) -> JoinTransform:
    if model.inputs:
        part.problem("inputs", "a join reads its inputs left and right")
    line = checked_text(part, "on", model.on)
    if model.on_right is not None:
        line = checked_text(part, "on_right", model.on_right)
    for name in model.left:
        if any(fnmatchcase(name, pattern) or fnmatchcase(pattern, name) for pattern in model.right):
            part.problem("right", f"has {name!r}, which is also in left; give other inputs")
    dials = DialParts(part)
    return JoinTransform(
        name=common["name"],
        line=common["line"],
        inputs=(*model.left, *model.right),
        right=tuple(model.right),
        on=model.on,
        on_right=model.on_right or model.on,
        into=model.into,
        window_ms=dials.milliseconds("window", model.window, at_least=_WINDOW_MIN_MS, at_most=_DAY_MS),
        merged=model.unmatched == "merged",
        max_matches=dials.whole("max_matches", model.max_matches, at_least=1, at_most=_MATCHES_MAX),
        max_events=dials.whole("max_events", model.max_events, at_least=SHARDS, at_most=HELD_EVENTS_MAX),
        max_bytes=dials.whole("max_bytes", model.max_bytes, at_least=MIB, at_most=HELD_BYTES_MAX),
        condition_line=line,
        named_dials=dials.named(),
    )


TRANSFORM: Final = TransformType("join", JoinModel, JoinTransform, _compile, input_keys=("left", "right"))
