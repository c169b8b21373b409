"""Looks at what a pipeline makes of records, in this process and beside the running pipeline, which does not notice.

Records are read from the log as by any consumer and go through the plan's own steps (`execute.local`). Knows the log's
consumer, plans and tables. Must not know Spark sessions, sinks or the command line.
"""

import contextlib
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition

from logboom.pipeline.checkpoint.states import StateStore
from logboom.pipeline.edge.letters import headers_of
from logboom.pipeline.edge.reading import read_ranges
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.event.json import event_texts
from logboom.pipeline.event.schema import HEADERS, LIVE_SCHEMA, MICROSECONDS
from logboom.pipeline.execute.local import LocalFlow
from logboom.pipeline.plan.layout import FINAL_FROM, Layout
from logboom.pipeline.plan.nodes import Plan, Sink, StreamSource
from logboom.pipeline.plan.upstream import unused_name, upstream
from logboom.pipeline.route.rows import AT

_CHUNK: Final = 5_000
_TURN_S: Final = 0.5
_POLL_S: Final = 0.1


def tap_plan(plan: Plan, edge: str) -> Plan:
    """What leads to an output, with a sink there."""
    return upstream(plan, [edge], [Sink(name=unused_name(plan, "tap"), line=0, inputs=(edge,))])


def partitions_of(plan: Plan, admin: StreamAdmin) -> dict[str, tuple[StreamSource, int]]:
    """The streams that there are of a plan's sources: by name the source and how many partitions there are."""
    there = admin.partitions()
    return {
        name: (source, count)
        for source in plan.sources
        for name, count in there.items()
        if (name in source.streams if source.pattern is None else re.fullmatch(source.pattern, name))
    }


def record_batch(messages: Sequence[Message], sources: Mapping[str, tuple[StreamSource, int]]) -> pa.RecordBatch:
    """Records as the first step of a layout takes them."""
    return pa.RecordBatch.from_pydict(
        {
            "source": pa.array([sources[str(one.topic())][0].name for one in messages], pa.string()),
            "stream": pa.array([one.topic() for one in messages], pa.string()),
            "partition": pa.array([one.partition() for one in messages], pa.int32()),
            "offset": pa.array([one.offset() for one in messages], pa.int64()),
            "timestamp": pa.array([one.timestamp()[1] * 1_000 for one in messages], pa.int64()).cast(MICROSECONDS),
            "key": pa.array([one.key() for one in messages], pa.binary()),
            "value": pa.array([one.value() for one in messages], pa.binary()),
            "headers": pa.array([list(headers_of(one)) for one in messages], HEADERS),
        }
    )


