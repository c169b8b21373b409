"""Converts rows at their final place to records: stream, partition, key, value and headers.

Knows Arrow, places and the JSON form of an event. Must not know how records are sent, nor Spark. Records of one
place keep the order of their rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.client.messages import TopicPartition
from logboom.client.partitioner import murmur2
from logboom.pipeline.edge.letters import Letter, packed_records, usable_bytes
from logboom.pipeline.edge.record_columns import Packed, RecordColumns, select
from logboom.pipeline.event.attributes import attribute_texts
from logboom.pipeline.event.fields import ATTRIBUTES
from logboom.pipeline.event.json import closed_texts, event_texts, open_texts
from logboom.pipeline.plan import names
from logboom.pipeline.plan.layout import FINAL_FROM
from logboom.pipeline.route.rows import Index, Rows
from logboom.records import Record


@dataclass(frozen=True, slots=True)
class OutputBinding:
    """How records leave by one place."""

    stream: str
    partitions: int
    node: str
    dead: bool = False
    why: str = ""
    """For dead letters: the reason of rows without a reason of their own."""
    announced: bool = False
    """Whether its records carry their ids as headers: by these the readers of a stream drop repeats."""
    body_only: bool = False
    key: str | None = None
    """The text column or attribute (`attributes.NAME`) whose text is the record's key and chooses its partition."""
    fixed_key: bytes | None = None
    """The key of every record if no column is the key; the partition still depends on the origin."""
    too_large: int | None = None
    """The place for records that are too large for this one."""
    max_message_bytes: int = names.MAX_MESSAGE_BYTES_DEFAULT
    """The largest batch that the stream takes."""


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Records that leave by one place, in the order in which they must be in batches."""

    count: int
    bytes_out: int
    """Of the values."""
    pieces: Iterable[tuple[TopicPartition, Packed]]


@dataclass(frozen=True, slots=True)
class RecordEncoder:
    """Encodes rows as records of the streams that their places are bound to."""

    pipeline: str
    bindings: Mapping[int, OutputBinding]
    """By place."""

    def encoded(self, rows: Rows) -> Iterator[tuple[int, EncodedRows]]:
        """The records of all leaving rows, by place. Records that are too large leave by another place."""
        live = [code for code, binding in self.bindings.items() if not binding.dead]
        leaving = np.flatnonzero(np.isin(rows.at, live))
        if len(leaving):
            yield from self._live(rows, leaving)
        dead = np.flatnonzero((rows.at >= FINAL_FROM) & ~np.isin(rows.at, live))
        for code in np.unique(rows.at[dead]).tolist():
            yield code, self._letters(code, (_Dead(rows, row) for row in dead[rows.at[dead] == code].tolist()))

    def _live(self, rows: Rows, leaving: Index) -> Iterator[tuple[int, EncodedRows]]:
        encoder = _RowEncoder(rows, leaving)
        at = rows.at[leaving]
        for code in np.unique(at).tolist():
            here = np.flatnonzero(at == code)
            binding = self.bindings[code]
            values = encoder.values(binding, here)
            large = np.flatnonzero(encoder.sizes(binding, here, values) > usable_bytes(binding.max_message_bytes))
            if len(large):
                assert binding.too_large is not None
                texts = values.take(pa.array(large)).to_pylist()
                dead = [
                    _Dead(rows, int(leaving[here[row]]), (text, binding))
                    for row, text in zip(large.tolist(), texts, strict=True)
                ]
                yield binding.too_large, self._letters(binding.too_large, dead)
                kept = np.setdiff1d(np.arange(len(here)), large)
                here, values = here[kept], values.take(pa.array(kept))
            if len(here):
                yield code, encoder.encoded(binding, here, values)

    def _letters(self, code: int, dead: Iterable["_Dead"]) -> EncodedRows:
        """Dead letters, one by one: they are few, and their headers differ."""
        binding = self.bindings[code]
        by_partition: dict[TopicPartition, list[Record]] = {}
        count = bytes_out = 0
        for one in dead:
            letter = one.letter(binding, self.pipeline)
            tp = TopicPartition(binding.stream, key_partition(letter.key, one.partition_hash, binding.partitions))
            by_partition.setdefault(tp, []).extend(letter.records(binding.max_message_bytes))
            count, bytes_out = count + 1, bytes_out + len(letter.value or b"")
        pieces = [(tp, piece) for tp, records in by_partition.items() for piece in packed_records(records)]
        return EncodedRows(count, bytes_out, pieces)


class _Dead:
    """One row that becomes a dead letter; `refused`: the record that could not be written, and its place."""

    def __init__(self, rows: Rows, row: int, refused: tuple[bytes, OutputBinding] | None = None) -> None:
        self._one = rows.batch.slice(int(rows.of_batch[row]), 1)
        self._weight = rows.weights[row : row + 1]
        self._refused = refused

    @property
    def partition_hash(self) -> int:
        return int(partition_hashes(self._one)[0])

    def _value(self, name: str) -> Any:
        return self._one.column(name)[0].as_py()

    def letter(self, binding: OutputBinding, pipeline: str) -> Letter:
        """Original bytes, key and headers if the row still has them (events do not), else the event."""
        reason = self._value("dead_reason")
        # A row without attributes was read by no rule: its original record is in the row (events have none).
        is_event = reason is None or self._value("attributes") is not None
        form = names.FORM_EVENT if is_event else names.FORM_RAW
        if self._refused is not None:
            value, refusing = self._refused
            reason = (
                f"the event takes {len(value)} bytes, more than {refusing.stream} accepts in one record "
                f"(max.message.bytes is {refusing.max_message_bytes})"
            )
        elif not is_event:
            value = self._value("value")
        else:
            reason = reason or binding.why
            value = event_texts(self._one, self._weight)[0].as_py().encode()
        return Letter(
            stage=binding.node,
            reason=reason,
            form=form,
            origin=names.origin_text(self._value("stream"), self._value("partition"), self._value("offset")),
            pipeline=pipeline,
            key=self._value("key"),
            value=value,
            headers=tuple((pair["key"], pair["value"]) for pair in self._value("headers") or ()),
            source=self._value("source"),
        )


class _RowEncoder:
    """The texts of a batch's leaving rows, each encoded once however many copies there are."""

    def __init__(self, rows: Rows, leaving: Index) -> None:
        of_batch = rows.of_batch[leaving]
        self._base, self._row = np.unique(of_batch, return_inverse=True)
        whole = len(self._base) == rows.batch.num_rows
        self._events = rows.batch if whole else rows.batch.take(pa.array(self._base))
        weights = rows.weights[leaving]
        if (weights == 1.0).all():
            self._texts, self._weights = event_texts(self._events, None), None
        else:
            self._texts, self._weights = open_texts(self._events), weights
        self._partition_of = partition_hashes(self._events)
        self._origins: pa.Array | None = None
        self._keys_of: dict[str, pa.Array] = {}

    def values(self, binding: OutputBinding, here: Index) -> pa.Array:
        """The contents of the records of these leaving rows."""
        if binding.body_only:
            return self._of(self._events.column("body"), here).cast(pa.binary())
        texts = self._of(self._texts, here)
        return (texts if self._weights is None else closed_texts(texts, self._weights[here])).cast(pa.binary())

    def sizes(self, binding: OutputBinding, here: Index, values: pa.Array) -> Index:
        """The approximate size of each record without its fixed headers."""
        lengths = self.lengths(values)
        if binding.key is None:
            return lengths
        keys: Index = lengths + self.lengths(self._of(self._keys(binding.key), here))
        return keys

    @staticmethod
    def lengths(values: pa.Array) -> Index:
        lengths: Index = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
        return lengths

    def encoded(self, binding: OutputBinding, here: Index, values: pa.Array) -> EncodedRows:
        hashes = self._partition_of[self._row[here]]
        if binding.key is None:
            keys = (
                None if binding.fixed_key is None else pa.repeat(pa.scalar(binding.fixed_key, pa.binary()), len(here))
            )
            partitions = hashes % binding.partitions
        else:
            keys = self._of(self._keys(binding.key), here).cast(pa.binary())
            pairs = zip(keys.to_pylist(), hashes.tolist(), strict=True)
            partitions = np.array([key_partition(key, other, binding.partitions) for key, other in pairs], np.int64)
        records = RecordColumns(values, keys, self._ids(here) if binding.announced else ())
        size = int(pc.sum(self.lengths(values)).as_py() or 0)
        return EncodedRows(len(here), size, _pieces(binding.stream, partitions, records))

    def _keys(self, name: str) -> pa.Array:
        """The text of a column or attribute by row."""
        if name not in self._keys_of:
            attribute = name.removeprefix(ATTRIBUTES)
            is_attribute = attribute != name
            attributes = self._events.column("attributes")
            self._keys_of[name] = attribute_texts(attributes, attribute) if is_attribute else self._events.column(name)
        return self._keys_of[name]

    def _of(self, column: pa.Array, here: Index) -> pa.Array:
        rows = self._row[here]
        if len(rows) == len(column) and (rows[1:] > rows[:-1]).all():
            return column
        return column.take(pa.array(rows))

    def _ids(self, here: Index) -> tuple[tuple[str, pa.Array], ...]:
        event_ids = self._of(self._events.column("event_id"), here).cast(pa.binary())
        if self._origins is None:
            parts = [self._events.column(name).cast(pa.string()) for name in ("stream", "partition", "offset")]
            self._origins = pc.binary_join_element_wise(*parts, "/")
        origins = self._of(self._origins, here).cast(pa.binary())
        return (names.HEADER_EVENT_ID, event_ids), (names.HEADER_ORIGIN, origins)


