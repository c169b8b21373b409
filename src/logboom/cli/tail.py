"""`logboom tail`: read a stream from any position, to its end or until stopped."""

import contextlib
import heapq
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any, Final

import typer
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from logboom.base.subjects import matches, pattern_fault
from logboom.cli.client import Bounds, admin, bounds, client_config, explain, find_stream, offsets_at_time
from logboom.cli.common import BOOTSTRAP_DEFAULT, Bootstrap, fail, note, text_or_base64
from logboom.cli.moments import ago_ms, clock_text

_LAST_RECORDS: Final = 10
_POLL_S: Final = 0.5
_BATCH: Final = 1_000
_SUBJECT_HEADER: Final = "logboom-subject"
"""Where a message of NATS has its subject; the last of that name."""
_SILENT_MAX_S: Final = 20.0

Where = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """Where reading starts and ends in each partition."""

    stream: str
    starts: dict[int, int]
    ends: dict[int, int]
    """Offsets at which a read that does not follow is done."""
    count: int | None
    """Most records to print; None for all."""
    last: int | None
    """Print only the last N records, in order of time."""
    follow: bool
    subject: str | None = None
    """Only what was published on such a subject of NATS."""


def tail(
    stream: Annotated[str, typer.Argument(metavar="STREAM", show_default=False)],
    offset: Annotated[int | None, typer.Option(min=0, help="Start at this offset.")] = None,
    earliest: Annotated[bool, typer.Option("--earliest", help="Start at the first record there is.")] = False,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Start so long ago: 30s, 15m, 12h, 7d.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what arrives, until Ctrl-C.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Read this partition alone.")] = None,
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Only messages published on such a subject of NATS, orders.*.paid or orders.>; without a start the "
            "whole stream is read for them.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show partition, offset, time and key before each value.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="Print each record as a line of JSON.")] = False,
) -> None:
    """Print the values of a stream's records.

    Without a start, the last 10 records (or --count of them). It ends where the stream ended when it began, unless
    --follow is given.
    """
    if sum((offset is not None, earliest, since is not None)) > 1:
        fail("--offset, --earliest and --since exclude each other: give one of them")
    if subject is not None and (fault := pattern_fault(subject)) is not None:
        fail(f"--subject {subject!r} {fault}")
    held = _held(stream, partition, bootstrap)
    plan = replace(_plan(stream, held, offset, earliest, since, count, follow, bootstrap), subject=subject)
    if subject is not None and plan.last is not None:
        plan = replace(plan, starts={index: each.first for (_, index), each in held.items()})
    show = _as_json if as_json else _as_verbose if verbose else _as_value
    printed = 0
    try:
        with _consumer(bootstrap, plan) as consumer:
            for message in islice(_chosen(consumer, plan), plan.count):
                sys.stdout.buffer.write(show(message))
                printed += 1
                if follow:
                    sys.stdout.buffer.flush()
        sys.stdout.buffer.flush()
    except KeyboardInterrupt:
        return  # the ordinary way to end a --follow
    except BrokenPipeError:
        # The reader of our output closed the pipe: nothing more may be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    if not printed and sys.stderr.isatty():
        note(f"{stream} holds nothing to show there")


def _held(stream: str, partition: int | None, bootstrap: str) -> dict[Where, Bounds]:
    """What the partitions hold that are to be read."""
    client = admin(bootstrap)
    topic = find_stream(client, bootstrap, stream)
    if partition is not None and partition not in topic.partitions:
        fail(f"stream {stream!r} has no partition {partition}: it has 0 to {len(topic.partitions) - 1}")
    found = bounds(client, {stream: len(topic.partitions)})
    wanted = [(stream, index) for index in sorted(topic.partitions) if partition in (None, index)]
    for where in wanted:
        if where not in found:
            fail(f"partition {where[1]} of {stream} does not answer: `logboom streams describe {stream}` says more")
    return {where: found[where] for where in wanted}


def _plan(
    stream: str,
    held: dict[Where, Bounds],
    offset: int | None,
    earliest: bool,
    since: str | None,
    count: int | None,
    follow: bool,
    bootstrap: str,
) -> Plan:
    last = None
    if offset is not None:
        starts = {where: _checked(offset, where, each) for where, each in held.items()}
    elif earliest:
        starts = {where: each.first for where, each in held.items()}
    elif since is not None:
        starts = offsets_at_time(admin(bootstrap), held, ago_ms(since))
    else:
        last = count or _LAST_RECORDS
        starts = {where: max(each.first, each.end - last) for where, each in held.items()}
    return Plan(
        stream=stream,
        starts={index: start for (_, index), start in starts.items()},
        ends={index: each.end for (_, index), each in held.items()},
        count=count,
        last=last,
        follow=follow,
    )


