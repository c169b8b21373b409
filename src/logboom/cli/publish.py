"""`logboom publish`: lines of text or JSON into a stream; it ends well only if every one of them was acknowledged."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, Final

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from logboom.base.units import MIB, SECOND_MS
from logboom.cli.client import client_config, explain, reach_brokers, sentence
from logboom.cli.common import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    CommandError,
    fail,
    human_bytes,
    note,
    plural,
    print_json,
)
from logboom.cli.moments import span_ms

LINE_MAX_BYTES: Final = 64 * MIB
_LINGER_MS: Final = 5
_GIVE_UP_SLACK_S: Final = 5.0
_QUEUE_MAX_RECORDS: Final = 100_000
_QUEUE_MAX_KIB: Final = 256 * 1024
_PROGRESS_TERMINAL_S: Final = 0.5
_PROGRESS_LOG_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of input and where it stands."""

    source: str
    number: int
    value: bytes


@dataclass(slots=True)
class Totals:
    """What came of it so far."""

    sent: int = 0
    sent_bytes: int = 0
    acked: int = 0
    error: KafkaError | None = None
    offsets: dict[int, list[int]] = field(default_factory=dict)
    """First and last offset given, by partition."""

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Called by the client for each record, in poll and flush."""
        if error is not None:
            self.error = self.error or error
            return
        self.acked += 1
        partition, offset = message.partition(), message.offset()
        if partition is not None and offset is not None:
            self.offsets.setdefault(partition, [offset, offset])[1] = offset


def publish(
    stream: Annotated[str, typer.Argument(metavar="STREAM", show_default=False)],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Files to read; standard input without any.", show_default=False),
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json-lines", help="Refuse a line that is not JSON.")] = False,
    key: Annotated[str | None, typer.Option(help="The key of every record.")] = None,
    key_field: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Take the key from this field of the JSON, such as user.id.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="KEY=VALUE", help="A header of every record; repeatable."),
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Send all to this partition.")] = None,
    compression: Annotated[
        str, typer.Option(help="none, gzip, snappy, lz4 or zstd: consumers need the codec too.")
    ] = "none",
    timeout: Annotated[str, typer.Option(metavar="TIME", help="Give up a record after this time.")] = "30s",
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Send each line as a record.

    A record is counted once the broker has acknowledged it; if any is not, the command says so and ends with an error.
    The producer is idempotent: what it sends again is stored once.
    """
    headers = _headers(header)
    parts = key_field.split(".") if key_field else []
    if parts and key:
        fail("--key and --key-field exclude each other: give one of them")
    timeout_ms = span_ms("--timeout", timeout)
    producer = _producer(bootstrap, compression, timeout_ms)
    totals, began_s = Totals(), time.monotonic()
    progress = _Progress(totals, began_s)
    more: dict[str, Any] = {} if partition is None else {"partition": partition}
    try:
        for line in _lines(files or []):
            record_key = _key(line, parts) if parts else key
            if json_lines and not parts:
                _parse(line)
            _send(producer, totals, stream, line.value, key=record_key, headers=headers, **more)
            progress.show()
            if totals.error:
                break
    except (CommandError, KeyboardInterrupt):
        _finish(producer, totals, timeout_ms)
        progress.clear()
        note(f"acknowledged before that: {plural(totals.acked, 'record')}")
        raise
    _finish(producer, totals, timeout_ms)
    progress.clear()
    _report(stream, totals, time.monotonic() - began_s, as_json)


def _headers(pairs: list[str] | None) -> list[tuple[str, bytes]]:
    split = [pair.partition("=") for pair in pairs or []]
    for key, equals, _ in split:
        if not equals:
            fail(f"--header {key}: write it as KEY=VALUE")
    return [(key, value.encode()) for key, _, value in split]


def _producer(bootstrap: str, compression: str, timeout_ms: int) -> Producer:
    reach_brokers(bootstrap)
    config = client_config(
        bootstrap,
        **{
            "enable.idempotence": True,
            "compression.type": compression,
            "linger.ms": _LINGER_MS,
            "message.timeout.ms": timeout_ms,
            "message.max.bytes": LINE_MAX_BYTES,
            "queue.buffering.max.messages": _QUEUE_MAX_RECORDS,
            "queue.buffering.max.kbytes": _QUEUE_MAX_KIB,
        },
    )
    try:
        return Producer(config)
    except KafkaException as error:
        fail(f"--compression {compression}: {sentence(error)}")