def _pieces(stream: str, partitions: Index, records: RecordColumns) -> Iterator[tuple[TopicPartition, Packed]]:
    for partition in np.unique(partitions).tolist():
        rows = np.flatnonzero(partitions == partition)
        mine = records if len(rows) == len(partitions) else select(records, rows)
        yield from ((TopicPartition(stream, partition), piece) for piece in mine.packed())


def key_partition(key: bytes | None, origin_hash: int, partitions: int) -> int:
    """The partition by key, as Java's clients choose it; without a key by the origin, which keeps the order."""
    return (origin_hash if key is None else _murmur2(key) & 0x7FFFFFFF) % partitions


def partition_hashes(events: pa.RecordBatch) -> Index:
    """By row a number that depends only on the partition of origin, so that its events stay in order."""
    streams = events.column("stream").dictionary_encode()
    hashes = np.array([stream_hash(stream) for stream in streams.dictionary.to_pylist()], np.int64)
    partitions = events.column("partition").to_numpy(zero_copy_only=False).astype(np.int64)
    found: Index = hashes[streams.indices.to_numpy(zero_copy_only=False)] + partitions
    return found


_WORD: Final = (1 << 32) - 1
_murmur2: Final = lru_cache(maxsize=65_536)(murmur2)


@lru_cache(maxsize=4096)
def stream_hash(name: str) -> int:
    """Murmur3 (x86, 32 bit, seed 42) of a name as in Spark's `hash`, which mixes the last bytes one by one. Earlier
    versions chose partitions by it, so a batch that is repeated after an upgrade uses the same partitions.

    >>> stream_hash("web")
    458784764
    """
    data = name.encode()
    state, whole = 42, len(data) & ~3
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, whole, 4)]
    words += [(byte - 256 if byte > 127 else byte) & _WORD for byte in data[whole:]]
    for word in words:
        word = word * 0xCC9E2D51 & _WORD
        word = (word << 15 | word >> 17) * 0x1B873593 & _WORD
        state ^= word
        state = ((state << 13 | state >> 19) & _WORD) * 5 + 0xE6546B64 & _WORD
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & _WORD
    state = (state ^ state >> 13) * 0xC2B2AE35 & _WORD
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state
