"""`logboom pipeline volume` and `compare`: what went through a pipeline, and whether two sinks hold the same events."""

import os
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from logboom.cli.common import (
    AsJson,
    fail,
    human_bytes,
    note,
    plural,
    print_json,
    print_table,
)
from logboom.cli.moments import ago_ms, span_ms
from logboom.cli.pipeline_common import File, Where, bootstrap_of, plan_of
from logboom.cli.progress import ProgressLine

Since = Annotated[str, typer.Option("--since", metavar="TIME", help="How far back, such as 1h.")]


def volume(file: File, since: Since = "1h", bootstrap: Where = None, as_json: AsJson = False) -> None:
    """Show events and bytes by source, route, service and sink, and how many events each dial drops."""
    import msgspec

    from logboom.pipeline.checkpoint.keeping import opened_to_read, where_kept
    from logboom.pipeline.checkpoint.ledger import BatchLedgers
    from logboom.pipeline.edge.streams import StreamAdmin
    from logboom.pipeline.errors import PipelineError
    from logboom.pipeline.run.sink_contents import held_by, is_open
    from logboom.pipeline.run.volume import by_service, volume_of

    plan, since_ms = plan_of(file), ago_ms(since)
    with opened_to_read(plan) as checkpoint:
        ledgers = checkpoint / "ledger"
        if not ledgers.exists():
            fail(f"the pipeline has never run: there is no ledger in {where_kept(plan)}")
        found = volume_of(plan, BatchLedgers(ledgers).entries(), since_ms)
    admin = StreamAdmin(bootstrap_of(plan, bootstrap))
    services = []
    untold = [
        f"{sink.name} is neither a JSON stream without credentials nor a Parquet archive"
        for sink in plan.sinks
        if not is_open(sink)
    ]
    with ProgressLine("reading sinks") as progress:
        for sink in filter(is_open, plan.sinks):
            events = progress.counted(f"reading events of {sink.name}", held_by(plan, sink, admin, since_ms))
            try:
                services += by_service(sink.name, events)
            except PipelineError as error:
                untold.append(str(error))
    found = msgspec.structs.replace(found, services=tuple(services))
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    _print_volume(found)
    if untold:
        note(f"not counted by service: {'; '.join(untold)}")


def _print_volume(found: Any) -> None:
    from logboom.cli.moments import moment_text
    from logboom.pipeline.plan.dials import value_text

    ledger = found.ledger
    if found.covered_since_ms is None:
        typer.echo("no batches in this time")
    else:
        batches = "1 batch" if ledger.batches == 1 else f"{ledger.batches:,} batches"
        typer.echo(
            f"{batches} since {moment_text(found.covered_since_ms)}: "
            f"{plural(sum(ledger.records_in.values()), 'record')} in ({human_bytes(ledger.bytes_in)}), "
            f"{plural(sum(ledger.out.values()), 'event')} out ({human_bytes(ledger.bytes_out)})"
        )
    counted = (("dropped", ledger.dropped), ("dead", ledger.dead))
    print_table(
        ("what", "where", "to", "events", "bytes"),
        [
            *(
                ("in", name, None, *_figures(count, ledger.in_bytes.get(name)))
                for name, count in ledger.records_in.items()
            ),
            *(("out", one.route, ", ".join(one.sinks), *_figures(one.events, one.bytes)) for one in found.routes),
            *(
                (what, name, None, *_figures(count))
                for what, counts in counted
                for name, count in counts.items()
                if count
            ),
        ],
    )
    if found.savings:
        typer.echo()
        print_table(
            ("dial", "value", "events dropped", "bytes (estimated)"),
            [(one.dial, value_text(one.value), one.events, human_bytes(one.bytes_estimated)) for one in found.savings],
        )
    if found.services:
        typer.echo()
        print_table(("sink", "service", "events", "before sampling", "bytes"), map(_service_row, found.services))


def _figures(count: int, size_bytes: int | None = None) -> tuple[object, ...]:
    return count, None if size_bytes is None else human_bytes(size_bytes)


def _service_row(one: Any) -> tuple[object, ...]:
    size = None if one.bytes is None else human_bytes(one.bytes)
    return one.sink, one.service or None, one.events, one.stands_for, size


