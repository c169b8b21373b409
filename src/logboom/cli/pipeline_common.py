"""What the commands that look at a pipeline beside its run have in common."""

import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from logboom.cli.common import BOOTSTRAP_DEFAULT, note, read_text

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


def compiled(file: Path) -> Any:
    """The plan of a file, its SQL checked; SettingsError with all that is wrong."""
    from logboom.pipeline.config.compile import compile_pipeline
    from logboom.pipeline.config.sqlcheck import check_expressions

    return compile_pipeline(read_text(file), str(file), check_expressions, variables=os.environ)


def bootstrap_of(plan: Any, given: str | None) -> str:
    """The brokers of a plan. `given`: on the command line or in the environment."""
    return given or plan.bootstrap or BOOTSTRAP_DEFAULT


def dials_now(plan: Any, admin: Any) -> dict[str, Any]:
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
