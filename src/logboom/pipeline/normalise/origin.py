"""The parts of a record other than its line: its position in its stream, its timestamp and its headers.

Knows the raw columns. Must not know lines. The headers are those of the collector (`host.name`, LINE_IDENTITY,
`log.observed_time_ms`) and of services that set `service.name` or `traceparent`.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.schema import MICROSECONDS
from logboom.pipeline.event.utf8 import decode_utf8
from logboom.pipeline.normalise.rows import FieldColumn

_NO_TIMESTAMP_US: Final = -1_000
"""Kafka's RecordBatch.NO_TIMESTAMP, -1 ms: neither the producer nor the broker set one."""
LINE_IDENTITY: Final = ("log.file.path", "log.file.id", "log.file.position")
"""Headers of the collector that become attributes: where a line was read. Together with `host`, the id and the position
are the same for every repeat of a line and differ for all other lines."""
_POSITION: Final = "log.file.position"
_NAMES: Final = ("host.name", "service.name", "traceparent", "log.observed_time_ms", *LINE_IDENTITY)


class Origins:
    """The positions, timestamps and headers of a raw batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._headers = _header_columns(batch)
        stamps = batch.column("timestamp")
        micros = pc.fill_null(stamps.cast(MICROSECONDS).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        self.reference_us: npt.NDArray[np.int64] = micros
        """The record's timestamp, 0 if it has none. Values in 1970 and before are not used for a line's year."""
        missing = stamps.is_null().to_numpy(zero_copy_only=False) | (micros == _NO_TIMESTAMP_US)
        self.arrival: pa.Array = pa.array(micros, mask=missing).cast(MICROSECONDS)
        """The record's timestamp, whatever its value; null if the record has none."""

    def header(self, name: str) -> pa.Array | None:
        """A header as text for each row; None if no row has it."""
        return self._headers.get(name)

    def line_identity(self) -> list[FieldColumn]:
        """The collector's headers about where each line was read: a column, with nulls, for each that some row has."""
        found = []
        for name in LINE_IDENTITY:
            texts = self.header(name)
            if texts is not None and name == _POSITION:
                texts = pc.if_else(pc.match_substring_regex(texts, r"\A(?:0|[1-9][0-9]{0,17})\z"), texts, None)
            if texts is not None:
                found.append(FieldColumn(name, texts, quoted=name != _POSITION))
        return found

    def observed_time(self) -> pa.Array:
        """The time at which the collector read the line, else the record's timestamp."""
        observed = self.header("log.observed_time_ms")
        if observed is None:
            return self.arrival
        digits = pc.match_substring_regex(observed, r"\A[0-9]{1,14}\z")
        read = pc.if_else(digits, observed, None).cast(pa.int64())
        return pc.coalesce(pc.multiply(read, 1000).cast(MICROSECONDS), self.arrival)

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
        positions[rows[::-1]] = at[::-1]  # the first of several headers with the same name
        texts = decode_utf8(values)
        taken = texts.take(pa.array(positions, mask=positions < 0))
        found[name] = pc.if_else(pc.equal(taken, ""), None, taken)  # an empty header counts as missing
    return found
