"""`logboom pipeline tap`: live events at an output of a pipeline."""

import signal
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from logboom.cli.common import AsJson, escaped_json, fail, note, printable
from logboom.cli.moments import span_ms
from logboom.cli.pipeline_common import File, Where, bootstrap_of, compiled, dials_now, keys_of


def tap(
    file: File,
    output: Annotated[
        str, typer.Argument(metavar="OUTPUT", show_default=False, help="A transform, or an output of it: split.errors.")
    ],
    rate: Annotated[
        int, typer.Option("--rate", metavar="N", min=1, help="Records to process each second; others are skipped.")
    ] = 500,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, help="End after this many events.")
    ] = None,
    for_time: Annotated[str | None, typer.Option("--for", metavar="TIME", help="End after this time.")] = None,
    bootstrap: Where = None,
    as_json: AsJson = False,
) -> None:
    """Show live events at an output of a pipeline, masked and sampled as there, until Ctrl-C.

    This command reads and processes the records itself; the running pipeline is not involved.
    """
    from logboom.pipeline.edge.streams import StreamAdmin
    from logboom.pipeline.run.tap import event_line, live_events, tap_plan

    plan = compiled(file)
    _check_output(plan, output)
    admin = StreamAdmin(bootstrap_of(plan, bootstrap))
    tapped = tap_plan(plan.turned(dials_now(plan, admin)), output)
    deadline = None if for_time is None else time.monotonic() + span_ms("--for", for_time) / 1_000
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: stopped.append(number))

    def is_over() -> bool:
        return bool(stopped) or (deadline is not None and time.monotonic() >= deadline)

    shown = 0
    with tempfile.TemporaryDirectory() as directory:
        keys = keys_of(tapped, file, admin, Path(directory))
        for event in live_events(tapped, admin, keys, rate, is_over, note):
            typer.echo(escaped_json(event.decode()) if as_json else printable(event_line(event)))
            shown += 1
            if shown == count:
                return


def _check_output(plan: Any, output: str) -> None:
    from logboom.pipeline.findings import hint

    known = [edge for node in plan.transforms for edge in node.outputs]
    if output not in known:
        fail(f"the pipeline {plan.name} has no output {output!r} ({hint(output, known)})")


def register(pipeline: typer.Typer) -> None:
    """Adds the command to `logboom pipeline`."""
    pipeline.command("tap")(tap)
