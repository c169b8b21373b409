"""The process that `tests.support.commands` forks commands off: it has loaded `logboom`, and waits for requests.

A command that ended leaves as a child of `multiprocessing` does: threads are joined, what was registered for the exit
is called, output is flushed, and the interpreter is not torn down. The teardown writes to every object of every module,
which in a forked process copies fifty megabytes, three quarters of what a short command costs. Commands that run as
they are installed (the README's page, tests/app/test_node.py) end in full.

It is started with the number of a socket's descriptor. A request is the JSON of arguments, directory and environment,
with the three standard files beside it. There are two answers: the process id of the command, and `forked` once that
process is no longer a child of this one.
"""

import atexit
import gc
import json
import os
import signal
import socket
import sys
import threading
from typing import Any, NoReturn

from tests.support.commands import REQUEST_BYTES_MAX

from logboom.cli import main as cli

_COMMANDS = (
    "serve",
    "cluster",
    "streams",
    "tables",
    "publish",
    "tail",
    "services",
    "groups",
    "quotas",
    "collect",
    "pipeline",
    "log",
    "sim",
    "config",
    "bench",
)
_CANNOT_FLUSH = 120
"""The interpreter's own exit code where output cannot be flushed at its end (`Py_FinalizeEx`)."""


def _load() -> None:
    for name in _COMMANDS:
        cli._load(name)
    _freeze()


def _load_pipelines() -> None:
    """What the commands of pipelines load first, which only those who run one pay. Not PySpark and pandas, which most
    do without: py4j converts in other ways where PySpark is loaded."""
    if "logboom.pipeline.config.sqlcheck" in sys.modules:
        return
    from logboom.pipeline.config import sqlcheck  # noqa: F401
    from logboom.pipeline.execute import examples  # noqa: F401
    from logboom.pipeline.parse.formats.registry import format_types
    from logboom.pipeline.sinks.registry import sink_types
    from logboom.pipeline.transforms.registry import transform_types

    format_types()
    sink_types()
    transform_types()
    _freeze()


def _freeze() -> None:
    """A collection of garbage in a forked process would copy every page of what was loaded."""
    gc.collect()
    gc.freeze()


def _is_command(connection: socket.socket) -> bool:
    """Waits for requests. True in a process that was forked off to run a command; False where no more requests come."""
    while True:
        message, files, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, 3)
        if not message:
            return False
        request = json.loads(message)
        if request["arguments"][:1] == ["pipeline"]:
            _load_pipelines()
        # The process between ends at once, which makes the command a child of the tests' process.
        between = os.fork()
        if between == 0:
            command = os.fork()
            if command:
                connection.send(str(command).encode())
                os._exit(0)
            connection.detach()  # closed below, as every descriptor but the standard ones
            _prepare(request, files)
            return True
        for file in files:
            os.close(file)
        os.waitpid(between, 0)
        connection.send(b"forked")


def _prepare(request: dict[str, Any], files: list[int]) -> None:
    if request["new_session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests were started with it ignored
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, max(files) + 1)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["logboom", *request["arguments"]]


def _run() -> int:
    """Runs the command; its exit code, as `sys.exit` takes it."""
    try:
        cli.main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    return 0


def _leave(code: int) -> NoReturn:
    """What the end of an interpreter does before it tears itself down."""
    threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing.process does
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = _CANNOT_FLUSH
    os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the tests is theirs; their end ends this process too
    _load()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        run_command = _is_command(requests)
    if run_command:
        _leave(_run())
