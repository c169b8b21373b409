"""A real broker in a process of its own, for tests that kill it, stop it, pause it and start it again.

Knows the command line of `logboom serve` and nothing of what is behind it.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.commands import LogboomProcess
from tests.support.waiting import WAIT_S

from logboom.host.tcp_ports import hold_free_port, port_of


class BrokerStartError(Exception):
    """The broker ended, or did not say that it is ready in time; the text carries the end of its log."""


class BrokerProcess:
    """`logboom serve` on free ports of 127.0.0.1, kept over restarts, with its data in `directory`.

        with BrokerProcess(tmp_path / "data") as broker:
            broker.kafka    # "127.0.0.1:23456"
            broker.kill9()
            broker.restart()

    The log of all its lives is the file `log_path`; its end is printed where the `with` block fails.
    """

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        log_path: Path | None = None,
        host: str = "127.0.0.1",
        within: tuple[str, ...] = (),
    ) -> None:
        """`within`: a command that runs its arguments as a command in its own place, such as `ip netns exec NAME`."""
        self.data = directory
        self.kafka = f"{host}:{free_port()}"
        self.http = f"{host}:{free_port()}"
        self.log_path = log_path or directory.with_name(f"{directory.name}.broker.log")
        self.ready: dict[str, object] = {}
        """What the broker said of itself when it was ready: kafka, http, data, pid."""
        self._arguments = arguments
        self._environment = {**os.environ, **(environment or {})}
        self._within = within
        self._process: LogboomProcess | subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            if error is not None:
                print(f"the broker's log, {self.log_path}, ends with:\n{self.log_text()[-4_000:]}", file=sys.stderr)

    @property
    def pid(self) -> int:
        """Process id of the life that was started last."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and return once it says that it is ready."""
        assert not self.running
        arguments = ["serve", "--json", "--data", str(self.data), "--kafka", self.kafka, "--http", self.http]
        arguments += self._arguments
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            if self._within:
                command = [*self._within, sys.executable, "-m", "logboom.cli", *arguments]
                self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=self._environment)
            else:
                self._process = LogboomProcess(arguments, stdout=subprocess.PIPE, stderr=log, env=self._environment)
        try:
            self.ready = json.loads(self._first_line())
        except BaseException:
            self.kill9()
            raise

    def restart(self) -> None:
        """Start it again on the same data and ports; stops it first where it still runs."""
        if self.running:
            self.sigterm()
        self.start()

    def kill9(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said."""
        self.end(signal.SIGKILL)

    def sigterm(self, timeout_s: float = WAIT_S) -> int:
        """SIGTERM; the exit code. The broker promises 0 within 5 s; a busy test machine is given more."""
        return self.end(signal.SIGTERM, timeout_s)

    def end(self, how: signal.Signals, timeout_s: float = WAIT_S) -> int:
        """Send a signal and wait for the end; the exit code."""
        process = self._process
        assert process is not None
        if process.poll() is None:
            process.send_signal(how)
        code = process.wait(timeout_s)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def stop(self) -> None:
        """End it in whatever state it is."""
        if not self.running:
            return
        try:
            self.sigterm()
        except subprocess.TimeoutExpired:
            self.kill9()
            raise

    def pause(self) -> None:
        """SIGSTOP: it holds its sockets and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def log_text(self) -> str:
        """All it has logged, over all its lives."""
        with contextlib.suppress(FileNotFoundError):
            return self.log_path.read_text(errors="replace")
        return ""

    def _first_line(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        deadline = time.monotonic() + WAIT_S
        line = b""
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise BrokerStartError(f"not ready after {WAIT_S} s:\n{self.log_text()[-4_000:]}")
            chunk = os.read(output, 65_536)
            if not chunk:
                code = self._process.wait(WAIT_S)
                raise BrokerStartError(f"ended with {code} before it was ready:\n{self.log_text()[-4_000:]}")
            line += chunk
        return line


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on. It is held until this process ends, so that no other test is given
    it, in whatever process, while its server is not up yet or is down between two lives."""
    held = hold_free_port("127.0.0.1")
    port = port_of(held)
    held.detach()
    return port
