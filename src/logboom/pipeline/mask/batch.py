"""Masking of whole Arrow batches: `mask_batch` is the kernel of the transform `mask`.

It knows rules, fields and counts. It must not know how a column is masked. Dead rows have null in every column a mask
looks at, so they pass untouched; the dead-letter stream holds their original bytes, unmasked.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.mask.columns import ATTRIBUTES, Counts, mask_column_of, masker_for
from logboom.pipeline.mask.keys import KEY_BYTES_MIN
from logboom.pipeline.mask.names import mask_names_of
from logboom.pipeline.mask.rules import MaskRule, labels_of
from logboom.pipeline.normalise.memory import no_collections
from logboom.pipeline.plan.nodes import mask_column


def mask_batch(
    rules: tuple[MaskRule, ...],
    fields: Sequence[str],
    batch: pa.RecordBatch,
    key: bytes | None,
    *,
    names: bool = False,
) -> pa.RecordBatch:
    """The batch with secrets replaced in `fields` and the count columns of the rules' labels added or raised.

    `fields`: string columns, `attributes` for every value in it, or `attributes.NAME` for one. `key`: for rules that
    hash. `names`: the names of attributes too.
    """
    with no_collections():
        return _mask(rules, fields, batch, key, names=names)


def _mask(
    rules: tuple[MaskRule, ...], fields: Sequence[str], batch: pa.RecordBatch, key: bytes | None, *, names: bool
) -> pa.RecordBatch:
    counts = {label: np.zeros(batch.num_rows, np.int32) for label in labels_of(rules)}
    read = _columns((*fields, ATTRIBUTES)) if names else _columns(fields)
    columns = {name: batch.column(name).cast(pa.string()) for name in read}
    maskers = [masker_for(rule, key) for rule in rules]
    counts_by_rule = [counts[rule.label] for rule in rules]
    for field in fields:
        name, _, attribute = field.partition(".")
        path = tuple(attribute.split(".")) if attribute else None
        columns[name] = mask_column_of(maskers, name, path, columns[name], counts_by_rule)
    if names:
        columns[ATTRIBUTES] = mask_names_of(maskers, columns[ATTRIBUTES], counts_by_rule)
    for name, column in columns.items():
        batch = batch.set_column(batch.schema.get_field_index(name), name, column)
    for label, count in counts.items():
        batch = _with_count(batch, mask_column(label), count)
    return batch


def _columns(fields: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(field.partition(".")[0] for field in fields))


def _with_count(batch: pa.RecordBatch, name: str, count: Counts) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    if index < 0:
        return batch.append_column(name, pa.array(count))
    # Another mask has counted under the same label before.
    before = pc.fill_null(batch.column(index), 0).to_numpy(zero_copy_only=False).astype(np.int32)
    return batch.set_column(index, name, pa.array(before + count, pa.int32()))


def engine_fault(rules: tuple[MaskRule, ...], fields: Sequence[str]) -> str | None:
    """Why an engine cannot run these rules, None if it can: all are applied to a batch of one row.

    RE2 has taken each rule alone; together they become one expression per column, which has a limit of its own.
    """
    row = pa.RecordBatch.from_pydict({name: pa.array(["{}"], pa.string()) for name in _columns(fields)})
    try:
        _mask(rules, fields, row, bytes(KEY_BYTES_MIN), names=False)
    except pa.ArrowInvalid as error:
        return str(error)
    return None
