"""A directory like a virtual environment whose `bin/logboom` runs in a process forked off one that has loaded it.

Programs that are not ours, such as the shell that runs a page's commands, call it as they call any `logboom`. What they
start is a stub of some milliseconds: it hands its arguments, environment, directory and standard files to the process
that runs the tests, passes signals on, and ends as the command ends (`tests.support.commands`).
"""

import contextlib
import os
import select
import shlex
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.commands import LogboomProcess
from tests.support.stub_server import StubServer

_STUB = """
import os, signal, socket, sys
request = "\\0".join((os.getcwd(), str(len(sys.argv) - 2), *sys.argv[2:], *(f"{k}={v}" for k, v in os.environ.items())))
data = request.encode(errors="surrogateescape")
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
socket.send_fds(server, [len(data).to_bytes(4, "big")], [0, 1, 2])
server.sendall(data)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, lambda number, frame: server.send(bytes([number])))
code = int(server.recv(16) or -signal.SIGKILL)
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""
_LOOK_S = 0.5
_END_MAX_S = 300


class ForkedProgram:
    """The directory, for as long as the `with` block runs; commands that still run at its end are killed."""

    def __init__(self, directory: Path) -> None:
        """`directory` is made: links into this environment, and the stub in place of `logboom`."""
        self.directory = directory
        self._sockets = Path(tempfile.mkdtemp(prefix="logboom-stub-"))  # a socket's path has 107 bytes at most
        self._stubs = StubServer(self._sockets / "socket", self._serve)

    def __enter__(self) -> Self:
        own = Path(sys.prefix)
        (self.directory / "bin").mkdir(parents=True)
        for name in ("lib", "pyvenv.cfg"):
            (self.directory / name).symlink_to(own / name)
        for program in (own / "bin").iterdir():
            if program.name != "logboom":
                (self.directory / "bin" / program.name).symlink_to(program)
        (self._sockets / "stub.py").write_text(_STUB)
        stub = self.directory / "bin" / "logboom"
        called = shlex.join([sys.executable, "-IS", str(self._sockets / "stub.py"), str(self._stubs.path)])
        stub.write_text(f'#!/bin/sh\nexec {called} "$@"\n')
        stub.chmod(0o755)
        self._stubs.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stubs.stop(_END_MAX_S)
        shutil.rmtree(self._sockets)

    def _serve(self, connection: socket.socket) -> None:
        """One command from its start to its end."""
        with connection:
            size, files, _, _ = socket.recv_fds(connection, 4, 3)
            data = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
            directory, count, *rest = os.fsdecode(data).split("\0")
            arguments, variables = rest[: int(count)], rest[int(count) :]
            environment = dict(variable.split("=", 1) for variable in variables)
            try:
                process = LogboomProcess(
                    arguments, stdin=files[0], stdout=files[1], stderr=files[2], cwd=Path(directory), env=environment
                )
            finally:
                for file in files:
                    os.close(file)
            self._accompany(process, connection)

    def _accompany(self, process: LogboomProcess, connection: socket.socket) -> None:
        """Passes signals on, and tells the exit code; a stub that is killed takes its command along."""
        ended = os.pidfd_open(process.pid)
        try:
            while process.poll() is None and not self._stubs.stops.is_set():
                readable, _, _ = select.select([connection.fileno(), ended], [], [], _LOOK_S)
                if connection.fileno() in readable:
                    signals = connection.recv(64)
                    if not signals:
                        break
                    for number in signals:
                        process.send_signal(signal.Signals(number))
            process.kill()  # nothing, where it has ended
        finally:
            os.close(ended)
        with contextlib.suppress(OSError):
            connection.send(str(process.wait(_END_MAX_S)).encode())
