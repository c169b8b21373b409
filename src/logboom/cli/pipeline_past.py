"""`logboom pipeline tap` and `replay`: events at an output as they come, and those of the past once more into a
sink."""

import os
import secrets
import signal
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from logboom.cli.common import BOOTSTRAP_DEFAULT, AsJson, fail, note, plural, print_json, read_text
from logboom.cli.moments import moment_ms, span_ms

File = Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="The pipeline, as YAML.")]
Where = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="LOGBOOM_BOOTSTRAP",
        show_envvar=True,
        metavar="HOST:PORT",
        help="The broker, whatever the file says.",
    ),
]


def tap(
    file: File,
    output: Annotated[
        str, typer.Argument(metavar="OUTPUT", show_default=False, help="A transform, or an output of it: split.errors.")
    ],
    rate: Annotated[
        int, typer.Option("--rate", metavar="N", min=1, help="Records to look at in a second; others are passed over.")
    ] = 500,
    count: Annotated[int | None, typer.Option("--count", metavar="N", min=1, help="End after so many events.")] = None,
    for_time: Annotated[str | None, typer.Option("--for", metavar="TIME", help="End after this time.")] = None,
    bootstrap: Where = None,
    as_json: AsJson = False,
) -> None:
    """Show live events at an output of a pipeline, as it masks and samples them there, until Ctrl-C.

    The records are read and worked on here: the running pipeline is neither asked nor slowed.
    """
    from logboom.pipeline.edge.streams import StreamAdmin
    from logboom.pipeline.run.looking import event_line, live_events, tap_plan

    plan = _compiled(file)
    _check_output(plan, output)
    admin = StreamAdmin(_bootstrap(plan, bootstrap))
    tapped = tap_plan(plan.turned(_dials(plan, admin)), output)
    deadline = None if for_time is None else time.monotonic() + span_ms("--for", for_time) / 1_000
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: stopped.append(number))

    def is_over() -> bool:
        return bool(stopped) or (deadline is not None and time.monotonic() >= deadline)

    shown = 0
    with tempfile.TemporaryDirectory() as directory:
        keys = _keys(tapped, file, admin, Path(directory))
        for event in live_events(tapped, admin, keys, rate, is_over, note):
            typer.echo(event.decode() if as_json else event_line(event))
            shown += 1
            if shown == count:
                return


def replay(
    file: File,
    sink: Annotated[str | None, typer.Option("--sink", metavar="NAME", help="The sink that gets the events.")] = None,
    from_time: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="From then on: 2h ago, or 2026-11-20T12:00:00Z.")
    ] = None,
    to_time: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Up to then, as --from; default: now.")
    ] = None,
    where: Annotated[str | None, typer.Option("--where", metavar="SQL", help="Only events it is true of.")] = None,
    route: Annotated[
        str | None, typer.Option("--route", metavar="OUTPUT", help="Events of this output; default: the sink's inputs.")
    ] = None,
    ids: Annotated[
        Path | None, typer.Option("--ids", metavar="FILE", help="Only events with these ids, one in a line.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option("--rate", metavar="N", min=1, help="At most so many records in a second.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="NAME", help="Go on with a replay that was interrupted.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be replayed.")] = False,
    master: Annotated[str, typer.Option("--master", metavar="URL", help="Spark master to run on.")] = "local[*]",
    bootstrap: Where = None,
    as_json: AsJson = False,
) -> None:
    """Send events of the past once more through the transforms and into one sink, beside the running pipeline.

    Times are those of the records in the log. Events of a replay have the attribute logboom.replay with its name.
    """
    from logboom.pipeline.edge.streams import StreamAdmin
    from logboom.pipeline.plan.paths import resolved
    from logboom.pipeline.run import replaying
    from logboom.pipeline.run.looking import count_replay, moment_text

    plan = _compiled(file)
    checkpoint = resolved(plan, plan.checkpoint)
    if resume is not None:
        if any(given is not None for given in (sink, from_time, to_time, where, route, ids, rate)):
            fail("--resume goes on as the replay began: it takes none of the options that say what is replayed")
        begun = replaying.remembered(checkpoint, resume)
    else:
        begun = _asked(sink, from_time, to_time, where, route, ids, rate)
    admin = StreamAdmin(_bootstrap(plan, bootstrap))
    _check_where(begun.where)
    replayed = replaying.replay_plan(plan.turned(_dials(plan, admin)), begun)
    span = f"{moment_text(begun.from_ms)} to {moment_text(begun.to_ms)}"
    if dry_run:
        with tempfile.TemporaryDirectory() as directory:
            keys = _keys(replayed, file, admin, Path(directory))
            records, events = count_replay(replayed, admin, keys, begun.from_ms, begun.to_ms)
        if as_json:
            print_json(
                {"sink": begun.sink, "from": begun.from_ms, "to": begun.to_ms, "records": records, "events": events}
            )
        else:
            typer.echo(f"{plural(events, 'event')} of {plural(records, 'record')} from {span} would go to {begun.sink}")
        return
    if resume is None:
        replaying.remember(checkpoint, begun)
    note(f"replay {begun.name}: {span} into {begun.sink}; if interrupted: --resume {begun.name}")
    _run(replayed, begun, admin, master, as_json=as_json)


