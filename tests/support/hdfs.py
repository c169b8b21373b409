"""A name node and a data node of Hadoop's own, with HTTP on a free port of 127.0.0.1."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.clients.drivers import DriverMissingError
from tests.clients.drivers import hdfs as command
from tests.support.server import free_port
from tests.support.waiting import WAIT_S, until


class HdfsServer:
    """Runs until its input ends."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, port: int) -> None:
        self._process = process
        self._log = log
        self.url = f"webhdfs://127.0.0.1:{port}"

    def restart_name_node(self) -> None:
        """Every connection with it ends, and for a while nothing listens."""
        self._do("restart")

    def set_safe_mode(self, *, on: bool) -> None:
        """In which it reads and writes nothing new."""
        self._do("safe" if on else "unsafe")

    def wait_ready(self, times: int) -> None:
        """Until it has said `ready` so often."""

        def is_ready() -> bool:
            return self._log.read_text(errors="replace").count("ready\n") >= times

        until(lambda: is_ready() or self._process.poll() is not None, "HDFS is ready", every_s=0.2)
        assert self._process.poll() is None, self._log.read_text(errors="replace")[-3_000:]

    def _do(self, what: str) -> None:
        times = self._log.read_text(errors="replace").count("ready\n")
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n".encode())
        self._process.stdin.flush()
        self.wait_ready(times + 1)


@contextmanager
def running_hdfs(directory: Path) -> Iterator[HdfsServer]:
    """Skips the test where there is no Java or no Maven."""
    try:
        program = command()
    except DriverMissingError as missing:
        pytest.skip(str(missing))
    log, port = directory / "log", free_port()
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [*program, str(directory / "data"), str(port)], stdin=subprocess.PIPE, stdout=out, stderr=subprocess.DEVNULL
        ) as process,
    ):
        try:
            server = HdfsServer(process, log, port)
            server.wait_ready(1)
            yield server
        finally:
            process.kill()
            process.wait(WAIT_S)
