"""One event made into many: `split_batch` is the work of a reshape's `split`.

Each element of a list becomes an event of its own, with all that the event had. Its id is the event's, a dot and the
position of the element, so that it is the same on every reading; its origin stays the record's. Knows an event's
columns. Must not know how the lists were computed.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from logboom.base.units import MIB
from logboom.pipeline.event.record_batch import with_column
from logboom.pipeline.normalise.memory import no_collections
from logboom.pipeline.plan.nodes import SPLIT_FROM
from logboom.pipeline.plan.outcomes import shown_sql
from logboom.pipeline.reshape.edits import take, to_text
from logboom.pipeline.reshape.shown_values import shortened

ALL: Final = "attributes"
PREFIX: Final = "attributes."
BODY: Final = "body"
EVENTS_MAX: Final = 10_000
"""Of one event."""
_BYTES_MAX: Final = 64 * MIB
_GROWTH_MAX: Final = 100
"""What all events of one may take, at most and in sizes of that one: whoever writes a record must not make memory of
any size of it."""
_FIXED_BYTES: Final = 100
"""Of an event, beside its texts."""
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class Split(NamedTuple):
    """What a reshape splits, and where an element goes."""

    attribute: str | None
    """The attribute that is the list, which the events of its elements do not have; None for any other expression."""
    sql: str
    """What gives the list."""
    into: str
    """`attributes.NAME`, `body`, or `attributes`: the members of each element become attributes."""


class _Parts(NamedTuple):
    """The events of one event."""

    attributes: Sequence[str]
    bodies: Sequence[str | None] | None
    """None if they have the body that it had."""
    reasons: Sequence[str | None]


def split_batch(
    split: Split, values: Sequence[Any], failed: Sequence[int], stage: str, batch: pa.RecordBatch
) -> pa.RecordBatch:
    """The events of a batch, in order, with one for each element where the value is a list, and SPLIT_FROM. `values`:
    by row, plain data or the text of a list; `failed`: the rows for which it could not be computed."""
    with no_collections():
        return _Splitting(split, batch).run(values, frozenset(failed), stage)


class _Splitting:
    def __init__(self, split: Split, batch: pa.RecordBatch) -> None:
        self._split = split
        self._batch = batch
        self._reasons: dict[int, str] = {}
        """By row of the batch."""

    def run(self, values: Sequence[Any], failed: frozenset[int], stage: str) -> pa.RecordBatch:
        alive = self._batch.column("dead_reason").is_null().to_pylist() if self._has("dead_reason") else None
        found: dict[int, _Parts] = {}
        for row, value in enumerate(values):
            if alive is not None and not alive[row]:
                continue
            if row in failed:
                reason = "the list to split by cannot be computed: its expression fails on this event"
                self._reasons[row] = f"{reason}: {shown_sql(self._split.sql)}"
                continue
            elements = _list(value)
            if elements:
                parts = self._parts(row, elements)
                if parts is not None:
                    found[row] = parts
        counts = np.ones(self._batch.num_rows, np.int64)
        for row, parts in found.items():
            counts[row] = len(parts.attributes)
        origin = np.repeat(np.arange(self._batch.num_rows), counts)
        batch = self._batch if not found else self._many(found, origin, counts)
        batch = self._with_reasons(batch, found, counts, stage)
        return with_column(batch, SPLIT_FROM, pa.array(origin.astype(np.int32)))

    def _has(self, name: str) -> bool:
        return bool(self._batch.schema.get_field_index(name) >= 0)

    # --- one event ---------------------------------------------------------------------------------------------------

    def _parts(self, row: int, elements: Sequence[Any]) -> _Parts | None:
        """The events of one event; None if it dies instead."""
        text = self._batch.column("attributes")[row].as_py()
        body: str | None = self._batch.column(BODY)[row].as_py()
        tree = {} if text is None else _decode(text)
        if self._split.attribute is not None:
            take(tree, self._split.attribute)
        into = self._split.into
        if into.startswith(PREFIX):
            take(tree, into.removeprefix(PREFIX))
        each = len(_encode(tree)) + _FIXED_BYTES + (0 if into == BODY else len(body or ""))
        whole = len(text or "") + len(body or "") + _FIXED_BYTES
        size = each * len(elements) + len(_encode(elements))
        if len(elements) > EVENTS_MAX or size > min(_BYTES_MAX, _GROWTH_MAX * whole):
            self._reasons[row] = (
                f"it would be split into {len(elements)} events of {size} bytes together; at most {EVENTS_MAX} events "
                f"are made of one, and {_BYTES_MAX} bytes or {_GROWTH_MAX} times its own size"
            )
            return None
        if into == BODY:
            texts = [_encode(tree).decode()] * len(elements)
            return _Parts(texts, [to_text(element) for element in elements], [None] * len(elements))
        if into != ALL:
            name = into.removeprefix(PREFIX)
            whole_trees = [_encode({**tree, name: element}).decode() for element in elements]
            return _Parts(whole_trees, None, [None] * len(elements))
        trees = [{**tree, **element} if isinstance(element, dict) else tree for element in elements]
        reasons = [
            None
            if isinstance(element, dict)
            else f"attributes cannot be {shortened(element)}, element {number} of a list"
            for number, element in enumerate(elements)
        ]
        return _Parts([_encode(one).decode() for one in trees], None, reasons)

    # --- the batch ---------------------------------------------------------------------------------------------------

    def _many(self, found: dict[int, _Parts], origin: Any, counts: Any) -> pa.RecordBatch:
        batch = self._batch.take(pa.array(origin))
        starts = (np.cumsum(counts) - counts).tolist()
        columns = {name: batch.column(name).to_pylist() for name in ("attributes", BODY, "event_id")}
        for row, parts in found.items():
            here = slice(starts[row], starts[row] + len(parts.attributes))
            columns["attributes"][here] = parts.attributes
            if parts.bodies is not None:
                columns[BODY][here] = parts.bodies
            columns["event_id"][here] = [f"{one}.{at}" for at, one in enumerate(columns["event_id"][here])]
        for name, values in columns.items():
            batch = with_column(batch, name, pa.array(values, pa.string()))
        return batch

    def _with_reasons(self, batch: pa.RecordBatch, found: dict[int, _Parts], counts: Any, stage: str) -> pa.RecordBatch:
        """The events that failed are dead letters: whole where none was made of them, else the one element."""
        starts = (np.cumsum(counts) - counts).tolist()
        reasons = {starts[row]: reason for row, reason in self._reasons.items()}
        for row, parts in found.items():
            reasons.update({starts[row] + at: reason for at, reason in enumerate(parts.reasons) if reason is not None})
        if not reasons:
            return batch
        for name, said in (("dead_reason", reasons), ("dead_stage", dict.fromkeys(reasons, stage))):
            values = batch.column(name).to_pylist() if batch.schema.get_field_index(name) >= 0 else None
            values = values or [None] * batch.num_rows
            for at, text in said.items():
                values[at] = text
            batch = with_column(batch, name, pa.array(values, pa.string()))
        return batch


def _list(value: Any) -> list[Any] | None:
    """The elements; None for what is not a list."""
    if isinstance(value, str) and value[:1] == "[":
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return None
    return value if isinstance(value, list) else None
