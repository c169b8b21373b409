"""`logboom pipeline replay`: send past events to a sink, or through a whole pipeline, again."""

import secrets
import signal
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from logboom.base.quantities import parse_size_bytes
from logboom.base.units import MIB
from logboom.cli.common import AsJson, fail, human_bytes, note, plural, print_json, read_text
from logboom.cli.moments import ago_ms, moment_ms, moment_text
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
from logboom.cli.progress import ProgressLine

Archive = Annotated[
    str | None, typer.Option("--archive", metavar="SINK", help="Read this archive of the pipeline, not the log.")
]
FromLog = Annotated[
    bool, typer.Option("--from-log", help="Read only the log, even if it has deleted a part of the time range.")
]
Partial = Annotated[
    bool, typer.Option("--partial", help="Replay what the log and archives have, even if some of it may be missing.")
]
Room = Annotated[
    str | None, typer.Option("--room", metavar="SIZE", help="With an archive: space in the log for its events (4GiB).")
]
Rate = Annotated[int | None, typer.Option("--rate", metavar="N", min=1, help="At most this many records a second.")]
Resume = Annotated[str | None, typer.Option("--resume", metavar="NAME", help="Continue a replay that was interrupted.")]
Condition = Annotated[str | None, typer.Option("--where", metavar="SQL", help="Only events for which this is true.")]
Ids = Annotated[
    Path | None, typer.Option("--ids", metavar="FILE", help="Only events with these ids, one on each line.")
]
Route = Annotated[
    str | None, typer.Option("--route", metavar="OUTPUT", help="Events of this output; default: the sink's inputs.")
]
Into = Annotated[
    Path | None,
    typer.Option("--into", metavar="FILE", help="With --archive: send the events to the sinks of another pipeline."),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="OUTPUT", help="With --archive: the output of that pipeline at which the events enter."
    ),
]


def replay(
    file: File,
    sink: Annotated[str | None, typer.Option("--sink", metavar="NAME", help="The sink that gets the events.")] = None,
    all_sinks: Annotated[bool, typer.Option("--all-sinks", help="All sinks of the pipeline instead of one.")] = False,
    from_time: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Start time: 2h ago, or 2026-11-20T12:00:00Z.")
    ] = None,
    to_time: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End time, as for --from; default: now.")
    ] = None,
    where: Condition = None,
    route: Route = None,
    ids: Ids = None,
    archive: Archive = None,
    from_log: FromLog = False,
    partial: Partial = False,
    into: Into = None,
    at: At = None,
    room: Room = None,
    rate: Rate = None,
    resume: Resume = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be replayed.")] = False,
    master: Master = "local[*]",
    environment: Environment = None,
    spark_settings: SparkSettings = None,
    bootstrap: Where = None,
    as_json: AsJson = False,
) -> None:
    """Send past events through the transforms again and into one sink, or all, while the pipeline may be running. If
    Spark's JVM ends, the replay continues with a new one.

    Reads the log, and reads what the log has deleted from an archive of the pipeline, if one has it. Times are those of
    the records in the log. Replayed events have the attribute logboom.replay with the name of the replay.
    """
    from logboom.pipeline.edge.streams import StreamAdmin
    from logboom.pipeline.plan.paths import checkpoint_of
    from logboom.pipeline.run import replay as replays
    from logboom.pipeline.run.restarts import allow_signals, restarts_so_far

    if (before := restarts_so_far()) is not None:
        allow_signals()
    given = (sink, from_time, to_time, where, route, ids, archive, into, at, room)
    session = session_of(master, environment, spark_settings)
    any_given = from_log or partial or any(one is not None for one in given)
    _check_together(resume, sink, all_sinks, archive, into, at, any_given=any_given)
    _check_origin(archive, room, from_log=from_log, partial=partial)
    resume = resume if before is None else before.replay
    plan = compiled(file, on_spark=True)
    fed, fed_file = (plan, file) if into is None else (compiled(into, on_spark=True), into)
    checkpoint = checkpoint_of(fed)
    admin = StreamAdmin(bootstrap_of(fed, bootstrap))
    turned = fed.turned(dials_now(fed, admin))
    if resume is not None:
        begun, why = replays.at_rate(replays.remembered(checkpoint, resume), rate), "as when it began"
    else:
        found = None if archive is None else replays.archive_of(plan, archive, fed, at)
        begun, why = _asked(sink, from_time, to_time, where, route, ids, rate, found), "as requested"
        if archive is None and not from_log:
            begun, why = _with_origin(turned, begun, admin, partial=partial)
        begun = _with_room(begun, room)
    parts = [(replays.replay_plan(turned, part), part) for part in replays.parts_of(begun)]
    _say_what_is_read(begun, why, replays.left_out(fed, parts[-1][0]) if begun.sink is None else ())
    if dry_run:
        _count(parts, begun, admin, fed_file, as_json=as_json)
        return
    replays.remember(checkpoint, begun)
    _say_how_to_resume(begun, fed_file)
    _run(_Runs(parts, begun, admin, checkpoint, session, before, as_json=as_json))


