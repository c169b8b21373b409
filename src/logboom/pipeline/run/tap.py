"""Shows live events at an output of a pipeline. It reads records from the log like any consumer, without affecting the
running pipeline, and runs them through the plan's own steps in this process (`dry_run`).

Knows the log's consumer and plans. Must not know Spark sessions, sinks or the command line.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, Message, TopicPartition

from logboom.base.units import MIB
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.event.json import json_values
from logboom.pipeline.plan.nodes import Plan, Sink
from logboom.pipeline.plan.upstream import unused_name, upstream
from logboom.pipeline.run.dry_run import dry_run, partitions_of, record_batch

_TURN_S: Final = 0.5
_POLL_S: Final = 0.1
_TURN_BYTES: Final = 16 * MIB
"""Limit of bytes that are read per round, except for one larger record: an event is in memory several times on its
way."""
_FIELD_CHARACTERS: Final = 4_096
"""Limit of a field's length in a line for people."""


def tap_plan(plan: Plan, edge: str) -> Plan:
    """The part of the plan that leads to an output, with a sink there."""
    return upstream(plan, [edge], [Sink(name=unused_name(plan, "tap"), line=0, inputs=(edge,))])


def live_events(
    plan: Plan,
    admin: StreamAdmin,
    keys: Mapping[str, bytes],
    records_per_s: int,
    is_over: Callable[[], bool],
    notify: Callable[[str], None],
) -> Iterator[bytes]:
    """Events that arrive at the plan's only sink from now on, as JSON, until `is_over`.

    At most `records_per_s` records are read per second, and `_TURN_BYTES` per round. If there are more, the newest are
    skipped and reported.
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
        notify(f"shows new events of {', '.join(counts)}")
        with dry_run(plan, keys) as run:
            while not is_over():
                found, is_full = _turn(consumer, max(1, int(records_per_s * _TURN_S)), is_over)
                if is_full:
                    left_out = _skip(consumer, _ends(admin, counts))
                    if left_out:
                        notify(
                            f"{left_out:,} records were skipped: there were more than {records_per_s} in a second, or "
                            f"more than {_TURN_BYTES // MIB} MiB at once"
                        )
                if found:
                    yield from json_values(run.events(record_batch(found, sources))).to_pylist()
    finally:
        consumer.close()


def _ends(admin: StreamAdmin, counts: Mapping[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(stream, int(partition), offset)
        for stream, partitions in admin.ends(counts).items()
        for partition, offset in partitions.items()
    ]


def _turn(consumer: Consumer, most: int, is_over: Callable[[], bool]) -> tuple[list[Message], bool]:
    """The records of half a second, within the limits of number and size, and whether there may be more."""
    found: list[Message] = []
    size_bytes = 0
    deadline = time.monotonic() + _TURN_S
    while (left_s := deadline - time.monotonic()) > 0 and not is_over():
        if size_bytes >= _TURN_BYTES:
            break
        if len(found) >= most:
            time.sleep(min(left_s, _POLL_S))
            continue
        message = consumer.poll(min(left_s, _POLL_S))
        if message is not None and message.error() is None:
            found.append(message)
            size_bytes += len(message.value() or b"")
    return found, len(found) >= most or size_bytes >= _TURN_BYTES


def _skip(consumer: Consumer, ends: Sequence[TopicPartition]) -> int:
    """Seek to the ends; returns how many records are skipped."""
    at = {(place.topic, place.partition): place.offset for place in consumer.position(list(ends))}
    left_out = 0
    for end in ends:
        position = at.get((end.topic, end.partition), -1)
        if 0 <= position < end.offset:
            left_out += end.offset - position
    if left_out:
        consumer.assign(list(ends))
    return left_out


def event_line(event: bytes) -> str:
    """An event as one line for people: its fields, and its attributes as JSON."""
    fields: dict[str, Any] = msgspec.json.decode(event)
    shown = [str(fields[name]) for name in ("time", "severity_text", "service", "host", "body") if fields.get(name)]
    if fields.get("attributes"):
        shown.append(msgspec.json.encode(fields["attributes"]).decode())
    return " ".join(map(_shown, shown))


def _shown(text: str) -> str:
    """The beginning of a field, with its length if it is cut."""
    if len(text) <= _FIELD_CHARACTERS:
        return text
    return f"{text[:_FIELD_CHARACTERS]}... ({len(text):,} characters; --json shows all)"
