"""Dead letters: what could not be parsed or delivered, with its reason; listed, shown, and tried again.

Knows the log's client and the headers of a dead letter. Must not know Spark: looking at dead letters takes no session.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from logboom.pipeline.checkpoint.files import make_dir, write_durably
from logboom.pipeline.edge.reading import headers_of, read_ranges
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan import names
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.sinks.base import Unreadable

_Headers = list[tuple[str, str | bytes | None]]
_POLL_S: Final = 0.2
_TIMEOUT_S: Final = 30.0
_OURS: Final = frozenset(
    (
        names.HEADER_REASON,
        names.HEADER_STAGE,
        names.HEADER_FORM,
        names.HEADER_SOURCE,
        names.HEADER_ORIGIN,
        names.HEADER_PIPELINE,
        names.HEADER_EDGE,
        names.HEADER_RETRY_OF,
    )
)


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a dead-letter stream."""

    id: str
    """`stream/partition/offset` of the letter itself."""
    time_ms: int
    stage: str
    reason: str
    form: str
    origin: str
    """`stream/partition/offset` of the record it tells of."""
    source: str | None
    edge: str | None
    """Where a sink could not deliver: the stream of the edge it reads."""
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    """Those of the original record."""
    retry_of: str | None = None
    retried: bool = False


class RetryBook:
    """Remembers which letters were tried again, in the pipeline's checkpoint."""

    def __init__(self, directory: Path) -> None:
        make_dir(directory)
        self._path = directory / "retried.json"
        self._ids: set[str] = set()
        if self._path.exists():
            self._ids = set(msgspec.json.decode(self._path.read_bytes(), type=list[str]))

    def __contains__(self, letter: str) -> bool:
        return letter in self._ids

    def add(self, letters: Iterable[str]) -> None:
        """Durably."""
        self._ids.update(letters)
        write_durably(self._path, msgspec.json.encode(sorted(self._ids)))


def dead_streams(plan: Plan) -> dict[str, str]:
    """The dead-letter stream of each stage that may have one."""
    stages = [*(transform.name for transform in plan.transforms), *(sink.name for sink in plan.sinks)]
    return {stage: names.dead_stream(plan.name, stage) for stage in stages}


def read_letters(admin: StreamAdmin, plan: Plan, retried: RetryBook, stage: str | None = None) -> Iterator[DeadLetter]:
    """All letters of a pipeline, or of one stage, stream by stream, oldest first."""
    streams = dead_streams(plan)
    if stage is not None and stage not in streams:
        raise PipelineError(f"the pipeline {plan.name} has no transform or sink '{stage}'; it has {', '.join(streams)}")
    there = admin.partitions()
    asked = {stream: there[stream] for name, stream in streams.items() if stream in there and stage in (None, name)}
    for message in read_all(admin, asked):
        yield _letter(message, retried)


def read_all(admin: StreamAdmin, streams: Mapping[str, int]) -> Iterator[Message]:
    """Every record these streams hold now."""
    ranges = {
        (name, int(partition)): (0, end)
        for name, partitions in admin.ends(streams).items()
        for partition, end in partitions.items()
    }
    yield from read_ranges(admin.bootstrap, ranges)


def _letter(message: Message, retried: RetryBook) -> DeadLetter:
    pairs = [(str(key), _bytes(value)) for key, value in headers_of(message)]
    ours = {key: value.decode(errors="replace") for key, value in pairs if key in _OURS}
    name = names.origin_text(str(message.topic()), int(message.partition() or 0), int(message.offset() or 0))
    return DeadLetter(
        id=name,
        time_ms=int(message.timestamp()[1]),
        stage=ours.get(names.HEADER_STAGE, "?"),
        reason=ours.get(names.HEADER_REASON, "?"),
        form=ours.get(names.HEADER_FORM, names.FORM_RAW),
        origin=ours.get(names.HEADER_ORIGIN, "?"),
        source=ours.get(names.HEADER_SOURCE),
        edge=ours.get(names.HEADER_EDGE),
        key=_bytes(message.key()) if message.key() is not None else None,
        value=_bytes(message.value()),
        headers=tuple((key, value) for key, value in pairs if key not in _OURS),
        retry_of=ours.get(names.HEADER_RETRY_OF),
        retried=name in retried,
    )