def compare(
    file: File,
    first: Annotated[str, typer.Argument(metavar="SINK", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="SINK", show_default=False)],
    since: Since = "1h",
    settle: Annotated[
        str,
        typer.Option("--settle", metavar="TIME", help="Ignore events newer than this: they may still be on their way."),
    ] = "30s",
    bootstrap: Where = None,
    as_json: AsJson = False,
) -> None:
    """Compare what two sinks hold: counts, missing events, and delays of delivery; exit code 1 if events are missing.

    Streams, archives, Elasticsearch, OpenSearch, Loki, PostgreSQL and ClickHouse can be read back. For other sinks it
    shows what the pipeline knows: undelivered events and dead letters.
    """
    import msgspec

    from logboom.pipeline.edge.streams import StreamAdmin
    from logboom.pipeline.errors import PipelineError
    from logboom.pipeline.run.comparing import Span
    from logboom.pipeline.run.comparing import compare as compared
    from logboom.pipeline.run.sink_contents import held_by, is_by_time
    from logboom.pipeline.sinks.bulk.secrets import read_secret

    plan = plan_of(file)
    # Some tables store whole seconds only; a range of whole seconds has the same events in all sinks.
    since_ms, until_ms = (
        moment // 1_000 * 1_000 for moment in (ago_ms(since), int(time.time() * 1_000) - span_ms("--settle", settle))
    )
    sinks = _two_sinks(plan, first, second)
    admin = StreamAdmin(bootstrap_of(plan, bootstrap))
    _check_readable(plan, sinks, admin)
    if set(sinks[0].inputs) != set(sinks[1].inputs):
        inputs = ", ".join(f"{sink.name} takes {', '.join(sink.inputs)}" for sink in sinks)
        note(f"{inputs}: an event missing in one of them need not be an error")
    span = Span(since_ms, until_ms, by_time=any(map(is_by_time, sinks)))
    secret = partial(read_secret, environ=os.environ, directory=Path(plan.file).parent)
    with ProgressLine("reading sinks") as progress:
        one, other = (
            progress.counted(f"reading events of {sink.name}", held_by(plan, sink, admin, since_ms, secret))
            for sink in sinks
        )
        try:
            sides = compared((first, second), (one, other), span)
        except PipelineError as error:
            fail(str(error))
    if as_json:
        for side in sides:
            print_json(msgspec.to_builtins(side))
    else:
        print_table(("sink", "events", "repeats", "missing", "p50 ms", "p99 ms", "max ms"), map(_side_row, sides))
        for side in sides:
            for event_id in side.lacking:
                typer.echo(f"{side.sink} lacks {event_id}")
            if side.lacks > len(side.lacking):
                typer.echo(f"{side.sink} lacks {side.lacks - len(side.lacking):,} more, observed later")
    if any(side.lacks for side in sides):
        raise typer.Exit(1)


def _two_sinks(plan: Any, first: str, second: str) -> tuple[Any, Any]:
    from logboom.pipeline.findings import hint

    sinks = {sink.name: sink for sink in plan.sinks}
    for name in (first, second):
        if name not in sinks:
            fail(f"the pipeline {plan.name} has no sink {name!r} ({hint(name, list(sinks))})")
    if first == second:
        fail(f"{first} would be compared with itself, which shows nothing: name two sinks of {plan.name}")
    return sinks[first], sinks[second]


def _check_readable(plan: Any, sinks: tuple[Any, Any], admin: Any) -> None:
    """Where one of them cannot be read back, tells what the pipeline knows of both, and ends."""
    from logboom.pipeline.checkpoint.keeping import opened_to_read
    from logboom.pipeline.run.live_state import live_state
    from logboom.pipeline.run.sink_contents import hindrance

    unread = [f"{sink.name} {why}" for sink in sinks if (why := hindrance(sink)) is not None]
    if not unread:
        return
    with opened_to_read(plan) as checkpoint:
        states = live_state(plan, checkpoint, admin)
    for sink in sinks:
        state = states[sink.name]
        waiting, dead = plural(state.lag or 0, "event"), plural(state.dead or 0, "dead letter")
        typer.echo(f"{sink.name}: {waiting} not delivered yet, {dead}")
    fail(f"{' and '.join(unread)}; compare the counts there")


def _side_row(side: Any) -> tuple[object, ...]:
    latencies = (side.latency_p50_ms, side.latency_p99_ms, side.latency_max_ms)
    return side.sink, side.events, side.repeats, side.lacks, *latencies


def register(pipeline: typer.Typer) -> None:
    """Adds the commands to `logboom pipeline`."""
    pipeline.command("volume")(volume)
    pipeline.command("compare")(compare)