def _say_what_is_read(begun: Any, why: str, missing: Iterable[str]) -> None:
    """`missing`: sinks that get nothing of it."""
    if names := ", ".join(missing):
        note(f"no events are replayed to {names}")
    note(f"events are read from {_origin(begun)}: {why}")


def _say_how_to_resume(begun: Any, file: Path) -> None:
    again = f"logboom pipeline replay {file} --resume {begun.name}"
    note(f"replay {begun.name}: {_span(begun)} into {_target(begun)}; if interrupted: {again}")


def _run(runs: "_Runs") -> None:
    """Run a replay to its end. If Spark's JVM ends, a new process in the place of this one continues."""
    from logboom.pipeline.run.restarts import held_signals, start_anew

    restarts = runs.run()
    with held_signals():
        if restarts is not None and not runs.stopped:
            start_anew(restarts.of_replay(runs.name))
    runs.finish()


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
        fail("--resume continues a replay as it was started; only --rate may be changed")
    if archive is None and (into is not None or at is not None):
        fail("--into and --at require --archive; to replay records of the log, replay the other file with --all-sinks")
    if resume is None and sink is None and not all_sinks and into is None:
        fail("choose sinks with --sink NAME or --all-sinks, or continue a replay with --resume NAME")
    if sink is not None and all_sinks:
        fail("--sink and --all-sinks exclude each other")


def _check_origin(archive: str | None, room: str | None, *, from_log: bool, partial: bool) -> None:
    if sum((from_log, partial, archive is not None)) > 1:
        fail("--archive, --from-log and --partial exclude each other: each chooses where events are read from")
    if from_log and room is not None:
        fail("--room is for archives: a replay from the log needs no additional space")


def _with_origin(plan: Any, asked: Any, admin: Any, *, partial: bool) -> tuple[Any, str]:
    """With where it is read from (the log, an archive, or both), and why. Ends the command if they lack a part."""
    from logboom.pipeline.run.replay_choice import Incomplete
    from logboom.pipeline.run.replay_origin import chosen_origin

    found = chosen_origin(plan, asked, admin, lambda: _totals(plan), partial=partial)
    if isinstance(found, Incomplete):
        advice = "--partial replays what there is, --from-log what the log has, --archive NAME what an archive has"
        fail(f"events of that time may be missing: {'; '.join(found.lines)}. {advice}")
    replay, choice = found
    return replay, choice.why


def _totals(plan: Any) -> Any:
    """What the ledgers of the pipeline have counted; None where it has never run."""
    from logboom.pipeline.checkpoint.keeping import opened_to_read
    from logboom.pipeline.checkpoint.ledger import BatchLedgers

    with opened_to_read(plan) as checkpoint:
        ledgers = checkpoint / "ledger"
        last = BatchLedgers(ledgers).last() if ledgers.exists() else None
    return None if last is None else last.total


def _origin(begun: Any) -> str:
    if begun.archive is None:
        return "the log"
    return "the log and, for the time before its start, an archive" if begun.seam else "an archive only"


def _count(parts: Any, begun: Any, admin: Any, file: Path, *, as_json: bool) -> None:
    from logboom.pipeline.run.archive_loader import room_of
    from logboom.pipeline.run.replay_count import ReplayCount, count_replay

    found = ReplayCount(from_log=0, from_archive=0, by_sink={})
    with ProgressLine("counting") as progress:
        for plan, part in parts:
            before = found.records

            def told(records: int, before: int = before) -> None:
                progress.at(f"counting: {plural(before + records, 'record')}")

            with tempfile.TemporaryDirectory() as directory:
                keys = keys_of(plan, file, admin, Path(directory))
                found = found.plus(count_replay(plan, part, admin, keys, told))
    loaded_bytes = min(found.loaded_bytes, room_of(begun))
    seconds = None if begun.events_per_s is None else found.records / begun.events_per_s
    if as_json:
        print_json(
            {
                "sink": begun.sink,
                "from": begun.from_ms,
                "to": begun.to_ms,
                "records": found.records,
                "from_log": found.from_log,
                "from_archive": found.from_archive,
                "events": found.events,
                "by_sink": found.by_sink,
                "seconds": seconds,
                "loaded_bytes": loaded_bytes,
            }
        )
        return
    read = [plural(found.from_log, "record")] if begun.archive is None or begun.seam else []
    what = " and ".join(read + ([] if begun.archive is None else [plural(found.from_archive, "archived event")]))
    lasts = "" if seconds is None else f", which takes at least {seconds:,.0f} s at {begun.events_per_s:,} a second"
    typer.echo(f"{plural(found.events, 'event')} of {what} from {_span(begun)} would go to {_target(begun)}{lasts}")
    if begun.sink is None:
        for name, count in found.by_sink.items():
            typer.echo(f"  {count:,} to {name}")
    if begun.archive is not None:
        typer.echo(f"until it ends they take up to {human_bytes(loaded_bytes)} in the log of each replica")


