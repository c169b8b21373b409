"""What a record brings along beside its line: where it stood in which stream, when it came, and its headers.

It knows the raw columns. It must not know lines. The headers are those of the collector (`host.name`, `log.file.path`,
`log.observed_time_ms`) and of services that set `service.name` or `traceparent`.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
_KNOWN_SINCE_US: Final = 365 * 86_400_000_000
_NAMES: Final = ("host.name", "service.name", "traceparent", "log.file.path", "log.observed_time_ms")


class Origins:
    """The raw side of a batch; `take` gives that of some of its rows."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._headers = _header_columns(batch)
        stamps = batch.column("timestamp")
        micros = pc.fill_null(stamps.cast(_MICROSECONDS).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        self.reference_us: npt.NDArray[np.int64] = micros
        """The record's timestamp; at 1970 and before it means that there is none."""
        self.arrival: pa.Array = pa.array(micros, mask=micros < _KNOWN_SINCE_US).cast(_MICROSECONDS)

    def header(self, name: str) -> pa.Array | None:
        """A header as text by row, or None where no row has it."""
        return self._headers.get(name)

    def observed_time(self) -> pa.Array:
        """When the collector read the line, else when the record was made."""
        told = self.header("log.observed_time_ms")
        if told is None:
            return self.arrival
        digits = pc.match_substring_regex(told, r"\A[0-9]{1,14}\z")
        read = pc.if_else(digits, told, None).cast(pa.int64())
        return pc.coalesce(pc.multiply(read, 1000).cast(_MICROSECONDS), self.arrival)

    def event_ids(self) -> pa.Array:
        """`STREAM:PARTITION:OFFSET`: the same on every reading of the record."""
        parts = [self.batch.column(name).cast(pa.string()) for name in ("stream", "partition", "offset")]
        return pc.binary_join_element_wise(*parts, ":")


def _header_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    index = batch.schema.get_field_index("headers")
    headers = batch.column(index) if index >= 0 else None
    if headers is None or headers.null_count == len(headers) or not pa.types.is_list(headers.type):
        return {}
    parents = pc.list_parent_indices(headers)
    pairs = headers.flatten()
    if not len(pairs):
        return {}
    names, values = pc.struct_field(pairs, 0), pc.struct_field(pairs, 1)
    found: dict[str, pa.Array] = {}
    for name in _NAMES:
        is_it = pc.equal(names, name)
        if not pc.any(is_it).as_py():
            continue
        at = pc.indices_nonzero(pc.fill_null(is_it, False)).to_numpy(zero_copy_only=False)
        rows = parents.take(pa.array(at)).to_numpy(zero_copy_only=False)
        positions = np.full(len(headers), -1, np.int64)
        positions[rows[::-1]] = at[::-1]  # the first of several headers of one name
        texts = _as_texts(values)
        found[name] = texts.take(pa.array(positions, mask=positions < 0))
    return found


def _as_texts(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = (None if value is None else value.decode(errors="replace") for value in values.to_pylist())
        return pa.array(texts, pa.string())
