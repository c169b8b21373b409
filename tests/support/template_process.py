"""The process that `tests.support.commands` forks commands off: it has loaded `logboom`, and waits for requests.

It is started with the number of a socket's descriptor. A request is the JSON of arguments, directory and environment,
with the three standard files beside it. There are two answers: the process id of the command, and `forked` once that
process is no longer a child of this one.
"""

import gc
import json
import os
import signal
import socket
import sys
from typing import Any

from tests.support.commands import REQUEST_BYTES_MAX

from logboom.cli import main as cli

_COMMANDS = ("serve", "cluster", "streams", "publish", "tail", "groups", "quotas", "collect", "log", "config", "bench")


def _load() -> None:
    for name in _COMMANDS:
        cli._load(name)
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy every page of what was loaded


def _is_command(connection: socket.socket) -> bool:
    """Waits for requests. True in a process that was forked off to run a command; False where no more requests come."""
    while True:
        message, files, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, 3)
        if not message:
            return False
        # The process between ends at once, which makes the command a child of the tests' process.
        between = os.fork()
        if between == 0:
            command = os.fork()
            if command:
                connection.send(str(command).encode())
                os._exit(0)
            connection.detach()  # closed below, as every descriptor but the standard ones
            _prepare(json.loads(message), files)
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


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the tests is theirs; their end ends this process too
    _load()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        run_command = _is_command(requests)
    if run_command:
        cli.main()
