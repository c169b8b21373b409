"""`logboom pipeline`: check, test and run a pipeline, and list or retry its dead letters."""

import contextlib
import functools
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from logboom.base.errors import LogboomError
from logboom.base.settings import SettingsError, split_address
from logboom.cli import pipeline_dials, pipeline_replay, pipeline_tap, pipeline_tools, pipeline_volume
from logboom.cli.common import AsJson, fail, for_output, note, plural, print_json, print_table, printable, read_text
from logboom.cli.pipeline_common import (
    Environment,
    File,
    Master,
    SparkSettings,
    Where,
    bootstrap_of,
    checked_bootstrap,
    compiler,
    session_of,
)
from logboom.cli.progress import ProgressLine

pipeline = typer.Typer(no_args_is_help=True, help="Check, test and run a pipeline on Spark.")
letters = typer.Typer(no_args_is_help=True, help="What could not be parsed or delivered.")
pipeline.add_typer(letters, name="dead-letters")
pipeline.add_typer(pipeline_dials.dial, name="dial")
pipeline_tools.register(pipeline)
pipeline_tap.register(pipeline)
pipeline_replay.register(pipeline)
pipeline_volume.register(pipeline)

Stage = Annotated[str | None, typer.Option("--stage", metavar="NAME", help="Only those of this transform or sink.")]


def _compiled(
    file: Path, *, check_sql: bool = True, check_only: bool = False, to_run: bool = False, bootstrap: str | None = None
) -> Any:
    """The plan of a file. `check_only`: as for `_sql_checker`. `to_run`: with what a run needs of this machine, such as
    directories that can be written."""
    text = read_text(file)
    with _sql_checker(text, check_only=check_only) if check_sql else contextlib.nullcontext() as check:
        plan = compiler(on_spark=to_run and not check_only)(
            text,
            str(file),
            check,
            bootstrap=checked_bootstrap(bootstrap),
            environ=os.environ if to_run else None,
            variables=os.environ,
        )
    for warning in plan.warnings:
        place = f"{warning.file or file}:{warning.line}" if warning.line is not None else str(file)
        note(f"{place}: {warning.where}: warning: {warning.message}")
    return plan


@contextlib.contextmanager
def _sql_checker(text: str, *, check_only: bool) -> Iterator[Any]:
    """The checker of a file's SQL. `check_only`: nothing but the check is done in this process. Then its JVM, where the
    file is not known to need none, comes up while the rest of the program is imported, which takes as long."""
    from logboom.pipeline.config.sqlcache import VerdictCache
    from logboom.pipeline.spark.jars import cache_dir

    cache = VerdictCache(cache_dir().parent)
    jvm = None
    if check_only and not cache.knows_file(text):
        from logboom.pipeline.spark.catalyst import CatalystJvm

        with contextlib.suppress(LogboomError):  # no Java: an error only where the checker finds that it needs one
            jvm = CatalystJvm()
    try:
        from logboom.pipeline.config.sqlcheck import check_expressions

        yield functools.partial(check_expressions, jvm=jvm)
        cache.keep_file(text)
    finally:
        if jvm is not None:
            jvm.kill()