class _Look:
    """Takes records through a plan, chunk by chunk, with a state of its own where its transforms have one: they know
    nothing of what the running pipeline remembers."""

    def __init__(self, flow: LocalFlow, layout: Layout, directory: str) -> None:
        self._flow = flow
        self._layout = layout
        self._states = StateStore(Path(directory) / "state")
        self._chunks = 0

    def events(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The events that come to a sink of the plan; dead and dropped records come to none."""
        stateful = self._states.begin(self._layout, self._chunks, int(time.time() * 1_000))
        rows = self._flow.rows(batch, stateful)
        if stateful is not None:
            self._states.keep(stateful)
        self._chunks += 1
        is_out = pa.compute.greater_equal(rows.column(AT), FINAL_FROM)
        return rows.filter(pa.compute.and_(is_out, pa.compute.is_null(rows.column("dead_reason"))))


@contextlib.contextmanager
def _look(plan: Plan, keys: Mapping[str, bytes]) -> Iterator[_Look]:
    layout = Layout(plan)
    with LocalFlow(layout, keys) as flow, tempfile.TemporaryDirectory(prefix="logboom-look-") as directory:
        yield _Look(flow, layout, directory)


def live_events(
    plan: Plan,
    admin: StreamAdmin,
    keys: Mapping[str, bytes],
    records_per_s: int,
    is_over: Callable[[], bool],
    notify: Callable[[str], None],
) -> Iterator[bytes]:
    """Events that come to the plan's one sink from now on, as JSON, until `is_over`.

    At most `records_per_s` records are read; where more come, the newest are passed over, which is told.
    """
    sources = partitions_of(plan, admin)
    consumer = Consumer(
        {
            "bootstrap.servers": admin.bootstrap,
            "group.id": "logboom-pipeline-tap",  # required by the client; nothing is committed
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "queued.max.messages.kbytes": 8_192,
        }
    )
    counts = {name: count for name, (_, count) in sources.items()}
    try:
        consumer.assign(_ends(admin, counts))
        with _look(plan, keys) as look:
            while not is_over():
                found = _turn(consumer, max(1, int(records_per_s * _TURN_S)), is_over)
                if len(found) >= max(1, int(records_per_s * _TURN_S)):
                    left_out = _skip(consumer, _ends(admin, counts))
                    if left_out:
                        notify(f"{left_out:,} records were passed over: more came than {records_per_s} in a second")
                if found:
                    yield from as_json(look.events(record_batch(found, sources)))
    finally:
        consumer.close()


def as_json(events: pa.RecordBatch) -> list[bytes]:
    """Events as sinks get them."""
    weights = pa.compute.fill_null(events.column("weight"), 1.0).to_numpy(zero_copy_only=False)
    texts = event_texts(events.select(LIVE_SCHEMA.names), weights)
    return [text.encode() for text in texts.to_pylist()]


def _ends(admin: StreamAdmin, counts: Mapping[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(stream, int(partition), offset)
        for stream, partitions in admin.ends(counts).items()
        for partition, offset in partitions.items()
    ]


def _turn(consumer: Consumer, most: int, is_over: Callable[[], bool]) -> list[Message]:
    """The records of half a second, and not more than so many."""
    found: list[Message] = []
    deadline = time.monotonic() + _TURN_S
    while (left_s := deadline - time.monotonic()) > 0 and not is_over():
        if len(found) >= most:
            time.sleep(min(left_s, _POLL_S))
            continue
        message = consumer.poll(min(left_s, _POLL_S))
        if message is not None and message.error() is None:
            found.append(message)
    return found


def _skip(consumer: Consumer, ends: Sequence[TopicPartition]) -> int:
    """Goes on at the ends; how many records lie between."""
    at = {(place.topic, place.partition): place.offset for place in consumer.position(list(ends))}
    left_out = 0
    for end in ends:
        position = at.get((end.topic, end.partition), -1)
        if 0 <= position < end.offset:
            left_out += end.offset - position
    if left_out:
        consumer.assign(list(ends))
    return left_out


def count_replay(
    plan: Plan, admin: StreamAdmin, keys: Mapping[str, bytes], from_ms: int, to_ms: int
) -> tuple[int, int]:
    """How many records of the sources a replay reads, and how many events come to its sink."""
    sources = partitions_of(plan, admin)
    ranges = ranges_since(admin, {name: count for name, (_, count) in sources.items()}, from_ms)
    records = events = 0
    chunk: list[Message] = []
    with _look(plan, keys) as look:
        for message in read_ranges(admin.bootstrap, ranges):
            if from_ms <= message.timestamp()[1] < to_ms:
                chunk.append(message)
            if len(chunk) == _CHUNK:
                events += look.events(record_batch(chunk, sources)).num_rows
                records, chunk = records + len(chunk), []
        if chunk:
            events += look.events(record_batch(chunk, sources)).num_rows
    return records + len(chunk), events


def ranges_since(admin: StreamAdmin, counts: Mapping[str, int], from_ms: int) -> dict[tuple[str, int], tuple[int, int]]:
    """By partition: from the first record of a moment or later to the end."""
    starts, ends = admin.since(counts, from_ms), admin.ends(counts)
    return {
        (stream, int(number)): (starts[stream][number] if starts[stream][number] >= 0 else end, end)
        for stream, partitions in ends.items()
        for number, end in partitions.items()
    }


def event_line(event: bytes) -> str:
    """An event as one short line for a person."""
    fields: dict[str, Any] = msgspec.json.decode(event)
    return " ".join(
        str(fields[name]) for name in ("time", "severity_text", "service", "host", "body") if fields.get(name)
    )


def moment_text(at_ms: int) -> str:
    """A moment as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="seconds")
