"""Processes that are forked off another one, which has loaded what they need and does nothing else.

Loading takes more CPU time than most of what the tests start. A process of this kind has arguments, a directory, an
environment and standard files of its own. It becomes a child of the process that asked for it, which signals it and
waits for it as usual. `tests.support.fork_server` is the other side.
"""

import atexit
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from tests.support.waiting import WAIT_S

REQUEST_BYTES_MAX: Final = 1 << 17
FORKED: Final = b"forked"
_ROOT = Path(__file__).parent.parent.parent
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2): orphans below this process become its children


class Template:
    """The process that has loaded what is needed, and the socket on which it is asked to fork."""

    def __init__(self, command: Callable[[int], Sequence[str]]) -> None:
        """`command` starts it; the number is that of the descriptor of its socket."""
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                command(theirs.fileno()),
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def fork(self, request: Mapping[str, object], files: Sequence[int]) -> int:
        """Process id of a new child of this process."""
        message = json.dumps(request).encode()
        assert len(message) <= REQUEST_BYTES_MAX
        with self._lock, _adopting_orphans():
            socket.send_fds(self._socket, [message], list(files))
            pid = int(self._socket.recv(100))
            # Its parent has ended: from here on it is a child of this process.
            assert self._socket.recv(100) == FORKED, "the template process has ended"
            return pid

    def _end(self) -> None:
        self._socket.close()
        self._process.wait(WAIT_S)


class ForkedProcess:
    """A running process, with the methods of `subprocess.Popen` that the tests use.

    `stdin`, `stdout` and `stderr` are open files or descriptors, `subprocess.PIPE`, or None for /dev/null.
    """

    def __init__(
        self,
        template: Template,
        arguments: Sequence[str],
        *,
        stdin: int | IO[bytes] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        new_session: bool = False,
    ) -> None:
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        request = {
            "arguments": list(arguments),
            "directory": str(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
            "new_session": new_session,
        }
        with contextlib.ExitStack() as until_forked:
            files = []
            for name, given in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
                if given is None:
                    file = os.open(os.devnull, os.O_RDWR)
                    until_forked.callback(os.close, file)
                elif given == subprocess.PIPE:
                    reading, writing = os.pipe()
                    own, file = (writing, reading) if name == "stdin" else (reading, writing)
                    setattr(self, name, os.fdopen(own, "wb" if name == "stdin" else "rb"))
                    until_forked.callback(os.close, file)
                else:
                    file = given if isinstance(given, int) else given.fileno()
                files.append(file)
            self.pid = template.fork(request, files)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                file.close()
        self.wait()

    def poll(self) -> int | None:
        """The exit code, minus the number of the signal that ended it, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout_s: float | None = None) -> int:
        """The exit code, once it has ended; `subprocess.TimeoutExpired` after `timeout_s`."""
        if self.poll() is None:
            descriptor = os.pidfd_open(self.pid)
            try:
                select.select([descriptor], [], [], timeout_s)
            finally:
                os.close(descriptor)
        code = self.poll()
        if code is None:
            assert timeout_s is not None
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout_s)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing, where it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


@contextlib.contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Only for a moment: some tests expect that what outlives its parent is waited for by the system."""
    prctl = ctypes.CDLL(None).prctl
    assert prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
