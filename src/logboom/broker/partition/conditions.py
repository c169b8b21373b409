"""Conditional appends: a record that is taken only if the latest record of its key is the one its writer knows.

A writer sends the offset of that record as a header (`records.conditions`). The comparison happens in the order of the
log, between the batch before and the batch behind, so of two writers that know the same record one is refused. Pure:
headers, and what is known of a key's latest record, in; a condition, or what is wrong with it, out. Which front end the
batch came through makes no difference.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from logboom.base.errors import ConditionFailedError, InvalidRecordError, MessageTooLargeError
from logboom.base.ids import Offset, StreamId
from logboom.records import (
    EXPECTED_OFFSET,
    READ_TO,
    STREAM_ID,
    BatchHeader,
    ConditionHeaders,
    KeyedRecord,
    keyed_records,
    records_body,
    replace_records,
    take_conditions,
)
from logboom.storage import Batch

NO_RECORD: Final = Offset(-1)
"""What a writer expects that knows no record of the key, or a tombstone alone."""

CONDITIONAL_RECORDS_MAX: Final = 10_000
"""Records in a batch with a condition: each of them is looked at on the loop. librdkafka sends no more by default."""

_NAMED_MAX: Final = 100
"""Records that an answer names, each with a sentence of its own."""
_KEY_SHOWN_MAX: Final = 64
_NUMBER: Final = re.compile(rb"[0-9]{1,19}")
_EXPECTED: Final = EXPECTED_OFFSET.decode()
_READ_TO: Final = READ_TO.decode()
_STREAM_ID: Final = STREAM_ID.decode()


class Latest(NamedTuple):
    """The latest record of a key."""

    offset: Offset
    has_value: bool
    """Whether it is no tombstone."""


class Span(NamedTuple):
    """What of a partition there is, at the moment of a comparison."""

    stream_id: StreamId
    start: Offset
    end: Offset
    """Where the batch would go; what was appended and is not committed yet lies below."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What one record of a batch expects of the records before it."""

    index: int
    """The record's place in its batch, from 0."""
    key: bytes
    expected: Offset
    """The offset of the latest record of the key, a tombstone or not; NO_RECORD for none, or a tombstone."""
    read_to: Offset | None = None
    """Below it the writer has read everything, and what it expects takes that into account."""
    stream_id: bytes | None = None
    """The stream that it has read."""

    def bound(self, start: Offset) -> Offset:
        """From where on records of the key are looked for, in a partition that begins at `start`."""
        return Offset(max(self.expected + 1, start if self.read_to is None else self.read_to, start))

    def misfit(self, span: Span) -> str | None:
        """Why this cannot be a condition of someone who has read this partition; None if it can."""
        stream = urlsafe_b64encode(span.stream_id.bytes).rstrip(b"=")
        if self.stream_id is not None and self.stream_id != stream:
            return (
                f"header {_STREAM_ID} names the stream {_shown(self.stream_id)}, and this one has the id "
                f"{stream.decode()}: a stream of this name was deleted and recreated"
            )
        for name, offset in ((_EXPECTED, self.expected + 1), (_READ_TO, self.read_to or 0)):
            if offset > span.end:
                return (
                    f"header {name} is beyond the end of the partition at offset {span.end}: it was read before the "
                    "stream was recreated, or is of another partition"
                )
        for name, known in ((_EXPECTED, self.expected), (_READ_TO, self.read_to)):
            if known is not None and NO_RECORD != known < span.start:
                return (
                    f"header {name} lies before the start of the partition at offset {span.start}: records of the key "
                    "may have been deleted, so read it again"
                )
        return None

    def compare(self, latest: Latest | None) -> str | None:
        """What is wrong, given the latest record of the key; without one there is none from `bound` on."""
        if latest is None or latest.offset == self.expected:
            return None
        if self.expected == NO_RECORD and not latest.has_value:
            return None
        found = f"the latest record of key {_shown(self.key)} is at offset {latest.offset}"
        if not latest.has_value:
            found += " and deletes it"
        if self.expected == NO_RECORD:
            return f"{found}, where header {_EXPECTED} expects none"
        return f"{found}, not at {self.expected} as header {_EXPECTED} expects"