def _run(replayed: Any, begun: Any, admin: Any, master: str, *, as_json: bool) -> None:
    from logboom.pipeline.plan.names import edge_stream
    from logboom.pipeline.run.display import make_display
    from logboom.pipeline.run.runner import Runner, RunOptions
    from logboom.pipeline.spark.settings import SessionOptions

    options = RunOptions(
        bootstrap=admin.bootstrap,
        once=True,
        session=SessionOptions(master=master),
        records_per_s=begun.events_per_s,
        turns_dials=False,
    )
    runner = Runner(replayed, options, make_display(as_json=as_json))
    stopped: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        runner.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    runner.run()
    if stopped:
        note(f"interrupted; it goes on with --resume {begun.name}")
        raise typer.Exit(1)
    there = admin.partitions()
    edges = [edge_stream(replayed.name, edge) for node in replayed.transforms for edge in node.outputs]
    admin.delete(stream for stream in edges if stream in there)


def _asked(
    sink: str | None,
    from_time: str | None,
    to_time: str | None,
    where: str | None,
    route: str | None,
    ids: Path | None,
    rate: int | None,
) -> Any:
    from logboom.pipeline.run.replaying import IDS_MAX, Replay

    if sink is None or from_time is None:
        fail("name what is replayed with --sink NAME and --from TIME, or go on with --resume NAME")
    from_ms = _moment("--from", from_time)
    to_ms = int(time.time() * 1_000) if to_time is None else _moment("--to", to_time)
    if from_ms >= to_ms:
        fail("--from: should be before --to")
    named: list[str] = [] if ids is None else [line.strip() for line in read_text(ids).splitlines() if line.strip()]
    if ids is not None and not 0 < len(named) <= IDS_MAX:
        fail(f"--ids {ids}: should have 1 to {IDS_MAX} ids, has {len(named)}")
    return Replay(
        name=f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}",
        sink=sink,
        from_ms=from_ms,
        to_ms=to_ms,
        where=where,
        route=route,
        ids=tuple(named),
        events_per_s=rate,
    )


def _moment(option: str, text: str) -> int:
    at = moment_ms(text)
    return at if at is not None else int(time.time() * 1_000) - span_ms(option, text.removesuffix(" ago"))


def _compiled(file: Path) -> Any:
    from logboom.pipeline.config.compile import compile_pipeline
    from logboom.pipeline.config.sqlcheck import check_expressions

    return compile_pipeline(read_text(file), str(file), check_expressions, variables=os.environ)


def _check_where(where: str | None) -> None:
    from logboom.pipeline.config.sqlcheck import check_expressions
    from logboom.pipeline.plan.nodes import EVENT_COLUMNS, Expression

    if where is not None:
        asked = Expression(sql=where, columns=EVENT_COLUMNS, line=0, where="--where")
        (problem,) = check_expressions([asked])
        if problem is not None:
            fail(f"--where {where}: {problem}")


def _check_output(plan: Any, output: str) -> None:
    from logboom.pipeline.findings import hint

    known = [edge for node in plan.transforms for edge in node.outputs]
    if output not in known:
        fail(f"the pipeline {plan.name} has no output {output!r} ({hint(output, known)})")


def _bootstrap(plan: Any, given: str | None) -> str:
    return given or plan.bootstrap or BOOTSTRAP_DEFAULT


def _dials(plan: Any, admin: Any) -> dict[str, Any]:
    """Where the dials of the pipeline stand now."""
    from logboom.pipeline.dials.changes import values_of
    from logboom.pipeline.dials.control import ControlStream

    control = ControlStream(admin, plan.name, note)
    if not plan.dials() or not control.exists():
        return {}
    values, complaints = values_of(control.refresh().in_effect(time.time_ns() // 1_000_000), plan.dials())
    for complaint in complaints:
        note(complaint)
    return values


def _keys(plan: Any, file: Path, admin: Any, directory: Path) -> dict[str, bytes]:
    """The secret keys of a plan, and its tables as they are now."""
    from logboom.pipeline.edge.table_streams import TableStreams
    from logboom.pipeline.enrich.store import TableStore
    from logboom.pipeline.mask.keys import load_keys

    keys = dict(load_keys(plan.key_refs(), os.environ, file.parent))
    if plan.table_refs():
        store = TableStore(directory, file.parent, note, TableStreams(admin).newest)
        keys |= store.paths(store.current(plan.table_refs()))
    return keys


def register(pipeline: typer.Typer) -> None:
    """Adds the commands to `logboom pipeline`."""
    pipeline.command("tap")(tap)
    pipeline.command("replay")(replay)