def _span(begun: Any) -> str:
    return f"{moment_text(begun.from_ms)} to {moment_text(begun.to_ms)}"


def _target(begun: Any) -> str:
    return "all sinks" if begun.sink is None else str(begun.sink)


class _Runs:
    """The runs that a replay consists of, one after the other in one session."""

    def __init__(
        self, parts: Any, begun: Any, admin: Any, checkpoint: Path, session: Any, restarts: Any, *, as_json: bool
    ) -> None:
        """`restarts`: where it continues after the end of a JVM."""
        from logboom.pipeline.run.archive_loader import ArchiveLoader
        from logboom.pipeline.run.display import make_display
        from logboom.pipeline.run.replay import directory_of
        from logboom.pipeline.run.runner import Runner, RunOptions

        self._parts, self._begun, self._admin = parts, begun, admin
        self.name: str = begun.name
        self._directory = directory_of(checkpoint, begun.name)
        self.stopped = False
        self._loader = None
        display = make_display(as_json=as_json)
        replayed, last = parts[-1]
        if last.reads_archive:
            self._loader = ArchiveLoader(replayed, last, self._directory, admin, display.notify)
            self._loader.prepare()
            # Spark removes what a sort left on disk when the JVM next collects garbage.
            settings = {"spark.cleaner.periodicGC.interval": "1min", **session.settings}
            session = replace(session, settings=settings)
        options = RunOptions(
            bootstrap=admin.bootstrap,
            once=True,
            is_replay=True,
            session=session,
            records_per_s=begun.events_per_s,
            turns_dials=False,
            restarts=restarts,
        )
        self._earlier = [Runner(plan, options, make_display(as_json=as_json)) for plan, _ in parts[:-1]]
        self._last = Runner(replayed, replace(options, before=self._before), display)
        self._all = [*self._earlier, self._last]

    def _before(self, spark: Any, stop: Any) -> bool:
        """The part from the log, once, and what is loaded of the archive."""
        while self._earlier and not stop.is_set():
            self._earlier[0].run_in(spark)
            self._earlier.pop(0)
        return self._loader is not None and not stop.is_set() and self._loader.load(spark, stop)

    def _stop(self, _number: int, _frame: object) -> None:
        self.stopped = True
        for runner in self._all:
            runner.stop()

    def run(self) -> Any:
        """Runs all parts. If the JVM ended, returns what the process that continues has to know."""
        from logboom.pipeline.errors import JvmEndedError
        from logboom.pipeline.run.replay import log_part_directory

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        try:
            self._last.run()
        except JvmEndedError as ended:
            return self._last.next_start(ended, log_part_directory(self._directory))
        return None

    def finish(self) -> None:
        """Says how to continue if it was stopped; otherwise deletes its streams."""
        from logboom.pipeline.plan.names import edge_stream, tick_stream

        if self.stopped:
            note(f"interrupted; continue it with --resume {self._begun.name}")
            raise typer.Exit(1)
        plans = [plan for plan, _ in self._parts]
        there = self._admin.partitions()
        own = [edge_stream(plan.name, edge) for plan in plans for node in plan.transforms for edge in node.outputs]
        own += [tick_stream(plan.name) for plan in plans]
        self._admin.delete(stream for stream in (*own, *_loaded(self._loader)) if stream in there)
        self._admin.delete(_without_letters(plans, self._admin))


def _without_letters(plans: Any, admin: Any) -> list[str]:
    """The streams for dead letters of a replay that is over in which there is none."""
    from logboom.pipeline.run.dead_letters import dead_streams

    there = admin.partitions()
    counts = {stream: there[stream] for plan in plans for stream in dead_streams(plan).values() if stream in there}
    return [stream for stream, ends in admin.ends(counts).items() if not any(ends.values())]


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
        fail("give the start time with --from TIME")
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
    try:
        room_bytes = parse_size_bytes(room)
    except ValueError as error:
        fail(f"--room: {error}")
    if room_bytes < MIB:
        fail("--room: should be 1MiB or more")
    return msgspec.structs.replace(asked, room_bytes=room_bytes)


def _moment(option: str, text: str) -> int:
    at = moment_ms(text)
    return at if at is not None else ago_ms(text.removesuffix(" ago"), option)


def _check_where(where: str | None) -> None:
    from logboom.pipeline.config.sqlcheck import check_expressions
    from logboom.pipeline.plan.nodes import EVENT_COLUMNS, Expression

    if where is not None:
        asked = Expression(sql=where, columns=EVENT_COLUMNS, line=0, where="--where")
        with ProgressLine("checking --where"):
            (problem,) = check_expressions([asked])
        if problem is not None:
            fail(f"--where {where}: {problem}")


def register(pipeline: typer.Typer) -> None:
    """Adds the command to `logboom pipeline`."""
    pipeline.command("replay")(replay)
