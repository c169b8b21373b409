"""One server over several processes: started, paused, killed, started again on the same data.

Knows processes; what a server's command is and when it answers is what its subclass says.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from logboom.bench.wire import BenchError
from logboom.host.tcp_ports import hold_free_port, port_of

STOP_TIMEOUT_S = 60


class UnavailableError(BenchError):
    """A server is not available on this machine; the message says why and how to get it."""


def free_port() -> int:
    """A free port of 127.0.0.1, held until this process ends. UnavailableError where there is none."""
    try:
        held = hold_free_port("127.0.0.1")
    except OSError as error:
        raise UnavailableError(f"no free port of 127.0.0.1 was found: {error}") from None
    port = port_of(held)
    held.detach()
    return port


class Server(ABC):
    """A server with its own directory and its own port of 127.0.0.1."""

    name: str
    start_timeout_s = 120.0

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return f"127.0.0.1:{self.port}"

    @property
    @abstractmethod
    def data(self) -> Path:
        """Its data directory."""

    @property
    def log_path(self) -> Path:
        """Its output, of all its processes so far."""
        return self.directory / "log.txt"

    @property
    def pid(self) -> int:
        """Process id of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    @property
    def brokers(self) -> dict[str, int]:
        """Process id of each broker that it consists of, by the address at which that serves clients."""
        return {self.address: self.pid}

    @property
    def pids(self) -> list[int]:
        """Process ids of all that it consists of."""
        return list(self.brokers.values())

    @property
    def running(self) -> bool:
        """Whether the process is there, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the last process; None while it runs."""
        return None if self._process is None else self._process.poll()

    @abstractmethod
    def version(self) -> str:
        """Its version, and that of its runtime."""

    @abstractmethod
    def settings(self) -> dict[str, object]:
        """The settings that differ from its defaults."""

    @abstractmethod
    def prepare(self) -> None:
        """What must be there before the first start; once for each data directory. May fetch; UnavailableError."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The command line that starts it."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it serves clients already; quick, and False on any connection error."""

    def start(self) -> float:
        """Start it and return once it serves clients; the seconds that took."""
        began = time.perf_counter()
        self.launch()
        self.await_answers()
        return time.perf_counter() - began

    def launch(self) -> None:
        """Start its process, and wait for nothing."""
        assert not self.running
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                list(self.command()), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.directory
            )

    def await_answers(self) -> None:
        """Return once the process that was launched serves clients; UnavailableError where it ends or is too slow."""
        assert self._process is not None
        began = time.perf_counter()
        while not self.answers():
            if self._process.poll() is not None:
                raise UnavailableError(f"{self.name} ended with {self._process.returncode}: {self._last_words()}")
            if time.perf_counter() - began > self.start_timeout_s:
                self.kill9()
                raise UnavailableError(f"{self.name} did not answer within {self.start_timeout_s:.0f} s")
            time.sleep(0.005)

    def stop(self) -> None:
        """SIGTERM and wait; killed where it does not end."""
        self._end(signal.SIGTERM)

    def kill9(self) -> None:
        """SIGKILL: no chance to flush or to log."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        self.resume()
        process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)

    def pause(self) -> None:
        """SIGSTOP: it keeps its memory and takes no time from the others."""
        if self.running:
            for pid in self.pids:
                os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        if self.running:
            for pid in self.pids:
                os.kill(pid, signal.SIGCONT)

    def remove(self) -> None:
        """Stop it and delete its data."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log_path.read_text(errors="replace").strip().splitlines()
            return " / ".join(lines[-3:]) or "it said nothing"
        return "it said nothing"
