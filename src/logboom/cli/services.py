"""`logboom services`: what recorded services were asked and have answered, and the same requests once more."""

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from logboom.base.subjects import matches, pattern_fault
from logboom.base.units import SECOND_MS
from logboom.cli.client import admin, offsets_at_time
from logboom.cli.common import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    fail,
    note,
    print_json,
    print_table,
    printable,
    text_or_base64,
)
from logboom.cli.moments import ago_ms, clock_text, span_ms
from logboom.cli.reading import consuming, endless, held_by, up_to_the_end
from logboom.cli.service_records import Exchange, Pairs, Recorded, figures_of, percentiles_ms, recorded
from logboom.cli.service_requests import Requester, requester, responders
from logboom.nats.wire.headers import write_fields

services = typer.Typer(no_args_is_help=True, help="Show recorded NATS services, and send their requests again.")

NATS_DEFAULT: Final = "nats://127.0.0.1:4222"
_WINDOW: Final = 64
"""Requests under way together where no rate is given."""
_SHOWN_MAX: Final = 60
_HEADERS_SHOWN_MAX: Final = 200
_DIFFERENCES_SHOWN: Final = 10
_S_US: Final = 1_000_000

Stream = Annotated[
    str,
    typer.Argument(metavar="STREAM", show_default=False, help="A stream with the setting logboom.nats.services."),
]
Subject = Annotated[
    str | None, typer.Option(metavar="PATTERN", help="Only requests on such a subject: prices.*.get or prices.>.")
]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only since this long ago: 30s, 15m, 12h, 7d. (default: all)")
]
Wait = Annotated[str, typer.Option(metavar="TIME", help="A request is unanswered after this time without a reply.")]
Nats = Annotated[str, typer.Option("--nats", envvar="LOGBOOM_NATS", metavar="URL", help="The NATS server to ask.")]
Credentials = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Log in to NATS with this file, as `nsc` writes it.", dir_okay=False, exists=True
    ),
]