def _bytes(value: Any) -> bytes:
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else bytes(value)


def retry(admin: StreamAdmin, plan: Plan, letters: Sequence[DeadLetter], book: RetryBook) -> int:
    """Sends letters on their way once more; returns how many. Each is written before it is remembered."""
    producer = Producer({"bootstrap.servers": admin.bootstrap, "enable.idempotence": True})
    failures: list[str] = []

    def delivered(error: Any, _message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    for letter in letters:
        stream, key, value, headers = _again(admin, plan, letter)
        producer.produce(stream, value=value, key=key, headers=headers, on_delivery=delivered)
        producer.poll(0)
    if producer.flush(_TIMEOUT_S) or failures:
        said = failures[0] if failures else f"the log did not take them within {_TIMEOUT_S:.0f} s"
        raise PipelineError(f"not all dead letters could be sent again, none is marked as retried: {said}")
    book.add(letter.id for letter in letters)
    return len(letters)


def _again(admin: StreamAdmin, plan: Plan, letter: DeadLetter) -> tuple[str, bytes | None, bytes, _Headers]:
    """Where a letter goes and as what: back to its edge, or as the original record to the stream it came from."""
    lineage: _Headers = [(names.HEADER_RETRY_OF, letter.id.encode()), (names.HEADER_ORIGIN, letter.origin.encode())]
    if letter.edge is not None:
        return letter.edge, names.RETRY_KEY + letter.id.encode(), letter.value, lineage
    stream, partition, offset = names.parse_origin(letter.origin)
    if letter.form == names.FORM_RAW:
        return stream, letter.key, letter.value, [*letter.headers, *lineage]
    original = _original(admin, stream, partition, offset)
    kept: _Headers = [(str(key), _bytes(value)) for key, value in headers_of(original)]
    return stream, original.key() and _bytes(original.key()), _bytes(original.value()), [*kept, *lineage]


def _original(admin: StreamAdmin, stream: str, partition: int, offset: int) -> Message:
    """The record an event was made from, while the stream still holds it."""
    consumer = Consumer(
        {
            "bootstrap.servers": admin.bootstrap,
            "group.id": "logboom-dead-letters",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    try:
        consumer.assign([TopicPartition(stream, partition, offset)])
        until = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < until:
            message = consumer.poll(_POLL_S)
            if message is not None and message.error() is None and message.offset() == offset:
                return message
            if message is not None and message.error() is not None:
                break
        raise PipelineError(f"the stream no longer holds the record {names.origin_text(stream, partition, offset)}")
    except KafkaException as error:
        raise PipelineError(f"the record at {stream}/{partition}/{offset} cannot be read: {error}") from error
    finally:
        consumer.close()


def bury(bootstrap: str, pipeline: str, stage: str, records: Sequence[Unreadable]) -> None:
    """Writes records of an edge that are no events to the dead letters of a stage."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for record in records:
        headers: _Headers = [
            (names.HEADER_REASON, record.reason.encode()),
            (names.HEADER_STAGE, stage.encode()),
            (names.HEADER_FORM, names.FORM_RAW.encode()),
            (names.HEADER_EDGE, record.stream.encode()),
            (names.HEADER_ORIGIN, names.origin_text(record.stream, record.partition, record.offset).encode()),
            (names.HEADER_PIPELINE, pipeline.encode()),
        ]
        producer.produce(names.dead_stream(pipeline, stage), value=record.value, headers=headers)
        producer.poll(0)
    if producer.flush(_TIMEOUT_S):
        raise PipelineError(f"the dead letters of {stage} could not be written within {_TIMEOUT_S:.0f} s")
