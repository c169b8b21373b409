"""Dead letters: records that could not be parsed or delivered, with the reason. Lists, shows and retries them.

Knows the log's client and the headers of a dead letter. Must not know Spark: listing dead letters needs no session.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
from confluent_kafka import Message, Producer

from logboom.client.messages import TopicPartition
from logboom.pipeline.checkpoint.keeping import KeptFile
from logboom.pipeline.edge.emitter import writer_for
from logboom.pipeline.edge.letters import Letter, ReadLetter, as_bytes, headers_of, put_letters, whole_letters
from logboom.pipeline.edge.log_writer import LogWriter
from logboom.pipeline.edge.reading import read_ranges
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan import names
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.sinks.base import Refused

_Headers = list[tuple[str, str | bytes | None]]
_TIMEOUT_S: Final = 30.0
_REQUEST_MAX_BYTES: Final = 100_000_000
"""The server's limits apply, not the client's default of 1 MB."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One dead letter, reassembled if it consists of several records."""

    id: str
    """`stream/partition/offset` of the letter itself."""
    time_ms: int
    stage: str
    reason: str
    form: str
    origin: str
    """`stream/partition/offset` of the original record."""
    source: str | None
    edge: str | None
    """The edge's stream, if a sink could not deliver."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    """The headers of the original record."""
    retry_of: str | None = None
    retried: bool = False


def common_reasons(letters: Iterable[DeadLetter], most: int) -> list[tuple[str, str, int]]:
    """Stage, reason and number of dead letters, for the most frequent reasons."""
    counted = Counter((letter.stage, letter.reason) for letter in letters)
    return [(stage, reason, count) for (stage, reason), count in counted.most_common(most)]


class RetriedLetters:
    """Records which dead letters were retried, in the pipeline's checkpoint."""

    def __init__(self, kept: KeptFile) -> None:
        self._kept = kept
        data = kept.read()
        self._ids: set[str] = set() if data is None else set(msgspec.json.decode(data, type=list[str]))

    def __contains__(self, letter: str) -> bool:
        return letter in self._ids

    def add(self, letters: Iterable[str]) -> None:
        """Record it durably."""
        self._ids.update(letters)
        self._kept.write(msgspec.json.encode(sorted(self._ids)))


def dead_streams(plan: Plan) -> dict[str, str]:
    """The dead-letter stream of each stage that may have one."""
    stages = [*(transform.name for transform in plan.transforms), *(sink.name for sink in plan.sinks)]
    return {stage: names.dead_stream(plan.name, stage) for stage in stages}


def read_letters(
    admin: StreamAdmin, plan: Plan, retried: RetriedLetters, stage: str | None = None
) -> Iterator[DeadLetter]:
    """All dead letters of a pipeline, or of one stage, stream by stream, oldest first."""
    streams = dead_streams(plan)
    if stage is not None and stage not in streams:
        raise PipelineError(f"the pipeline {plan.name} has no transform or sink '{stage}'; it has {', '.join(streams)}")
    there = admin.partitions()
    asked = {stream: there[stream] for name, stream in streams.items() if stream in there and stage in (None, name)}
    for letter in whole_letters(read_all(admin, asked)):
        yield _letter(letter, retried)


def read_all(admin: StreamAdmin, streams: Mapping[str, int]) -> Iterator[Message]:
    """Every record that these streams have now."""
    ranges = {
        (name, int(partition)): (0, end)
        for name, partitions in admin.ends(streams).items()
        for partition, end in partitions.items()
    }
    yield from read_ranges(admin.bootstrap, ranges)


def _letter(read: ReadLetter, retried: RetriedLetters) -> DeadLetter:
    name = names.origin_text(read.stream, read.partition, read.offset)
    return DeadLetter(
        id=name,
        time_ms=read.time_ms,
        stage=read.own.get(names.HEADER_STAGE, "?"),
        reason=read.own.get(names.HEADER_REASON, "?"),
        form=read.own.get(names.HEADER_FORM, names.FORM_RAW),
        origin=read.own.get(names.HEADER_ORIGIN, "?"),
        source=read.own.get(names.HEADER_SOURCE),
        edge=read.own.get(names.HEADER_EDGE),
        key=read.key,
        value=read.value,
        headers=read.headers,
        retry_of=read.own.get(names.HEADER_RETRY_OF),
        retried=name in retried,
    )


class Retried(NamedTuple):
    """The result of retrying dead letters."""

    sent: tuple[str, ...]
    """Ids of those that were sent."""
    left: dict[str, str]
    """Why the others cannot be sent, by id."""


