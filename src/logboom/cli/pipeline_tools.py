"""`logboom pipeline decrypt`, `suggest`, `graph` and `package`: decrypt values, propose rules for sample lines, draw a
pipeline, pack what it needs on the machines of a cluster."""

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from logboom.cli.common import fail, note, plural
from logboom.cli.pipeline_common import File, Where, bootstrap_of, plan_of
from logboom.cli.progress import ProgressLine


def decrypt(
    key: Annotated[
        list[str],
        typer.Option(
            "--key",
            metavar="NAME=env:VARIABLE|file:PATH",
            help="The name of a key, and where the key is; repeatable.",
        ),
    ],
) -> None:
    """Read lines of JSON, such as `logboom tail` writes, and write them with their encrypted values decrypted.

    Values that were encrypted with other keys are not changed. Exit code 1 if a value cannot be decrypted.
    """
    from logboom.pipeline.mask.keys import load_keys
    from logboom.pipeline.plan.nodes import KeyRef
    from logboom.pipeline.seal.cipher import KEY_NAME, Cipher
    from logboom.pipeline.seal.reading import Opener

    ciphers = {}
    for given in key:
        name, _, place = given.partition("=")
        kind, _, where = place.partition(":")
        if not KEY_NAME.fullmatch(name) or kind not in ("env", "file") or not where:
            fail(f"--key {given}: write it as NAME=env:VARIABLE or NAME=file:PATH")
        ref = KeyRef(env=where) if kind == "env" else KeyRef(file=where)
        ciphers[name] = Cipher(name, load_keys((ref,), os.environ, Path())[ref.id])
    opener = Opener(ciphers)
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        out.write(opener.line(line.rstrip(b"\r\n")) + b"\n")
    out.flush()
    for name in sorted(opener.unknown):
        note(f"some values were encrypted with the key {name}, which was not given")
    if opener.failed:
        count = plural(opener.failed, "value")
        fail(f"{count} could not be decrypted: changed, or encrypted with another key of that name")


def suggest(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="Sample lines.")],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Of the pipeline and of the stream it reads.")
    ] = "suggested",
) -> None:
    """Propose a pipeline for lines like those in a file: formats, and patterns for lines that no format parses.

    The result passes `check`; review and edit it before use.
    """
    from logboom.pipeline.plan.names import stream_name_problem
    from logboom.pipeline.suggest.proposal import LINES_MAX, propose
    from logboom.pipeline.without_pandas import decide_without_pandas

    decide_without_pandas()
    problem = stream_name_problem(name)
    if problem is not None:
        fail(problem)
    with ProgressLine(f"reading {file}") as progress:
        try:
            lines = file.read_bytes().decode(errors="replace").splitlines()
        except OSError as error:
            fail(f"{file}: {error.strerror}")
        sample = lines[:: max(1, -(-len(lines) // LINES_MAX))]
        progress.at(f"looking for formats of {len(sample):,} of {plural(len(lines), 'line')}")
        found = propose(sample, name)
    if not found.lines:
        fail(f"{file}: the file has no lines")
    typer.echo(found.yaml, nl=False)
    note(f"its rules parse {found.read:,} of {found.lines:,} lines")


def graph(
    file: File,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write an SVG picture (.svg) or Mermaid text (.mmd).")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Show it in the terminal, with rates, lag and dead letters.")
    ] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.5, help="How often --live is updated.")
    ] = 2,
    bootstrap: Where = None,
) -> None:
    """Draw a pipeline: its sources, transforms and sinks. Without --out, it prints Mermaid text.

    --live draws it in the terminal until Ctrl-C, with current figures; only once if the output is not a terminal.
    """
    from logboom.pipeline.drawing.graph import graph_of
    from logboom.pipeline.drawing.mermaid import mermaid
    from logboom.pipeline.drawing.svg import svg

    plan = plan_of(file)
    if live:
        _draw_live(plan, bootstrap_of(plan, bootstrap), every)
        return
    if out is None:
        typer.echo(mermaid(graph_of(plan)), nl=False)
        return
    if out.suffix not in (".svg", ".mmd"):
        fail(f"--out {out}: the file should end in .svg or .mmd")
    drawn = svg(graph_of(plan), plan.name) if out.suffix == ".svg" else mermaid(graph_of(plan))
    try:
        out.write_text(drawn, encoding="utf-8")
    except OSError as error:
        fail(f"{out}: {error.strerror}")


def package(
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Where to write it; its name ends with .tar.gz.")
    ] = Path("environment.tar.gz"),
) -> None:
    """Pack the Python packages that executors import, for `run --environment` on a Spark cluster.

    The machines of the cluster only need Spark and Python of the same versions as here.
    """
    from logboom.base.units import MIB
    from logboom.pipeline.spark.environment import pack

    if not out.name.endswith((".tar.gz", ".tgz")):
        fail(f"--out {out}: the name should end with .tar.gz, by which Spark knows how to unpack it")
    with ProgressLine("packing") as progress:
        packed = pack(out, lambda name: progress.at(f"packing {name}"))
    note(f"{out}: {plural(packed.distributions, 'package')}, {packed.size_bytes / MIB:.0f} MiB")


def _draw_live(plan: Any, bootstrap: str, every_s: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from logboom.pipeline.checkpoint.keeping import opened_to_read
    from logboom.pipeline.drawing.graph import graph_of
    from logboom.pipeline.drawing.live import live_picture
    from logboom.pipeline.edge.streams import StreamAdmin
    from logboom.pipeline.run.live_state import live_state

    admin, drawn = StreamAdmin(bootstrap), graph_of(plan)

    def picture() -> Any:
        with opened_to_read(plan) as checkpoint:
            states = live_state(plan, checkpoint, admin)
        troubled = [name for name, state in states.items() if state.dead]
        return live_picture(drawn, {name: _figures(state) for name, state in states.items()}, troubled)

    console = Console()
    if not console.is_terminal:
        console.print(picture())
        return
    with contextlib.suppress(KeyboardInterrupt), Live(picture(), console=console, auto_refresh=False) as shown:
        while True:
            time.sleep(every_s)
            shown.update(picture(), refresh=True)


def _figures(state: Any) -> list[str]:
    """A node as lines of its box."""
    found = []
    if state.events_per_s is not None:
        found.append(f"{state.events_per_s:,.1f} events/s")
    if state.dropped_per_s:
        found.append(f"drops {state.dropped_per_s:,.1f}/s")
    if state.lag is not None:
        found.append(f"lag {state.lag:,}")
    if state.dead:
        found.append(plural(state.dead, "dead letter"))
    return found


def register(pipeline: typer.Typer) -> None:
    """Adds the commands to `logboom pipeline`."""
    pipeline.command("decrypt")(decrypt)
    pipeline.command("suggest")(suggest)
    pipeline.command("graph")(graph)
    pipeline.command("package")(package)
