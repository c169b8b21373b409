"""`logboom pipeline replay`: events of the past once more into a sink, or into a whole pipeline."""

import secrets
import signal
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from logboom.base.quantities import parse_size_bytes
from logboom.base.units import MIB
from logboom.cli.common import AsJson, fail, human_bytes, note, plural, print_json, read_text
from logboom.cli.moments import moment_ms, moment_text, span_ms
from logboom.cli.pipeline_common import (
    Environment,
    File,
    Master,
    SparkSettings,
    Where,
    bootstrap_of,
    compiled,
    dials_now,
    keys_of,
    session_of,
)

Into = Annotated[
    Path | None,
    typer.Option("--into", metavar="FILE", help="With --archive: another pipeline, whose sinks get the events."),
]
At = Annotated[
    str | None, typer.Option("--at", metavar="OUTPUT", help="With --archive: the output as whose events they go on.")
]


def replay(
    file: File,
    sink: Annotated[str | None, typer.Option("--sink", metavar="NAME", help="The sink that gets the events.")] = None,
    all_sinks: Annotated[
        bool, typer.Option("--all-sinks", help="Instead of one: all sinks of the pipeline, as for a new one.")
    ] = False,
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
    archive: Annotated[
        str | None, typer.Option("--archive", metavar="SINK", help="Read this archive of the pipeline, not the log.")
    ] = None,
    into: Into = None,
    at: At = None,
    room: Annotated[
        str | None, typer.Option("--room", metavar="SIZE", help="With --archive: room in the log at once (4GiB).")
    ] = None,
    rate: Annotated[
        int | None, typer.Option("--rate", metavar="N", min=1, help="At most so many records in a second.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="NAME", help="Go on with a replay that was interrupted.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be replayed.")] = False,
    master: Master = "local[*]",
    environment: Environment = None,
    spark_settings: SparkSettings = None,
    bootstrap: Where = None,
    as_json: AsJson = False,
) -> None:
    """Send events of the past once more through the transforms and into one sink, or all, beside the running pipeline.

    Times are those of the records in the log. Events of a replay have the attribute logboom.replay with its name.
    """
    from logboom.pipeline.edge.streams import StreamAdmin
    from logboom.pipeline.plan.paths import checkpoint_of
    from logboom.pipeline.run import replay as replays

    given = (sink, from_time, to_time, where, route, ids, archive, into, at, room, rate)
    session = session_of(master, environment, spark_settings)
    _check_together(resume, sink, all_sinks, archive, into, at, any_given=any(one is not None for one in given))
    plan = compiled(file)
    fed, fed_file = (plan, file) if into is None else (compiled(into), into)
    checkpoint = checkpoint_of(fed)
    if resume is not None:
        begun = replays.remembered(checkpoint, resume)
    else:
        found = None if archive is None else replays.archive_of(plan, archive, fed, at)
        begun = _with_room(_asked(sink, from_time, to_time, where, route, ids, rate, found), room)
    admin = StreamAdmin(bootstrap_of(fed, bootstrap))
    replayed = replays.replay_plan(fed.turned(dials_now(fed, admin)), begun)
    _tell_what_is_left_out(replayed, begun, admin, fed)
    if dry_run:
        _count(replayed, begun, admin, fed_file, as_json=as_json)
        return
    if resume is None:
        replays.remember(checkpoint, begun)
    again = f"logboom pipeline replay {fed_file} --resume {begun.name}"
    note(f"replay {begun.name}: {_span(begun)} into {_target(begun)}; if interrupted: {again}")
    _run(replayed, begun, admin, checkpoint, session, as_json=as_json)


def _check_together(
    resume: str | None,
    sink: str | None,
    all_sinks: bool,
    archive: str | None,
    into: Path | None,
    at: str | None,
    *,
    any_given: bool,
) -> None:
    """Options that do not go together, or leave open what is replayed."""
    if resume is not None and (all_sinks or any_given):
        fail("--resume goes on as the replay began: it takes none of the options that say what is replayed")
    if archive is None and (into is not None or at is not None):
        fail("--into and --at go with --archive; for records of the log replay the other file itself, with --all-sinks")
    if resume is None and sink is None and not all_sinks and into is None:
        fail("name what is replayed with --sink NAME or --all-sinks, or go on with --resume NAME")
    if sink is not None and all_sinks:
        fail("--sink and --all-sinks exclude each other")


def _tell_what_is_left_out(replayed: Any, begun: Any, admin: Any, plan: Any) -> None:
    """Says which sinks get nothing; of which streams records of the time may be deleted, and where these could be."""
    from logboom.pipeline.run.replay import left_out
    from logboom.pipeline.run.replay_count import begins_late
    from logboom.pipeline.sinks.parquet import ParquetSink

    if begun.sink is None and (missing := left_out(plan, replayed)):
        note(f"nothing of it comes to {', '.join(missing)}")
    if begun.archive is not None:
        return
    late = begins_late(replayed, begun, admin)
    if not late:
        return
    archives = [sink.name for sink in plan.sinks if isinstance(sink, ParquetSink)]
    advice = f"; an archive may have them: --archive {archives[0]}" if archives else ""
    note(f"older records of {', '.join(late)} are deleted, perhaps some of this time{advice}")


def _count(replayed: Any, begun: Any, admin: Any, file: Path, *, as_json: bool) -> None:
    from logboom.pipeline.run.archive_loader import room_of
    from logboom.pipeline.run.replay_count import count_replay

    with tempfile.TemporaryDirectory() as directory:
        keys = keys_of(replayed, file, admin, Path(directory))
        found = count_replay(replayed, begun, admin, keys)
    loaded_bytes = min(found.loaded_bytes, room_of(begun))
    seconds = None if begun.events_per_s is None else found.records / begun.events_per_s
    if as_json:
        print_json(
            {
                "sink": begun.sink,
                "from": begun.from_ms,
                "to": begun.to_ms,
                "records": found.records,
                "events": found.events,
                "by_sink": found.by_sink,
                "seconds": seconds,
                "loaded_bytes": loaded_bytes,
            }
        )
        return
    what = plural(found.records, "record" if begun.archive is None else "archived event")
    lasts = "" if seconds is None else f", which takes at least {seconds:,.0f} s at {begun.events_per_s:,} a second"
    typer.echo(f"{plural(found.events, 'event')} of {what} from {_span(begun)} would go to {_target(begun)}{lasts}")
    if begun.sink is None:
        for name, count in found.by_sink.items():
            typer.echo(f"  {count:,} to {name}")
    if begun.archive is not None:
        typer.echo(f"meanwhile they take up to {human_bytes(loaded_bytes)} of the log, on each replica")


def _span(begun: Any) -> str:
    return f"{moment_text(begun.from_ms)} to {moment_text(begun.to_ms)}"


def _target(begun: Any) -> str:
    return "all sinks" if begun.sink is None else str(begun.sink)


def _run(replayed: Any, begun: Any, admin: Any, checkpoint: Path, session: Any, *, as_json: bool) -> None:
    from logboom.pipeline.plan.names import edge_stream
    from logboom.pipeline.run.archive_loader import ArchiveLoader
    from logboom.pipeline.run.display import make_display
    from logboom.pipeline.run.replay import directory_of
    from logboom.pipeline.run.runner import Runner, RunOptions

    display = make_display(as_json=as_json)
    loader = None
    if begun.archive is not None:
        loader = ArchiveLoader(replayed, begun, directory_of(checkpoint, begun.name), admin, display.notify)
        loader.prepare()
        # Spark removes what a sort left on disk when the JVM next collects garbage.
        settings = {"spark.cleaner.periodicGC.interval": "1min", **session.settings}
        session = replace(session, settings=settings)
    options = RunOptions(
        bootstrap=admin.bootstrap,
        once=True,
        session=session,
        records_per_s=begun.events_per_s,
        turns_dials=False,
        before=None if loader is None else loader.load,
    )
    runner = Runner(replayed, options, display)
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
    own = [edge_stream(replayed.name, edge) for node in replayed.transforms for edge in node.outputs]
    admin.delete(stream for stream in (*own, *_loaded(loader)) if stream in there)


def _loaded(loader: Any) -> tuple[str, ...]:
    return () if loader is None else (loader.stream,)


def _asked(
    sink: str | None,
    from_time: str | None,
    to_time: str | None,
    where: str | None,
    route: str | None,
    ids: Path | None,
    rate: int | None,
    archive: Any,
) -> Any:
    from logboom.pipeline.run.replay import IDS_MAX, Replay

    _check_where(where)
    if from_time is None:
        fail("say from when on with --from TIME")
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
        archive=archive,
    )


def _with_room(asked: Any, room: str | None) -> Any:
    """With the room in the log that a replay of an archive may take."""
    if room is None:
        return asked
    if asked.archive is None:
        fail("--room goes with --archive: a replay from the log takes no room for what it reads")
    try:
        room_bytes = parse_size_bytes(room)
    except ValueError as error:
        fail(f"--room: {error}")
    if room_bytes < MIB:
        fail("--room: should be 1MiB or more")
    return msgspec.structs.replace(asked, room_bytes=room_bytes)


def _moment(option: str, text: str) -> int:
    at = moment_ms(text)
    return at if at is not None else int(time.time() * 1_000) - span_ms(option, text.removesuffix(" ago"))


def _check_where(where: str | None) -> None:
    from logboom.pipeline.config.sqlcheck import check_expressions
    from logboom.pipeline.plan.nodes import EVENT_COLUMNS, Expression

    if where is not None:
        asked = Expression(sql=where, columns=EVENT_COLUMNS, line=0, where="--where")
        (problem,) = check_expressions([asked])
        if problem is not None:
            fail(f"--where {where}: {problem}")


def register(pipeline: typer.Typer) -> None:
    """Adds the command to `logboom pipeline`."""
    pipeline.command("replay")(replay)