def _lines(files: list[Path]) -> Iterator[Line]:
    if not files:
        yield from _lines_of("standard input", sys.stdin.buffer)
    for path in files:
        if str(path) == "-":
            yield from _lines_of("standard input", sys.stdin.buffer)
            continue
        with ExitStack() as stack:
            try:
                file = stack.enter_context(path.open("rb"))
            except OSError as error:
                fail(f"cannot read {path}: {error.strerror}")
            yield from _lines_of(str(path), file)


def _lines_of(source: str, file: IO[bytes]) -> Iterator[Line]:
    number = 0
    while line := file.readline(LINE_MAX_BYTES + 1):
        number += 1
        if len(line) > LINE_MAX_BYTES:
            fail(f"{source}, line {number} is longer than {human_bytes(LINE_MAX_BYTES)}: is it text at all?")
        yield Line(source, number, line.removesuffix(b"\n").removesuffix(b"\r"))


def _parse(line: Line) -> Any:
    try:
        return json.loads(line.value)
    except ValueError as error:
        fail(f"{line.source}, line {line.number} is not JSON: {error}")


def _key(line: Line, parts: list[str]) -> str:
    value = _parse(line)
    for part in parts:
        if not isinstance(value, dict) or part not in value:
            fail(f"{line.source}, line {line.number} has no field {'.'.join(parts)!r} to take the key from")
        value = value[part]
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _send(producer: Producer, totals: Totals, stream: str, value: bytes, **more: Any) -> None:
    while True:
        try:
            producer.produce(stream, value, on_delivery=totals.delivered, **more)
        except BufferError:
            producer.poll(0.1)  # full: wait for acknowledgements to make room
            if totals.error:
                return
            continue
        except KafkaException as error:
            fail(f"cannot send to stream {stream!r}: {sentence(error)}")
        totals.sent += 1
        totals.sent_bytes += len(value)
        producer.poll(0)
        return


def _finish(producer: Producer, totals: Totals, timeout_ms: int) -> None:
    """Wait until the fate of everything sent is known; the client gives each record up in time."""
    if totals.error:
        producer.purge()
    producer.flush(timeout_ms / SECOND_MS + _GIVE_UP_SLACK_S)


def _report(stream: str, totals: Totals, seconds: float, as_json: bool) -> None:
    if totals.acked != totals.sent or totals.error:
        why = explain(totals.error) if totals.error else "the broker did not acknowledge the rest in time"
        fail(f"{totals.acked:,} of {plural(totals.sent, 'record')} reached stream {stream!r}: {why}")
    if as_json:
        offsets = {
            str(partition): {"first": first, "last": last} for partition, (first, last) in totals.offsets.items()
        }
        print_json(
            {
                "stream": stream,
                "records": totals.acked,
                "bytes": totals.sent_bytes,
                "seconds": round(seconds, 3),
                "offsets": offsets,
            }
        )
    else:
        note(f"{plural(totals.acked, 'record')} ({human_bytes(totals.sent_bytes)}) acknowledged in {stream}")


class _Progress:
    """Now and then a line on standard error: often and in place on a terminal, seldom elsewhere."""

    def __init__(self, totals: Totals, began_s: float) -> None:
        self._totals = totals
        self._began_s = began_s
        self._terminal = sys.stderr.isatty()
        self._every_s = _PROGRESS_TERMINAL_S if self._terminal else _PROGRESS_LOG_S
        self._next_s = began_s + self._every_s
        self._shown = False

    def show(self) -> None:
        """Show how far it is, if it is time to."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._every_s
        totals, seconds = self._totals, now_s - self._began_s
        text = (
            f"{plural(totals.acked, 'record')} acknowledged, {human_bytes(totals.sent_bytes)} sent, "
            f"{totals.acked / seconds:,.0f} records/s"
        )
        self._shown = True
        sys.stderr.write(f"\r\x1b[K{text}" if self._terminal else f"{text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Leave a clean line behind."""
        if self._terminal and self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("publish")(publish)