@services.command("list")
def list_(
    stream: Stream,
    subject: Subject = None,
    since: Since = None,
    wait: Wait = "10s",
    nats: Annotated[
        str | None,
        typer.Option("--nats", metavar="URL", help="Ask this NATS which services run, and show which of them answer."),
    ] = None,
    credentials: Credentials = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show by subject how many requests there were, how long replies took, and what was not answered."""
    figures = figures_of(_exchanges(stream, subject, since, wait, bootstrap))
    there = [] if nats is None else asyncio.run(_services(nats, credentials))
    rows: list[dict[str, Any]] = []
    for name, each in figures.items():
        row: dict[str, Any] = {"subject": name, "requests": each.requests, "unanswered": each.unanswered}
        row |= {"one_way": each.one_way, "errors": each.errors, **percentiles_ms(each.took_us)}
        if nats is not None:
            row["answered_by"] = responders(name, there)
        rows.append(row)
    if as_json:
        print_json(rows)
    elif rows:
        shown = [row | ({"answered_by": ", ".join(row["answered_by"]) or "-"} if nats else {}) for row in rows]
        print_table([name.replace("_", " ") for name in rows[0]], [tuple(row.values()) for row in shown])
    else:
        note(f"{stream} has no requests there; it records those on the subjects in its setting logboom.nats.services")


async def _services(url: str, credentials: Path | None) -> list[dict[str, Any]]:
    async with requester(url, credentials) as asking:
        return await asking.services()


@services.command("tail")
def tail(
    stream: Stream,
    subject: Subject = None,
    since: Since = None,
    wait: Wait = "10s",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new records, until Ctrl-C.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after this many.")] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="Print each as a line of JSON.")] = False,
) -> None:
    """Print requests, each with its reply and the time between, in the order in which they were completed."""
    try:
        for exchange in islice(_exchanges(stream, subject, since, wait, bootstrap, follow=follow), count):
            if as_json:
                print_json(_as_json(exchange))
            else:
                typer.echo(_as_line(exchange))
            if follow:
                sys.stdout.flush()
    except KeyboardInterrupt:
        return  # the ordinary way to end a --follow


def _as_line(exchange: Exchange) -> str:
    request, reply = exchange.request, exchange.reply
    head = f"{clock_text(request.timestamp_ms)}  {printable(request.subject)}"
    if request.reply is None:
        return f"{head}  no reply wanted  {_shown(request.value)}"
    if reply is None:
        return f"{head}  no reply  {_shown(request.value)}"
    error = f"  error {printable(reply.error)}" if reply.error is not None else ""
    took_ms = (reply.took_us or 0) / 1_000
    return f"{head}  {took_ms:.3f} ms{error}  {_shown(request.value)}  ->  {_shown_reply(reply)}"


def _shown_reply(reply: Recorded) -> str:
    """What a reply says: its headers where it has no body, as many errors."""
    if reply.value or not reply.headers:
        return _shown(reply.value)
    return _shown(b", ".join(b"%b: %b" % (name.encode(), value) for name, value in reply.headers), _HEADERS_SHOWN_MAX)


def _shown(value: bytes, length_max: int = _SHOWN_MAX) -> str:
    text = value.decode(errors="backslashreplace")
    return printable(text[:length_max]) + ("..." if len(text) > length_max else "")


def _as_json(exchange: Exchange) -> dict[str, Any]:
    request, reply = exchange.request, exchange.reply
    row: dict[str, Any] = {"time_ms": request.timestamp_ms, "subject": request.subject}
    if request.reply is not None:
        row |= text_or_base64("reply_subject", request.reply)
    row |= text_or_base64("request", request.value)
    if reply is not None:
        row |= {**text_or_base64("reply", reply.value), "took_us": reply.took_us, "error": reply.error}
    return row


def _exchanges(
    stream: str, subject: str | None, since: str | None, wait: str, bootstrap: str, *, follow: bool = False
) -> Iterator[Exchange]:
    """What a stream holds of services, as pairs."""
    pairs = Pairs(span_ms("--wait", wait))
    for one in _records(stream, subject, since, bootstrap, follow=follow):
        yield from pairs.add(one)
    yield from pairs.rest()


def _records(
    stream: str, subject: str | None, since: str | None, bootstrap: str, *, follow: bool
) -> Iterator[Recorded]:
    if subject is not None and (fault := pattern_fault(subject)) is not None:
        fail(f"--subject {subject!r} {fault}")
    held = held_by(stream, None, bootstrap)
    if since is None:
        starts = {index: each.first for (_, index), each in held.items()}
    else:
        starts = {index: at for (_, index), at in offsets_at_time(admin(bootstrap), held, ago_ms(since)).items()}
    ends = {index: each.end for (_, index), each in held.items()}
    with consuming(bootstrap, stream, starts) as reading:
        for message in endless(reading) if follow else up_to_the_end(reading, starts, ends):
            one = recorded(message)
            if one is not None and (subject is None or matches(subject, one.subject)):
                yield one


# --- replay ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Outcome:
    """What came of the requests that were sent again."""

    sent: int = 0
    one_way: int = 0
    """Of these: requests that want no reply."""
    lost: int = 0
    """Of these: those that the server may not have got."""
    is_cut_short: bool = False
    """Whether there is no connection any more on which to send the others."""
    answered: int = 0
    errors: int = 0
    took_us: list[int] = field(default_factory=list)
    same: int = 0
    different: int = 0


@services.command("replay")
def replay(
    stream: Stream,
    to: Annotated[str, typer.Option(metavar="SUBJECT", help="Where the requests are sent.", show_default=False)],
    subject: Subject = None,
    since: Since = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="At most this many, oldest first.")] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, help=f"This many a second. (default: as fast as {_WINDOW} at a time are answered)"),
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="How long a reply may take.")] = "5s",
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Compare replies with the recorded ones; exit with 1 if one differs."),
    ] = False,
    wait: Wait = "10s",
    nats: Nats = NATS_DEFAULT,
    credentials: Credentials = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Send recorded requests once more, with their headers, to a subject of choice.

    Those that the stream holds now, in their order; with --compare in the order in which they were answered.
    """
    if (fault := pattern_fault(to)) is not None or not set(to.split(".")).isdisjoint("*>"):
        fail(f"--to {to!r} {fault or 'has a wildcard: requests are sent to one subject'}")
    asked = (
        _exchanges(stream, subject, since, wait, bootstrap) if compare else _requests(stream, subject, since, bootstrap)
    )
    run = _Replay(to, span_ms("--timeout", timeout) / SECOND_MS, rate)
    outcome = asyncio.run(run.run(islice(asked, count), nats, credentials))
    result: dict[str, Any] = {
        "sent": outcome.sent,
        "answered": outcome.answered,
        "unanswered": outcome.sent - outcome.one_way - outcome.answered,
        "one_way": outcome.one_way,
        "lost": outcome.lost,
        "errors": outcome.errors,
        **percentiles_ms(outcome.took_us),
    }
    if compare:
        result |= {"same": outcome.same, "different": outcome.different}
    if as_json:
        print_json(result)
    else:
        print_table([name.replace("_", " ") for name in result], [tuple(result.values())])
    if outcome.is_cut_short:
        fail(f"there is no connection to NATS any more: nothing was sent after these {outcome.sent} requests")
    if outcome.lost:
        fail(f"the connection to NATS was lost: {outcome.lost} requests that want no reply may not have been sent")
    if outcome.different:
        fail(f"{outcome.different} of {outcome.same + outcome.different} replies differ from the recorded ones")


def _requests(stream: str, subject: str | None, since: str | None, bootstrap: str) -> Iterator[Exchange]:
    """What a stream holds of requests, without their replies."""
    for one in _records(stream, subject, since, bootstrap, follow=False):
        if not one.is_reply:
            yield Exchange(one, None)


class _Replay:
    """One run of `replay`. Life: `run`, once."""

    def __init__(self, to: str, timeout_s: float, rate: float | None) -> None:
        self._to = to
        self._timeout_s = timeout_s
        self._rate = rate
        self._window = asyncio.Semaphore(_WINDOW)
        self._outcome = _Outcome()

    async def run(self, exchanges: Iterator[Exchange], url: str, credentials: Path | None) -> _Outcome:
        """Send the requests, and wait for the replies; where an exchange has one, they are compared."""
        loop = asyncio.get_running_loop()
        async with requester(url, credentials) as asking:
            due_s = loop.time()
            under_way: set[asyncio.Task[None]] = set()
            while (exchange := await asyncio.to_thread(next, exchanges, None)) is not None:
                if self._rate is None:
                    await self._window.acquire()
                else:
                    await asyncio.sleep(due_s - loop.time())
                    due_s += 1 / self._rate
                if not await asking.is_connected(self._timeout_s):
                    self._outcome.is_cut_short = True
                    break
                task = asyncio.create_task(self._send(asking, exchange))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            await asyncio.gather(*under_way)
        return self._outcome

    async def _send(self, asking: Requester, exchange: Exchange) -> None:
        self._outcome.sent += 1
        try:
            await self._ask(asking, exchange)
        finally:
            if self._rate is None:
                self._window.release()

    async def _ask(self, asking: Requester, exchange: Exchange) -> None:
        outcome, request = self._outcome, exchange.request
        if request.reply is None:
            outcome.one_way += 1
            outcome.lost += not await asking.tell(self._to, _header(request), request.value)
            return
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        reply = await asking.ask(self._to, _header(request), request.value, self._timeout_s)
        if reply is not None:
            outcome.answered += 1
            outcome.took_us.append(int((loop.time() - began_s) * _S_US))
            outcome.errors += b"\r\nNats-Service-Error" in reply.header
        if exchange.reply is not None:
            self._compared(exchange.reply, None if reply is None else reply.payload, request)

    def _compared(self, before: Recorded, now: bytes | None, request: Recorded) -> None:
        outcome = self._outcome
        if now == before.value:
            outcome.same += 1
            return
        outcome.different += 1
        if outcome.different <= _DIFFERENCES_SHOWN:
            after = "no reply" if now is None else _shown(now)
            note(f"{request.subject}  {_shown(request.value)}  ->  {_shown(before.value)}, now {after}")


def _header(request: Recorded) -> bytes:
    return write_fields([(name.encode(), value) for name, value in request.headers])


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(services, name="services")
