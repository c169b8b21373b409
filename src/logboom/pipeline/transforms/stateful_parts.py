"""What transforms with a state have in common: texts and conditions that need no Spark, and answers cut into parts.

Knows Arrow and how a file's problems are reported. Must not know any particular transform.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logboom.base.units import GIB, MIB
from logboom.pipeline.findings import Part
from logboom.pipeline.plan.dials import Dial
from logboom.pipeline.plan.stateful import EXIT
from logboom.pipeline.route.conditions import simple_condition
from logboom.pipeline.route.sample_columns import true_rows
from logboom.pipeline.route.values import simple_texts
from logboom.pipeline.state.memory import SHARDS
from logboom.pipeline.stateful.grouping import Mask, Words, salted, text_words

HELD_EVENTS_MAX: Final = 100_000_000
HELD_BYTES_MAX: Final = 1024 * GIB
"""The most that a file or a dial may let wait."""
_ONE_KEY: Final = np.uint64(0)
_SIMPLE_TEXT: Final = (
    "should be a field, an attribute, or coalesce, concat and || of these; a reshape can set one before"
)
_SIMPLE_CONDITION: Final = (
    "should be made of comparisons, IN, BETWEEN, LIKE, RLIKE, IS NULL, AND, OR and NOT of fields and attributes; "
    "for anything else let a reshape set an attribute before"
)


def held_dials(max_events: int, max_bytes: int) -> tuple[Dial, Dial]:
    """The dials of a transform that holds events: how many may wait, and how many bytes."""
    return (
        Dial(setting="max_events", value=max_events, kind="whole", min=SHARDS, max=HELD_EVENTS_MAX),
        Dial(setting="max_bytes", value=max_bytes, kind="whole", min=MIB, max=HELD_BYTES_MAX),
    )


def checked_text(part: Part, key: str, sql: str) -> int:
    """Has the SQL of a key checked; its line."""
    line = part.expression(key, sql, wants="any")
    if simple_texts(sql) is None:
        part.problem(key, f"{sql!r} {_SIMPLE_TEXT}")
    return line


def checked_condition(part: Part, key: str | tuple[str | int, ...], sql: str) -> int:
    """Has the SQL of a condition checked; its line."""
    line = part.expression(key, sql)
    if simple_condition(sql) is None:
        part.problem(key, f"{sql!r} {_SIMPLE_CONDITION}")
    return line


def texts_of(sql: str, batch: pa.RecordBatch) -> pa.Array:
    """The texts of a key that was checked."""
    texts = simple_texts(sql)
    assert texts is not None, "the compiler has looked at it"
    found: pa.Array = texts(batch)
    return found


def rows_where(sql: str | None, batch: pa.RecordBatch) -> Mask:
    """The events that a condition which was checked is true of; none without one."""
    if sql is None:
        return np.zeros(batch.num_rows, np.bool_)
    condition = simple_condition(sql)
    assert condition is not None, "the compiler has looked at it"
    return true_rows(condition(batch))


def key_words(sql: str | None, batch: pa.RecordBatch) -> Words:
    """The hash of each event's key; one for all without a key."""
    return np.full(batch.num_rows, _ONE_KEY) if sql is None else text_words(texts_of(sql, batch))


def draw_words(sql: str, name: str, batch: pa.RecordBatch) -> Words:
    """The hash by which a sample of this name decides: of the key, or of the event's id where it has none."""
    return salted(text_words(pc.coalesce(texts_of(sql, batch), batch.column("event_id"))), name)


def asked_column(asked: Sequence[pa.RecordBatch], name: str) -> npt.NDArray[np.generic]:
    """A column of all that a shard was asked."""
    return np.concatenate([batch.column(name).to_numpy(zero_copy_only=False) for batch in asked])


def answers_for(
    asked: Sequence[pa.RecordBatch], exits: npt.NDArray[np.int8], columns: Mapping[str, pa.Array] | None = None
) -> tuple[pa.RecordBatch, ...]:
    """One answer for each batch that was asked, of columns over all of them."""
    whole = pa.RecordBatch.from_pydict({EXIT: pa.array(exits, pa.int8()), **(columns or {})})
    ends = np.cumsum([0, *(batch.num_rows for batch in asked)]).tolist()
    return tuple(whole.slice(start, end - start) for start, end in pairwise(ends))


def with_weights(batch: pa.RecordBatch, weights: pa.Array) -> pa.RecordBatch:
    """The events with other weights."""
    return batch.set_column(batch.schema.get_field_index("weight"), "weight", weights)
