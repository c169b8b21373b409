"""What the commands of `logboom pipeline` have in common: arguments, the plan of a file, brokers, Spark's session."""

import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from logboom.base.settings import split_bootstrap
from logboom.cli.common import BOOTSTRAP_DEFAULT, fail, note, read_text
from logboom.cli.progress import ProgressLine

File = Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="The pipeline, as YAML.")]
Where = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="LOGBOOM_BOOTSTRAP",
        show_envvar=True,
        metavar="HOST:PORT",
        help="The broker; overrides the file.",
    ),
]
Master = Annotated[str, typer.Option("--master", metavar="URL", help="Spark master to run on.")]
Environment = Annotated[
    str | None,
    typer.Option("--environment", metavar="ARCHIVE", help="Python packages for the machines of a cluster (`package`)."),
]
SparkSettings = Annotated[
    list[str] | None, typer.Option("--spark", metavar="KEY=VALUE", help="A Spark setting; repeatable.")
]


def plan_of(file: Path) -> Any:
    """The plan of a file, its SQL not checked; SettingsError with all else that is wrong."""
    return compiler()(read_text(file), str(file), variables=os.environ)


def compiled(file: Path, *, on_spark: bool = False) -> Any:
    """The plan of a file, its SQL checked; SettingsError with all that is wrong. `on_spark`: as for `compiler`."""
    from logboom.pipeline.config.sqlcheck import check_expressions

    with ProgressLine(f"checking {file}"):
        return compiler(on_spark=on_spark)(read_text(file), str(file), check_expressions, variables=os.environ)


def compiler(*, on_spark: bool = False) -> Any:
    """`compile_pipeline`. It tries patterns with pyarrow, which loads pandas then. `on_spark`: the command goes on to a
    session of Spark, which asks for pandas, so it may be loaded now, while the JVM comes up."""
    if not on_spark:
        from logboom.pipeline.without_pandas import decide_without_pandas

        decide_without_pandas()
    from logboom.pipeline.config.compile import compile_pipeline

    return compile_pipeline


def checked_bootstrap(given: str | None) -> str | None:
    """What the command line or the environment says of the brokers; ends the command where that can be none."""
    try:
        if given:
            split_bootstrap(given)
    except ValueError as error:
        fail(f"--bootstrap (or LOGBOOM_BOOTSTRAP): {error}")
    return given or None


def bootstrap_of(plan: Any, given: str | None) -> str:
    """The brokers of a plan, None where there is no file. `given`: on the command line or in the environment."""
    of_file = None if plan is None else plan.bootstrap
    return checked_bootstrap(given) or of_file or BOOTSTRAP_DEFAULT


def session_of(master: str, environment: str | None, settings: list[str] | None, **more: Any) -> Any:
    """Spark's session as the command line has it. `more`: of `SessionOptions`."""
    from logboom.pipeline.spark.settings import SessionOptions

    pairs = [pair.partition("=") for pair in settings or []]
    for key, equals, _ in pairs:
        if not equals:
            fail(f"--spark {key}: write it as KEY=VALUE")
    chosen = {key: value for key, _, value in pairs}
    session = SessionOptions(master=master, environment=environment, settings=chosen, **more)
    if environment is not None and session.is_local:
        fail(f"--environment is for a cluster: with --master {master} everything runs here")
    return session


def dials_now(plan: Any, admin: Any) -> dict[str, Any]:
    """The values of the pipeline's dials now."""
    from logboom.pipeline.dials.changes import values_of
    from logboom.pipeline.dials.control import ControlStream

    control = ControlStream(admin, plan.name, [dial.name for dial in plan.dials()], note)
    if not plan.dials() or not control.exists():
        return {}
    values, complaints = values_of(control.refresh().in_effect(time.time_ns() // 1_000_000), plan.dials())
    for complaint in complaints:
        note(complaint)
    return values


def keys_of(plan: Any, file: Path, admin: Any, directory: Path) -> dict[str, bytes]:
    """The secret keys of a plan, and its tables as they are now, which are kept in a directory."""
    from logboom.pipeline.edge.table_streams import TableStreams
    from logboom.pipeline.enrich.store import TableStore
    from logboom.pipeline.mask.keys import load_keys

    keys = dict(load_keys(plan.key_refs(), os.environ, file.parent))
    if plan.table_refs():
        store = TableStore(directory, file.parent, note, TableStreams(admin).newest)
        keys |= store.paths(store.current(plan.table_refs()))
    return keys