def retry(admin: StreamAdmin, plan: Plan, letters: Sequence[DeadLetter], retried: RetriedLetters) -> Retried:
    """Send dead letters again. Each is written before it is recorded as retried. One that cannot be sent does not stop
    the others."""
    records, left = [], {}
    for letter in letters:
        try:
            records.append((letter.id, _retry_record(admin, letter)))
        except _NoRecordError as error:
            left[letter.id] = str(error)
    producer = Producer(
        {"bootstrap.servers": admin.bootstrap, "enable.idempotence": True, "message.max.bytes": _REQUEST_MAX_BYTES}
    )
    failures: list[str] = []

    def delivered(error: Any, _message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    for _, (stream, key, value, headers) in records:
        producer.produce(stream, value=value, key=key, headers=headers, on_delivery=delivered)
        producer.poll(0)
    if producer.flush(_TIMEOUT_S) or failures:
        cause = failures[0] if failures else f"the log did not accept them within {_TIMEOUT_S:.0f} s"
        raise PipelineError(f"not all dead letters could be sent again, none is marked as retried: {cause}")
    sent = tuple(name for name, _ in records)
    retried.add(sent)
    return Retried(sent, left)


class _NoRecordError(Exception):
    """The record of a dead letter does not exist any more, or never existed."""


def _retry_record(admin: StreamAdmin, letter: DeadLetter) -> tuple[str, bytes | None, bytes | None, _Headers]:
    """The target and content for a retried dead letter: the event to its edge, or the original record to its stream."""
    retry_headers: _Headers = [
        (names.HEADER_RETRY_OF, letter.id.encode()),
        (names.HEADER_ORIGIN, letter.origin.encode()),
    ]
    if letter.edge is not None:
        return letter.edge, names.RETRY_KEY + letter.id.encode(), letter.value, retry_headers
    stream, partition, offset = names.parse_origin(letter.origin)
    if letter.form == names.FORM_RAW:
        return stream, letter.key, letter.value, [*letter.headers, *retry_headers]
    if names.is_made(stream):
        stream, partition, offset = _record_of(letter)
    original = _original(admin, stream, partition, offset)
    kept: _Headers = [(str(key), as_bytes(value)) for key, value in headers_of(original)]
    return stream, as_bytes(original.key()), as_bytes(original.value()), [*kept, *retry_headers]


def _record_of(letter: DeadLetter) -> tuple[str, int, int]:
    """The original record of an event that came from a transform's state: its id contains the position."""
    try:
        event_id = str(msgspec.json.decode(letter.value or b"", type=dict[str, Any])["event_id"])
        stream, partition, position = event_id.rsplit(":", 2)
        record = stream, int(partition), int(position.partition(".")[0])
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        raise _NoRecordError("the event's id does not contain a record's position") from error
    if names.is_made(stream):
        raise _NoRecordError(f"the event has no original record: it was created by {stream.rpartition(':')[2]}")
    return record


def _original(admin: StreamAdmin, stream: str, partition: int, offset: int) -> Message:
    """The record that an event was made from, if the stream still has it."""
    for message in read_ranges(admin.bootstrap, {(stream, partition): (offset, offset + 1)}):
        if message.offset() == offset:
            return message
    raise _NoRecordError(f"the stream no longer holds the record {names.origin_text(stream, partition, offset)}")


def write_dead_letters(admin: StreamAdmin, pipeline: str, stage: str, records: Sequence[Refused]) -> None:
    """Write records of an edge to a sink's dead letters. Returns when they are committed."""
    stream = names.dead_stream(pipeline, stage)
    writer = LogWriter(admin.bootstrap)
    try:
        letters = (edge_letter(pipeline, stage, record) for record in records)
        put_letters(writer.put, TopicPartition(stream, 0), letters, admin.limits([stream])[stream])
        writer.settle()
    finally:
        writer.close()


@dataclass(frozen=True, slots=True)
class LettersFromExecutors:
    """`RefusedLetters` that can be pickled for executors; each executor process keeps one connection to the log."""

    bootstrap: str
    pipeline: str
    sink: str

    def __call__(self, refused: Sequence[Refused]) -> None:
        if not refused:
            return
        writer, stream = writer_for(self.bootstrap), names.dead_stream(self.pipeline, self.sink)
        limit = StreamAdmin(self.bootstrap).limits([stream])[stream]
        letters = (edge_letter(self.pipeline, self.sink, record) for record in refused)
        put_letters(writer.put, TopicPartition(stream, 0), letters, limit)
        writer.settle()


def edge_letter(pipeline: str, stage: str, record: Refused) -> Letter:
    """The dead letter of an edge's record; a retry sends it back to the edge."""
    return Letter(
        stage=stage,
        reason=record.reason,
        form=names.FORM_EVENT if record.is_event else names.FORM_RAW,
        origin=names.origin_text(record.stream, record.partition, record.offset),
        pipeline=pipeline,
        key=None,
        value=record.value,
        edge=record.stream,
    )
