"""What the commands of `logboom bench` that start their own brokers share: options, the brokers' life, the outcome."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, Protocol, TypeVar

import typer

from logboom.bench import plots, report
from logboom.bench.servers import Server
from logboom.cli.common import fail, made_directory, print_json

Out = Annotated[Path, typer.Option("--out", help="Folder for results; each run makes a folder of its own in it.")]
Data = Annotated[
    Path,
    typer.Option(
        "--data", help="Directory in which the brokers' own is made, and removed again.", callback=made_directory
    ),
]
OUT: Final = Path("bench-out")
HERE: Final = Path()
PREFIX: Final = "logboom-bench-"
"""Of the directories that are made for brokers."""

AnyServer = TypeVar("AnyServer", bound=Server)


@contextmanager
def own_server(parent: Path, make: Callable[[Path], AnyServer]) -> Iterator[AnyServer]:
    """A server in a directory below `parent`, which is removed at the end. The server is not started here."""
    with TemporaryDirectory(prefix=PREFIX, dir=parent) as directory:
        server = make(Path(directory))
        try:
            yield server
        finally:
            server.kill9()


def chosen(option: str, words: str, known: Iterable[str]) -> tuple[str, ...]:
    """The words of an option, each known; ends the command where one is not."""
    found = tuple(word.strip() for word in words.split(",") if word.strip())
    strange = [word for word in found if word not in known]
    if strange:
        fail(f"{option}: {', '.join(strange)}: not one of {', '.join(known)}")
    return found


def write_result(
    lines: Sequence[str],
    out: Path,
    name: str,
    result: dict[str, Any],
    *,
    as_json: bool,
    bars: dict[str, float] | None = None,
    unit: str = "",
    title: str | None = None,
) -> None:
    """Write the result, and a picture where there are bars; print the lines, or the result as JSON."""
    target = report.write(out, name, {"result": result})
    files = ["result.json"]
    if bars is not None:
        plots.bars(target, title or f"bench {name}", bars, unit)
        files.append("picture.png")
    if as_json:
        print_json({**result, "folder": str(target)})
    else:
        typer.echo("\n".join([*lines, *(f"{target}/{file}" for file in files)]))


class Comparison(Protocol):
    """What a run over several servers came to."""

    @property
    def ended_early(self) -> bool:
        """Whether it was interrupted: what it measured until then is there."""

    def as_json(self) -> dict[str, Any]:
        """All of it, for a program."""


def show_comparison(outcome: Comparison, target: Path, text: str, *, as_json: bool) -> None:
    """Print what was written into the folder `target`: its table, or all as JSON. Ends the command with 1 where the
    run ended early."""
    if as_json:
        print_json({**outcome.as_json(), "folder": str(target)})
    else:
        typer.echo(f"{text}\n{target}/result.json, table.md and pictures")
    if outcome.ended_early:
        raise typer.Exit(1)
