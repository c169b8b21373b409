"""The side of a template process: it has loaded what takes long, and a process is forked off it for each request.

The other side is `tests.support.forking`. A process that was forked off leaves as a child of `multiprocessing` does:
threads are joined, what was registered for the exit is called, output is flushed, and the interpreter is not torn down.
The teardown writes to every object of every module, which in a forked process copies fifty megabytes, three quarters of
what a short command costs.

A request is the JSON of arguments, directory and environment, with the three standard files beside it. There are two
answers: the process id of the new process, and `forked` once that process is no longer a child of this one.
"""

import atexit
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from tests.support.forking import FORKED, REQUEST_BYTES_MAX

_CANNOT_FLUSH = 120
"""The interpreter's own exit code where output cannot be flushed at its end (`Py_FinalizeEx`)."""


def wait_for_request(descriptor: int, prepare: Callable[[dict[str, Any]], None]) -> dict[str, Any] | None:
    """The request, in a process that was forked off for it; None, in the template process, where no more requests come.

    `descriptor` is that of the socket on which they come. `prepare` is called with each, before the fork.
    """
    with socket.socket(fileno=descriptor) as connection:
        while True:
            message, files, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, 3)
            if not message:
                return None
            request: dict[str, Any] = json.loads(message)
            prepare(request)
            # The process between ends at once, which makes the new one a child of the tests' process.
            between = os.fork()
            if between == 0:
                forked = os.fork()
                if forked:
                    connection.send(str(forked).encode())
                    os._exit(0)
                connection.detach()
                _become(request, files, descriptor)
                return request
            for file in files:
                os.close(file)
            os.waitpid(between, 0)
            connection.send(FORKED)


def _become(request: dict[str, Any], files: list[int], connection: int) -> None:
    """Has the request's standard files, and no others."""
    if request["new_session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests were started with it ignored
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, max(*files, connection) + 1)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])


def leave(code: int) -> NoReturn:
    """What the end of an interpreter does before it tears itself down."""
    threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing.process does
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = _CANNOT_FLUSH
    os._exit(code)