@pipeline.command("check")
def check(
    file: File,
    connect: Annotated[
        bool, typer.Option("--connect", help="Also try once whether each sink's server answers and accepts events.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Report all errors in a pipeline file, each with its line; exit code 1 if there are any."""
    try:
        with ProgressLine(f"checking {file}"):
            plan = _compiled(file, check_only=True, to_run=True, bootstrap=os.environ.get("LOGBOOM_BOOTSTRAP"))
    except SettingsError as error:
        if not as_json:
            raise
        problems = [
            {"file": at.file or str(file), "line": at.line, "where": at.where, "message": at.message}
            for at in error.problems
        ]
        print_json({"file": str(file), "ok": False, "problems": problems})
        raise typer.Exit(1) from error
    faults = []
    if connect:
        with ProgressLine("trying the sinks") as progress:
            for fault in _unconnected(plan, progress):
                faults.append(fault)
                if not as_json:
                    at = ":".join(str(part) for part in (fault["file"], fault["line"]) if part is not None)
                    typer.echo(f"{at}: {fault['where']}: {fault['message']}", err=True)
    if as_json:
        print_json({"file": str(file), "ok": not faults, "problems": faults})
    elif not faults:
        parts = (plural(len(plan.sources), "source"), plural(len(plan.transforms), "transform"))
        typer.echo(f"{file}: no errors: {', '.join(parts)}, {plural(len(plan.sinks), 'sink')}")
    if faults:
        raise typer.Exit(1)


def _unconnected(plan: Any, progress: ProgressLine) -> Iterator[dict[str, Any]]:
    """What is wrong with a checkpoint and sinks that cannot be reached, as problems of the file, each once it is known:
    a server that hangs takes its sink's timeout."""
    from logboom.pipeline.checkpoint.keeping import try_keeping
    from logboom.pipeline.errors import PipelineError
    from logboom.pipeline.run.connecting import try_sinks

    try:
        try_keeping(plan)
    except PipelineError as error:
        yield {"file": plan.file, "line": None, "where": "checkpoint", "message": str(error)}
    for sink, message in try_sinks(plan, os.environ, lambda sink: progress.at(f"trying sink {sink.name}")):
        yield {"file": sink.in_file or plan.file, "line": sink.line, "where": f"sinks.{sink.name}", "message": message}


@pipeline.command("test")
def run_tests(
    file: File,
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="URL", help="Run them on this Spark master; default: in this process, without Spark."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the tests in a pipeline file; exit code 1 if one of them fails."""
    from logboom.pipeline.execute.examples import run_examples, summary
    from logboom.pipeline.mask.keys import load_keys

    with ProgressLine(f"checking {file}"):
        plan = _compiled(file)
    keys = load_keys(plan.key_refs(), os.environ, file.parent)
    with contextlib.ExitStack() as stack:
        if plan.table_refs():
            keys |= stack.enter_context(_tables(plan, file.parent))
        collect = None if master is None else stack.enter_context(_collect_on(master, plan.name))
        with ProgressLine("running the tests"):
            failures = run_examples(plan, keys, collect)
    if as_json:
        found = [
            {"file": one.file or str(file), "test": one.test, "line": one.line, "message": one.message}
            for one in failures
        ]
        print_json({"file": str(file), "tests": len(plan.tests), "failures": found})
    else:
        for one in failures:
            typer.echo(f"{one.file or file}:{one.line}: {one.test}: {one.message}")
        typer.echo(summary(plan.tests, failures))
    if failures:
        raise typer.Exit(1)


@contextlib.contextmanager
def _tables(plan: Any, base: Path) -> Iterator[dict[str, bytes]]:
    """The tables of a plan as they are now, for as long as its examples run."""
    from logboom.pipeline.enrich.store import TableStore

    with tempfile.TemporaryDirectory() as directory:
        store = TableStore(Path(directory), base, note)
        yield store.paths(store.current(plan.table_refs()))


@contextlib.contextmanager
def _collect_on(master: str, name: str) -> Iterator[Any]:
    """The way of examples through a Spark session."""
    from logboom.pipeline.execute.on_spark import collect_on
    from logboom.pipeline.spark.session import start_session
    from logboom.pipeline.spark.settings import SessionOptions

    spark = start_session(f"logboom pipeline test {name}", SessionOptions(master=master))
    try:
        yield collect_on(spark)
    finally:
        spark.stop()


DropState = Annotated[
    list[str] | None,
    typer.Option("--drop-state", metavar="NAME", help="Discard the state of this transform; repeatable."),
]


@pipeline.command("run")
def run(
    file: File,
    once: Annotated[bool, typer.Option("--once", help="End when all existing records have been processed.")] = False,
    master: Master = "local[*]",
    environment: Environment = None,
    bootstrap: Where = None,
    http: Annotated[
        str | None, typer.Option("--http", metavar="HOST:PORT", help="Serve /metrics on this address.")
    ] = None,
    spark_settings: SparkSettings = None,
    ui: Annotated[bool, typer.Option("--ui", help="Serve Spark's own pages.")] = False,
    spark_log: Annotated[
        str, typer.Option("--spark-log", metavar="LEVEL", help="The log level of Spark itself.")
    ] = "OFF",
    renamed_from: Annotated[
        str | None,
        typer.Option("--renamed-from", metavar="NAME", help="The former name of the pipeline, whose checkpoint it is."),
    ] = None,
    drop_state: DropState = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline until Ctrl-C or SIGTERM; the batch in progress is completed first. If Spark's JVM ends, the
    pipeline continues with a new one.

    Unless the output is a terminal, SIGHUP applies the edited file, as `logboom pipeline reload` does.
    """
    from logboom.pipeline.run.restarts import allow_signals, held_signals, restarts_so_far, start_anew
    from logboom.pipeline.spark.settings import LOG_LEVELS

    if spark_log.upper() not in LOG_LEVELS:
        fail(f"--spark-log {spark_log}: should be one of {', '.join(LOG_LEVELS)}")
    session = session_of(master, environment, spark_settings, ui=ui, log_level=spark_log.upper())
    before, again = restarts_so_far(), None
    if before is not None:
        allow_signals()
    jvm, has_worked = _early_jvm(session, once=once), False
    try:
        # All this is loaded, and the file checked, while the JVM comes up.
        from logboom.pipeline.registry import read_plan
        from logboom.pipeline.run.display import make_display
        from logboom.pipeline.run.runner import Runner, RunOptions

        compiled = functools.partial(_compiled, file, to_run=True, bootstrap=bootstrap)
        plan = compiled() if before is None or before.plan is None else read_plan(before.plan)
        options = RunOptions(
            bootstrap=bootstrap_of(plan, bootstrap),
            once=once,
            session=session,
            http=split_address(http) if http else None,
            jvm=jvm,
            renamed_from=renamed_from,
            drop_state=(*(drop_state or ()), *(() if before is None else before.dropped)),
            recompile=compiled,
            restarts=before,
        )
        runner = Runner(plan, options, make_display(as_json=as_json))
        again = _run_until_it_ends(runner)
        has_worked = sum(runner.progress.snapshot().now.records_in.values()) > 0
    finally:
        if jvm is not None:
            jvm.close(has_worked=has_worked)
    with held_signals():
        if again is not None and not runner.stopping.is_set():
            start_anew(again)


def _run_until_it_ends(runner: Any) -> Any:
    """The run, with signals that stop and reload it; what the process that goes on has to know where its JVM ended."""
    from logboom.pipeline.errors import JvmEndedError

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: runner.stop())
    if not sys.stdout.isatty():  # on a terminal it means that the terminal is gone
        signal.signal(signal.SIGHUP, lambda _number, _frame: runner.reload())
    try:
        runner.run()
    except JvmEndedError as ended:
        return runner.next_start(ended)
    return None


def _early_jvm(options: Any, *, once: bool) -> Any:
    """The JVM of the session, which comes up beside what is done next; None where it cannot be started at once: the
    session then tells why."""
    from logboom.pipeline.spark.jars import cached_jars
    from logboom.pipeline.spark.session import start_jvm

    with contextlib.suppress(LogboomError):
        return None if cached_jars() is None else start_jvm(options, write_archive=once)
    return None


@pipeline.command("reload")
def reload(
    file: File,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=1, help="How long to wait.")] = 120,
    drop_state: DropState = None,
) -> None:
    """Apply an edited file to the running pipeline between two batches; no event is lost or repeated.

    If the file has errors, they are all reported, and the pipeline keeps running with the previous version of it.
    """
    from logboom.pipeline.plan.paths import checkpoint_of
    from logboom.pipeline.run.reloading import ask_running

    try:
        plan = _compiled(file)
    except SettingsError as error:
        fail(f"{error}\nthe running pipeline was not changed")
    answer = ask_running(checkpoint_of(plan), timeout, drop_state or ())
    if answer.problem is not None:
        fail(f"{plan.name} {answer.message}")
    typer.echo(f"{plan.name} {answer.message}")


@pipeline.command("repin")
def repin(
    file: File,
    yes: Annotated[
        bool, typer.Option("--yes", help="Make the change; without this option, only show what may repeat.")
    ] = False,
    bootstrap: Where = None,
) -> None:
    """Run a batch that was partly written before an edit again with the edited pipeline.

    Without --yes it only shows which records may be written twice, and exits with code 1.
    """
    from logboom.pipeline.checkpoint.files import exclusive_lock
    from logboom.pipeline.checkpoint.keeping import LOCK, is_in_bucket, keeping_of, where_kept
    from logboom.pipeline.edge.streams import StreamAdmin
    from logboom.pipeline.edge.table_streams import TableStreams
    from logboom.pipeline.enrich.store import TableStore
    from logboom.pipeline.mask.keys import load_keys
    from logboom.pipeline.plan.paths import checkpoint_of
    from logboom.pipeline.run.batch_dials import BatchDials
    from logboom.pipeline.run.batch_planner import BatchPlanner

    plan = _compiled(file, check_sql=False)
    checkpoint, keeping = checkpoint_of(plan), keeping_of(plan)
    if not is_in_bucket(plan) and not checkpoint.exists():
        fail(f"the pipeline has never run: there is no checkpoint {checkpoint}")
    admin = StreamAdmin(bootstrap_of(plan, bootstrap))
    tables = TableStore(checkpoint / "tables", file.parent, note, TableStreams(admin).newest)
    dials = BatchDials(plan, admin, checkpoint, note)
    with exclusive_lock(checkpoint / LOCK, f"the checkpoint {checkpoint}"):
        keeping.look()
        planner = BatchPlanner(plan, admin, checkpoint, load_keys, note, tables, dials)
        written = planner.unfinished()
        if written is None:
            typer.echo("nothing to do: no batch is waiting to run again")
            return
        if not written.plan_changed:
            typer.echo(f"nothing to do: batch {written.batch} began with the pipeline as it is in {file}")
            return
        typer.echo("\n".join(written.lines()))
        if not yes:
            fail(f"add --yes to run batch {written.batch} again with the pipeline as it is in {file}")
        keeping.open(threading.Event())  # from here on no run elsewhere commits anything
        again = planner.unfinished()
        if again is None or again.batch != written.batch:
            fail(f"the pipeline is running and has changed {where_kept(plan)} meanwhile: stop it first")
        dials.declare()
        planner.repin(written.batch)
        keeping.save(None)
        keeping.close(ended=True)
    typer.echo(f"batch {written.batch} will run with {file} at the next start")


_REASONS_SHOWN: Final = 5
_REASON_CHARS: Final = 120


@letters.command("list")
def list_letters(file: File, stage: Stage = None, bootstrap: Where = None, as_json: AsJson = False) -> None:
    """List dead letters, oldest first, and then their most frequent reasons."""
    from logboom.pipeline.run.dead_letters import common_reasons

    found = _letters(file, stage, bootstrap)[2]
    if as_json:
        for letter in found:
            print_json(_shown(letter))
        return
    rows = [
        (one.id, one.stage, one.origin, "yes" if one.retried else "", one.reason[:80], (_text(one.value) or "")[:60])
        for one in found
    ]
    print_table(("id", "stage", "origin", "retried", "reason", "value"), rows)
    note(plural(len(found), "dead letter"))
    for at, reason, count in common_reasons(found, _REASONS_SHOWN):
        note(f"  {count:,} at {at}: {reason[:_REASON_CHARS]}")


@letters.command("show")
def show_letter(
    file: File,
    letter: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    bootstrap: Where = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter in full."""
    one = next((one for one in _letters(file, None, bootstrap)[2] if one.id == letter), None)
    if one is None:
        fail(f"there is no dead letter {letter}; see: logboom pipeline dead-letters list {file}")
    if as_json:
        print_json(_shown(one))
        return
    for name, value in _shown(one).items():
        if name != "value":
            typer.echo(f"{name}: {printable(str(value))}")
    typer.echo()
    sys.stdout.buffer.write(for_output(one.value or b"") + b"\n")


@letters.command("retry")
def retry_letters(
    file: File,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that have not been retried.")] = False,
    stage: Stage = None,
    bootstrap: Where = None,
    as_json: AsJson = False,
) -> None:
    """Send dead letters through the pipeline again: the given ones, or all that have not been retried."""
    from logboom.pipeline.run.dead_letters import retry

    if bool(ids) == (everything or stage is not None):
        fail("name the dead letters to retry, or --all, or --stage NAME")
    plan, admin, found, book = _letters(file, stage, bootstrap)
    known = {one.id for one in found}
    for letter in ids or []:
        if letter not in known:
            fail(f"there is no dead letter {letter}; see: logboom pipeline dead-letters list {file}")
    chosen = [one for one in found if (one.id in ids if ids else not one.retried)]
    done = retry(admin, plan, chosen, book)
    if as_json:
        print_json({"retried": len(done.sent), "left": done.left})
    else:
        typer.echo(f"retried {plural(len(done.sent), 'dead letter')}")
        for letter, reason in done.left.items():
            note(f"{letter} cannot be retried: {reason}")
    if done.left:
        raise typer.Exit(1)


def _letters(file: Path, stage: str | None, bootstrap: str | None) -> Any:
    """The plan, the log, the letters, and which were retried."""
    from logboom.pipeline.checkpoint.keeping import retried_letters_of
    from logboom.pipeline.edge.streams import StreamAdmin
    from logboom.pipeline.run.dead_letters import RetriedLetters, read_letters

    plan = _compiled(file, check_sql=False)
    admin = StreamAdmin(bootstrap_of(plan, bootstrap))
    book = RetriedLetters(retried_letters_of(plan))
    return plan, admin, list(read_letters(admin, plan, book, stage)), book


def _shown(letter: Any) -> dict[str, Any]:
    return {
        "id": letter.id,
        "time_ms": letter.time_ms,
        "stage": letter.stage,
        "reason": letter.reason,
        "form": letter.form,
        "origin": letter.origin,
        "source": letter.source,
        "edge": letter.edge,
        "retry_of": letter.retry_of,
        "retried": letter.retried,
        "key": _text(letter.key),
        "headers": {key: _text(value) for key, value in letter.headers},
        "value": _text(letter.value),
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def register(app: typer.Typer) -> None:
    """Adds `pipeline` to the command."""
    app.add_typer(pipeline, name="pipeline")
