"""Masking of whole Arrow batches.

`mask_batch` is the way in. It knows a transform, its keys and counts. It must not know how a column is masked. Dead
rows have null in every column a mask looks at, so they pass untouched; their original bytes are the dead-letter
stream's to protect.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.base.errors import LogboomError
from logboom.pipeline.mask.columns import Counts, mask_column_of, masker_for
from logboom.pipeline.normalise.memory import no_collections
from logboom.pipeline.plan.nodes import KeyRef, MaskTransform, mask_column

_KEY_BYTES_MIN: Final = 16


class MaskKeyError(LogboomError):
    """The secret key of a mask cannot be had, or is too short to be one."""


def load_keys(
    refs: tuple[KeyRef, ...], environ: Mapping[str, str] = os.environ, directory: Path = Path()
) -> dict[str, bytes]:
    """The secret keys by `KeyRef.id`; MaskKeyError where one cannot be had. To be called on the driver. Relative paths
    are below `directory`, that of the pipeline's file."""
    return {ref.id: _load_key(ref, environ, directory) for ref in refs}


def _load_key(ref: KeyRef, environ: Mapping[str, str], directory: Path) -> bytes:
    if ref.env is not None:
        text = environ.get(ref.env)
        if text is None:
            raise MaskKeyError(f"set the environment variable {ref.env}: it holds the key of a mask")
        key = text.encode()
    else:
        try:
            key = (directory / str(ref.file)).read_bytes().strip()
        except (OSError, ValueError) as error:  # ValueError: a path with a null character
            reason = getattr(error, "strerror", None) or error
            raise MaskKeyError(f"the key of a mask cannot be read from {ref.file}: {reason}") from error
    if len(key) < _KEY_BYTES_MIN:
        raise MaskKeyError(f"the key of a mask in {ref.id} is too short: give it at least {_KEY_BYTES_MIN} bytes")
    return key


def mask_batch(transform: MaskTransform, batch: pa.RecordBatch, keys: Mapping[str, bytes]) -> pa.RecordBatch:
    """The batch with secrets replaced and the count columns of the transform's labels added or raised."""
    with no_collections():
        return _mask(transform, batch, None if transform.key is None else keys[transform.key.id])


def _mask(transform: MaskTransform, batch: pa.RecordBatch, key: bytes | None) -> pa.RecordBatch:
    counts = {label: np.zeros(batch.num_rows, np.int32) for label in transform.labels}
    columns = {name: batch.column(name).cast(pa.string()) for name in _columns(transform)}
    maskers = [masker_for(rule, key) for rule in transform.rules]
    counts_by_rule = [counts[rule.label] for rule in transform.rules]
    for field in transform.fields:
        name, _, attribute = field.partition(".")
        path = tuple(attribute.split(".")) if attribute else None
        columns[name] = mask_column_of(maskers, name, path, columns[name], counts_by_rule)
    for name, column in columns.items():
        batch = batch.set_column(batch.schema.get_field_index(name), name, column)
    for label, count in counts.items():
        batch = _with_count(batch, mask_column(label), count)
    return batch


def _columns(transform: MaskTransform) -> tuple[str, ...]:
    return tuple(dict.fromkeys(field.partition(".")[0] for field in transform.fields))


def _with_count(batch: pa.RecordBatch, name: str, count: Counts) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    if index < 0:
        return batch.append_column(name, pa.array(count))
    before = pc.fill_null(batch.column(index), 0).to_numpy(zero_copy_only=False).astype(np.int32)
    return batch.set_column(index, name, pa.array(before + count, pa.int32()))


def engine_fault(transform: MaskTransform) -> str | None:
    """Why an engine cannot run these rules, None where it can: all are applied to a batch of one row.

    Each rule alone has been taken; together they become one expression per column, which has a limit of its own.
    """
    row = pa.RecordBatch.from_pydict({name: pa.array(["{}"], pa.string()) for name in _columns(transform)})
    try:
        _mask(transform, row, bytes(_KEY_BYTES_MIN))
    except pa.ArrowInvalid as error:
        return str(error)
    return None