@dataclass(frozen=True, slots=True)
class ConditionalBatch:
    """A client's batch with conditions, which are no part of its records any more."""

    batch: Batch
    conditions: tuple[Condition, ...]
    keys: tuple[KeyedRecord, ...]
    """All of its records, in order."""
    repeated: frozenset[int]
    """The indexes of records whose key an earlier record of the batch has too."""

    def own_fault(self, condition: Condition) -> str | None:
        """What is wrong with a condition because of the records before it in the same batch."""
        if condition.index in self.repeated:
            return (
                f"an earlier record of the same batch has key {_shown(condition.key)} too, so the record that header "
                f"{_EXPECTED} expects is not the latest one"
            )
        return None


def conditional_batch(
    records: bytearray | memoryview, header: BatchHeader, max_decompressed_bytes: int
) -> ConditionalBatch:
    """A validated batch in which a record has a condition.

    Raises InvalidRecordError for headers that are wrong, MessageTooLargeError for too many records.
    """
    if header.records_count > CONDITIONAL_RECORDS_MAX:
        # MESSAGE_TOO_LARGE, since a Java producer then sends the batch again in parts.
        raise MessageTooLargeError(
            f"A batch with a conditional record has {header.records_count} records, above the limit of "
            f"{CONDITIONAL_RECORDS_MAX}: send fewer in a batch."
        )
    body = records_body(records, 0, header, max_decompressed_bytes)
    plain, found = take_conditions(body, header.records_count)
    conditions: list[Condition] = []
    faults: list[tuple[int, str]] = []
    for headers in found:
        try:
            conditions.append(_condition(headers))
        except ValueError as fault:
            faults.append((headers.record, str(fault)))
    if faults:
        raise refusal(faults, InvalidRecordError)
    changed = replace_records(header, plain)
    keys = tuple(keyed_records(plain, header.records_count))
    return ConditionalBatch(changed, tuple(conditions), keys, _repeated(keys))


def _repeated(records: Sequence[KeyedRecord]) -> frozenset[int]:
    seen = set[bytes | None]()
    repeated: list[int] = []
    for index, (_, key, _, _, _) in enumerate(records):
        if key in seen:
            repeated.append(index)
        seen.add(key)
    return frozenset(repeated)


def refusal(
    faults: Sequence[tuple[int, str]], kind: type[InvalidRecordError] = ConditionFailedError
) -> InvalidRecordError:
    """The error of a batch, given what is wrong with some of its records, by their index."""
    named = [(index, _sentence(text)) for index, text in faults[:_NAMED_MAX]]
    return kind(
        named[0][1],
        record_indexes=[index for index, _ in named],
        record_messages=[text for _, text in named],
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _condition(headers: ConditionHeaders) -> Condition:
    """Raises ValueError with what is wrong."""
    if headers.key is None:
        raise ValueError(f"header {_EXPECTED} is on a record without a key, whose latest record cannot be known")
    values: dict[bytes, bytes] = {}
    for name, value in headers.fields:
        if name in values:
            raise ValueError(f"header {name.decode()} is there more than once")
        if value is None:
            raise ValueError(f"header {name.decode()} has no value")
        values[name] = value
    expected = values[EXPECTED_OFFSET]
    read_to = values.get(READ_TO)
    return Condition(
        headers.record,
        headers.key,
        NO_RECORD if expected == b"-1" else _offset(_EXPECTED, expected, "an offset, or -1 for no record"),
        None if read_to is None else _offset(_READ_TO, read_to, "an offset"),
        values.get(STREAM_ID),
    )


def _offset(name: str, value: bytes, wanted: str) -> Offset:
    if _NUMBER.fullmatch(value) is None:
        raise ValueError(f"header {name} is {_shown(value)}, and should be {wanted} in decimal digits")
    return Offset(int(value))


def _shown(value: bytes) -> str:
    """A key or a header's value for a sentence: escaped and cut short."""
    text = repr(value[:_KEY_SHOWN_MAX])[1:]
    return text if len(value) <= _KEY_SHOWN_MAX else f"{text}... ({len(value)} bytes)"
