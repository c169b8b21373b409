"""`logboom collect`: the lines of this host into streams."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from structlog.typing import FilteringBoundLogger

from logboom.app.config import LogConfig
from logboom.app.log import open_log
from logboom.base.settings import YamlDocument, load, parse_yaml
from logboom.base.units import MIB
from logboom.cli.common import fail, note, read_text
from logboom.collector.agent import Agent
from logboom.collector.config import CollectorConfig
from logboom.collector.data_dir import DataDirInUseError
from logboom.collector.record_client import check_options
from logboom.collector.stats import serve_metrics
from logboom.host import keep_buffers

_STDIN_DIRS: Final = 16
"""Pipes into one stream that may run at the same time without --data-dir."""

_KEPT_BYTES: Final = 16 * MIB
"""Freed memory the allocator keeps: a few unfinished batches. Without it a sixth of the CPU time is page faults."""


def collect(
    config: Annotated[Path | None, typer.Argument(metavar="FILE", help="What to collect, as YAML.")] = None,
    stdin: Annotated[
        str | None, typer.Option("--stdin", metavar="STREAM", help="Collect standard input into this stream.")
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            envvar="LOGBOOM_BOOTSTRAP",
            show_envvar=True,
            metavar="HOST:PORT",
            help="Where the lines go, whatever the file says.",
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="Where positions and buffers are kept.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the file, and exit.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End when every file was read to its end.")] = False,
    stats: Annotated[
        float | None, typer.Option("--stats", min=0.1, metavar="SECONDS", help="Report the progress regularly.")
    ] = None,
) -> None:
    """Ship the log lines of this host to streams, each at least once, in the order of its file.

    Runs until Ctrl-C or SIGTERM. With --stdin it ends when its input has ended and everything was sent.
    """
    if (config is None) == (stdin is None):
        fail("name a configuration file, or --stdin STREAM to collect standard input")
    document = _stdin_document(stdin) if stdin else _file_document(config)
    settings = load(CollectorConfig, document)
    output = settings.output.model_copy(update={"bootstrap": bootstrap} if bootstrap else {})
    settings = settings.model_copy(update={"output": output})
    check_options(output)
    if check:
        note(f"{config} is right: {', '.join(f'{name} -> {settings.stream_of(name)}' for name in settings.inputs)}")
        return
    keep_buffers(_KEPT_BYTES)
    log = open_log(LogConfig())
    agent = _open(settings, data_dir, stdin, once, log)
    agent.handle_signals()
    _run(agent, stats, log)


def _run(agent: Agent, stats: float | None, log: FilteringBoundLogger) -> None:
    if agent.config.http:
        log.info("metrics", url=f"http://{serve_metrics(agent.snapshot, agent.config.http)}/metrics")
    try:
        agent.run(every_s=stats)
    finally:
        agent.close()
        log.info("collected", **agent.snapshot().line())


def _open(settings: CollectorConfig, data_dir: Path | None, stdin: str | None, once: bool, log: Any) -> Agent:
    """The agent in its data directory; for --stdin in the first of several that is free."""
    if data_dir is None and stdin is not None:
        candidates = [
            _state_dir() / (stdin if number == 1 else f"{stdin}-{number}") for number in range(1, _STDIN_DIRS + 1)
        ]
    else:
        candidates = [data_dir or Path(settings.data_dir)]
    for directory in candidates[:-1]:
        try:
            return _opened(settings, directory, once, log)
        except DataDirInUseError:
            continue
    return _opened(settings, candidates[-1], once, log)


def _opened(settings: CollectorConfig, directory: Path, once: bool, log: Any) -> Agent:
    agent = Agent(settings.model_copy(update={"data_dir": str(directory)}), log, stdin=sys.stdin.fileno(), once=once)
    agent.open()
    return agent


def _state_dir() -> Path:
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "logboom" / "stdin"


def _stdin_document(stream: str) -> YamlDocument:
    return YamlDocument({"inputs": {"stdin": {"type": "stdin", "stream": stream}}}, "--stdin")


def _file_document(file: Path | None) -> YamlDocument:
    assert file is not None
    return parse_yaml(read_text(file), str(file))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("collect")(collect)
