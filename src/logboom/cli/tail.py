"""`logboom tail`: read a stream from any position, to its end or until stopped."""

import heapq
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any, Final

import typer
from confluent_kafka import Consumer, Message

from logboom.base.subjects import matches, pattern_fault
from logboom.cli.client import Bounds, admin, offsets_at_time
from logboom.cli.common import BOOTSTRAP_DEFAULT, Bootstrap, fail, for_output, json_line, note, text_or_base64
from logboom.cli.moments import ago_ms, clock_text
from logboom.cli.reading import Where, assign, consuming, endless, headers_of, held_by, up_to_the_end

_LAST_RECORDS: Final = 10
_SUBJECT_HEADER: Final = "logboom-subject"
"""Where a message of NATS has its subject; the last of that name."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
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
    earliest: Annotated[bool, typer.Option("--earliest", help="Start at the first record.")] = False,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Start this long ago: 30s, 15m, 12h, 7d.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new records, until Ctrl-C.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after this many records.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Read only this partition.")] = None,
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
    """Print the values of a stream's records, byte for byte; on a terminal control characters as escapes.

    Without a start, the last 10 records (or --count of them). It ends where the stream ended when it began, unless
    --follow is given.
    """
    if sum((offset is not None, earliest, since is not None)) > 1:
        fail("--offset, --earliest and --since exclude each other: give one of them")
    if subject is not None and (fault := pattern_fault(subject)) is not None:
        fail(f"--subject {subject!r} {fault}")
    held = held_by(stream, partition, bootstrap)
    plan = replace(_plan(stream, held, offset, earliest, since, count, follow, bootstrap), subject=subject)
    if subject is not None and plan.last is not None:
        plan = replace(plan, starts={index: each.first for (_, index), each in held.items()})
    show = _as_json if as_json else _as_verbose if verbose else _as_value
    printed = 0
    try:
        with consuming(bootstrap, plan.stream, plan.starts) as consumer:
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


def _plan(
    stream: str,
    held: dict[Where, Bounds],
    offset: int | None,
    earliest: bool,
    since: str | None,
    count: int | None,
    follow: bool,
    bootstrap: str,
) -> ReadPlan:
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
    return ReadPlan(
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


def _chosen(consumer: Consumer, plan: ReadPlan) -> Iterator[Message]:
    """The selected records, in the order they are printed."""
    if plan.last is not None:
        yield from heapq.nlargest(
            plan.last, _wanted(up_to_the_end(consumer, plan.starts, plan.ends), plan), key=_by_time
        )[::-1]
        if plan.follow:
            assign(consumer, plan.stream, plan.ends)
            yield from _wanted(endless(consumer), plan)
    elif plan.follow:
        yield from _wanted(endless(consumer), plan)
    else:
        yield from _wanted(up_to_the_end(consumer, plan.starts, plan.ends), plan)


def _wanted(messages: Iterable[Message], plan: ReadPlan) -> Iterator[Message]:
    """Those of a subject, where one is asked for."""
    pattern = plan.subject
    if pattern is None:
        yield from messages
        return
    for message in messages:
        found = next((value for name, value in reversed(headers_of(message)) if name == _SUBJECT_HEADER), None)
        if isinstance(found, bytes) and matches(pattern, found.decode("utf-8", "replace")):
            yield message


def _by_time(message: Message) -> tuple[int, int, int]:
    return message.timestamp()[1], message.partition() or 0, message.offset() or 0


def _as_value(message: Message) -> bytes:
    return for_output(message.value() or b"") + b"\n"


def _as_verbose(message: Message) -> bytes:
    key = message.key()
    head = f"{message.partition()}:{message.offset()}  {clock_text(message.timestamp()[1])}  "
    return head.encode() + (b"-" if key is None else for_output(key)) + b"  " + _as_value(message)


def _as_json(message: Message) -> bytes:
    record: dict[str, Any] = {
        "stream": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        **text_or_base64("key", message.key()),
        **text_or_base64("value", message.value()),
        "headers": [{"name": name, **text_or_base64("value", value)} for name, value in headers_of(message)],
    }
    return json_line(record).encode() + b"\n"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tail")(tail)