def _checked(offset: int, where: Where, held: Bounds) -> int:
    if not held.first <= offset <= held.end:
        has = (
            f"it holds {held.first} to {held.end - 1}"
            if held.records
            else f"it is empty, its next offset is {held.end}"
        )
        fail(f"offset {offset} is not in partition {where[1]} of {where[0]}: {has}")
    return offset


@contextlib.contextmanager
def _consumer(bootstrap: str, plan: Plan) -> Iterator[Consumer]:
    config = {
        "group.id": "logboom-tail",  # the client wants one; nothing is committed under it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 200,
    }
    consumer = Consumer(client_config(bootstrap, **config))
    try:
        _assign(consumer, plan.stream, plan.starts)
        yield consumer
    finally:
        consumer.close()


def _assign(consumer: Consumer, stream: str, offsets: dict[int, int]) -> None:
    consumer.assign([TopicPartition(stream, index, offset) for index, offset in offsets.items()])


def _chosen(consumer: Consumer, plan: Plan) -> Iterator[Message]:
    """The selected records, in the order they are printed."""
    if plan.last is not None:
        yield from heapq.nlargest(plan.last, _wanted(_up_to_the_end(consumer, plan), plan), key=_by_time)[::-1]
        if plan.follow:
            _assign(consumer, plan.stream, plan.ends)
            yield from _wanted(_endless(consumer), plan)
    elif plan.follow:
        yield from _wanted(_endless(consumer), plan)
    else:
        yield from _wanted(_up_to_the_end(consumer, plan), plan)


def _wanted(messages: Iterable[Message], plan: Plan) -> Iterator[Message]:
    """Those of a subject, where one is asked for."""
    pattern = plan.subject
    if pattern is None:
        yield from messages
        return
    for message in messages:
        found = next((value for name, value in reversed(_headers(message)) if name == _SUBJECT_HEADER), None)
        if isinstance(found, bytes) and matches(pattern, found.decode("utf-8", "replace")):
            yield message


def _by_time(message: Message) -> tuple[int, int, int]:
    return message.timestamp()[1], message.partition() or 0, message.offset() or 0


def _endless(consumer: Consumer) -> Iterator[Message]:
    while True:
        for message in _arrived(consumer):
            if _is_record(message):
                yield message


def _up_to_the_end(consumer: Consumer, plan: Plan) -> Iterator[Message]:
    """Records up to the end of the stream as it was at the start, in order of arrival."""
    unfinished = {index for index, start in plan.starts.items() if start < plan.ends[index]}
    silent_s = 0.0
    while unfinished:
        messages = _arrived(consumer)
        silent_s = 0.0 if messages else silent_s + _POLL_S
        if silent_s > _SILENT_MAX_S:
            fail(f"the broker has sent nothing for {_SILENT_MAX_S:.0f} s: is it up, and does its log tell of damage?")
        for message in messages:
            index, at = message.partition(), message.offset()
            is_record = _is_record(message)
            if index is None or at is None or index not in unfinished:
                continue
            if is_record and at < plan.ends[index]:
                yield message
            # librdkafka reports the end as an event; the offsets before it need not hold records.
            if at + is_record >= plan.ends[index]:
                unfinished.discard(index)


def _arrived(consumer: Consumer) -> list[Message]:
    """The messages that are there, as soon as there is one: `consume` alone would wait for a full batch."""
    first = consumer.poll(_POLL_S)
    return [] if first is None else [first, *consumer.consume(_BATCH, timeout=0)]


def _is_record(message: Message) -> bool:
    """Whether it is a record and not the news of a partition's end. Ends the command on an error that stays."""
    error = message.error()
    if error is not None and not _passing(error):
        where = f"partition {message.partition()} of {message.topic()} at offset {message.offset()}"
        fail(f"cannot read {where}: {explain(error)}")
    return error is None


def _passing(error: KafkaError) -> bool:
    """The end of a partition, or an error that the client recovers from."""
    return error.name() in ("_PARTITION_EOF", "_TRANSPORT", "_ALL_BROKERS_DOWN") or error.retriable()


def _as_value(message: Message) -> bytes:
    return (message.value() or b"") + b"\n"


def _as_verbose(message: Message) -> bytes:
    key = message.key()
    head = f"{message.partition()}:{message.offset()}  {clock_text(message.timestamp()[1])}  "
    return head.encode() + (b"-" if key is None else key) + b"  " + _as_value(message)


def _as_json(message: Message) -> bytes:
    record: dict[str, Any] = {
        "stream": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        **text_or_base64("key", message.key()),
        **text_or_base64("value", message.value()),
        "headers": [{"name": name, **text_or_base64("value", value)} for name, value in _headers(message)],
    }
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _headers(message: Message) -> list[tuple[str, bytes | str | None]]:
    headers = message.headers() or []
    return list(headers.items()) if isinstance(headers, dict) else list(headers)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tail")(tail)
