"""The command `logboom`: the list of its commands, each loaded when it is called for, and the end of every error.

A command's module offers `register(app)`, which adds commands to a Typer application. `logboom --help` loads none of
them, and none loads another's libraries.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import sys
import traceback
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from logboom.base import build
from logboom.base.errors import LogboomError
from logboom.base.without_packages import UNUSED_ANYWHERE, without_packages
from logboom.cli.common import error_line

_PROGRAM: Final = "logboom"
_EXIT_ERROR: Final = 1
_EXIT_BUG: Final = 70
_EXIT_INTERRUPTED: Final = 130

_COMMANDS: Final = {
    "serve": "Run a broker.",
    "streams": "Create, list, describe, alter and delete streams.",
    "tables": "Read, write and watch compacted streams as tables.",
    "publish": "Send lines to a stream.",
    "tail": "Read a stream.",
    "services": "Show recorded NATS services, and send their requests again.",
    "cluster": "Run a cluster on this machine; show and change any cluster.",
    "groups": "List, describe and reset consumer groups.",
    "quotas": "List, set and remove the quotas of clients.",
    "collect": "Ship log lines of this host to a stream.",
    "pipeline": "Check, test and run a pipeline on Spark.",
    "bench": "Measure a broker, or the router.",
    "log": "Check and read a data directory, of a running or a stopped broker.",
    "sim": "Run brokers in simulated time, with faults chosen by seeds.",
    "config": "Show, check and change the broker's configuration.",
}


_DRAWING: Final = ("cluster", "pipeline", "sim")
"""Commands that draw with rich. For the others structlog would load it, 0.1 s and more, to draw tracebacks with it,
which Logboom's logs do not."""


class _Later(TyperCommand):
    """A command that is known by name and help, and loaded when it is run or completed."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, help=text)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return _load(str(self.name)).make_context(info_name, args, parent=parent, **extra)


def _module(name: str) -> str:
    return f"logboom.cli.{name}"


def _load(name: str) -> Any:
    app = typer.Typer()
    app.callback()(lambda: None)  # with it, one command alone is still a command of a group
    with without_packages(*UNUSED_ANYWHERE, *(() if name in _DRAWING else ("rich",))):
        module = importlib.import_module(_module(name))
    module.register(app)
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return group.commands[name]


def _version(value: bool) -> None:
    if value:
        typer.echo(f"{_PROGRAM} {importlib.metadata.version('logboom')}, {build.describe()}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A durable log that speaks the Kafka protocol, with a collector and a pipeline on Spark."""


def application() -> TyperGroup:
    """The whole command with all that this installation has."""
    app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})
    app.callback()(_root)
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for name, text in _COMMANDS.items():
        if importlib.util.find_spec(_module(name)) is not None:
            group.add_command(_Later(name, text))
    return group


def main() -> None:
    """Entry point: runs a command and turns every error into a sentence and an exit code."""
    try:
        with without_packages(*UNUSED_ANYWHERE):  # for all that a command loads later, too
            application().main(prog_name=_PROGRAM)
    except LogboomError as error:
        error_line(str(error))
        sys.exit(_EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(_EXIT_INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - outermost: a user gets a sentence, not a traceback
        sys.exit(_EXIT_INTERRUPTED if _is_interruption(error) else _unforeseen(error))


def _is_interruption(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error. A library in C++ that is just being imported raises an ImportError for it, of
    which only the text says so."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) or "KeyboardInterrupt" in _text_of(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _unforeseen(error: Exception) -> int:
    if type(error).__name__ == "KafkaException":
        from logboom.cli.client import sentence  # loaded already: it raised

        error_line(sentence(error))
        return _EXIT_ERROR
    if isinstance(error, OSError):
        error_line(f"{error.filename or 'the system'}: {error.strerror or error}")
        return _EXIT_ERROR
    if os.environ.get("LOGBOOM_DEBUG"):
        traceback.print_exception(error)
    error_line(f"this is a bug ({type(error).__name__}: {_text_of(error)}); LOGBOOM_DEBUG=1 shows where")
    return _EXIT_BUG


def _text_of(error: BaseException) -> str:
    """What an error says; errors of Java ask their JVM for it, which may have ended by now."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - py4j raises many types if the JVM of a Java error has ended
        return "its text is gone"
