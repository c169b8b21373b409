"""One node in a process of its own: its start, the line by which it reports that it is ready, its log, its end.

The process prints one line of JSON on standard output when it is ready and its log on standard error, as `logboom serve
--json` does. Must not know why it runs.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, Any, Final, Self

from logboom.base.errors import LogboomError
from logboom.base.units import KIB, MIB

_CHUNK_BYTES: Final = 64 * KIB
_LINE_MAX_BYTES: Final = MIB
"""A longer line of a log is passed on in pieces."""
_REMEMBERED_LINES: Final = 10
_NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"
"""The supervisor itself tells systemd when all nodes are ready."""
_ERROR: Final = "logboom: "
"""The prefix of the sentence with which a command says why it failed."""
_LAST_LINES_MAX_S: Final = 1.0
"""How long the log of a process that has ended is read: what it has written is there at once, but a process that it had
started may hold the pipe open."""


class NodeStartError(LogboomError):
    """A node ended before it was ready, or did not become ready in time."""


class Child:
    """Life: `start`, then `ended` is done once. All on one loop."""

    def __init__(self, process: "subprocess.Popen[bytes]", log_line: Callable[[str], None]) -> None:
        self._process = process
        self._log_line = log_line
        self._last_lines: deque[str] = deque(maxlen=_REMEMBERED_LINES)
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._exit: asyncio.Future[int] = loop.create_future()
        # A thread, since a process of the child that outlives it for a moment would keep its pipes open.
        threading.Thread(target=self._wait, args=(loop,), daemon=True, name=f"wait-{process.pid}").start()
        self.ended: asyncio.Task[int] = asyncio.create_task(self._follow())
        """Done when the process has ended and its log was passed on; the exit code, minus the signal's number where one
        ended it."""

    @classmethod
    def start(cls, command: Sequence[str], log_line: Callable[[str], None]) -> Self:
        """Start a process; each line of its log goes to `log_line`. To be called in the main thread, since the child
        dies with the thread that started it (prctl(2)). Raises OSError."""
        launch = [sys.executable, "-P", "-m", "logboom.app.supervisor.launch", str(os.getpid()), *command]
        process = subprocess.Popen(
            launch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name != _NOTIFY_SOCKET},
        )
        return cls(process, log_line)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there, paused or not."""
        return not self._exit.done()

    async def ready(self, timeout_s: float | None) -> dict[str, Any]:
        """The node's ready line, once it is ready. Raises NodeStartError."""
        try:
            return await asyncio.wait_for(asyncio.shield(self._ready), timeout_s)
        except TimeoutError:
            raise NodeStartError(f"it was not ready after {timeout_s:g} s") from None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing, where the process has ended."""
        if self.running:
            self._process.send_signal(number)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop was closed by a supervisor that ends at once
            loop.call_soon_threadsafe(self._exit.set_result, code)

    async def _follow(self) -> int:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        pipes = (self._process.stdout, self._output_line), (self._process.stderr, self._take_log_line)
        pumps = [asyncio.create_task(_each_line(pipe, take)) for pipe, take in pipes]
        code = await self._exit
        await asyncio.wait(pumps, timeout=_LAST_LINES_MAX_S)
        for pump in pumps:
            pump.cancel()
        await asyncio.wait(pumps)
        if not self._ready.done():
            self._ready.set_exception(
                NodeStartError(f"it {how_it_ended(code)} before it was ready{self._last_words()}")
            )
            self._ready.exception()  # nobody needs to be waiting
        return code

    def _last_words(self) -> str:
        """The error with which a command ends, else the last line of its log: all of it was passed on already."""
        errors = [line.removeprefix(_ERROR) for line in self._last_lines if line.startswith(_ERROR)]
        return "".join(f": {line}" for line in errors or list(self._last_lines)[-1:])

    def _output_line(self, line: str) -> None:
        if self._ready.done():
            return
        try:
            self._ready.set_result(json.loads(line))
        except ValueError:
            self._take_log_line(line)

    def _take_log_line(self, line: str) -> None:
        self._last_lines.append(line)
        self._log_line(line)


async def _each_line(pipe: IO[bytes], take: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
    rest = b""
    try:
        while chunk := await stream.read(_CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) >= _LINE_MAX_BYTES:
                lines, rest = [*lines, rest], b""
            for line in lines:
                take(line.decode(errors="replace"))
        if rest:
            take(rest.decode(errors="replace"))
    finally:
        transport.close()


def how_it_ended(code: int) -> str:
    """The end of a process in words.

    >>> how_it_ended(1), how_it_ended(-9)
    ('ended with exit code 1', 'was ended by SIGKILL')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
