"""Name nodes and a data node of Hadoop's own, with HTTP on free ports of 127.0.0.1, perhaps over TLS."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clients.drivers import DriverMissingError
from tests.clients.drivers import hdfs as command
from tests.support.server import free_port
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S, until


class HdfsServer:
    """Runs until its input ends."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, url: str) -> None:
        self._process = process
        self._log = log
        self.url = url

    def restart_name_node(self) -> None:
        """Every connection with it ends, and for a while nothing listens."""
        self._do("restart")

    def set_safe_mode(self, *, on: bool) -> None:
        """In which it reads and writes nothing new."""
        self._do("safe" if on else "unsafe")

    def activate(self, number: int) -> None:
        """Makes this one of two name nodes the active one."""
        self._do(f"active {number}")

    def syncs(self) -> int:
        """How often the data node has synced a file."""
        self._do("syncs")
        *_, last = (line for line in self._log.read_text(errors="replace").splitlines() if line.startswith("syncs "))
        return int(last.split()[1])

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
def running_hdfs(directory: Path, *, name_nodes: int = 1, keys: Path | None = None) -> Iterator[HdfsServer]:
    """Skips the test where there is no Java or no Maven. `keys`: a file in Java's form, whose password is `changeit`,
    with which all HTTP is over TLS."""
    with skipped_on(DriverMissingError):
        program = command()
    log, ports = directory / "log", [free_port() for _ in range(name_nodes)]
    scheme = "webhdfs" if keys is None else "swebhdfs"
    url = f"{scheme}://{','.join(f'127.0.0.1:{port}' for port in ports)}"
    arguments = [str(directory / "data"), ",".join(map(str, ports)), *([] if keys is None else [str(keys)])]
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [*program, *arguments], stdin=subprocess.PIPE, stdout=out, stderr=subprocess.DEVNULL
        ) as process,
    ):
        try:
            server = HdfsServer(process, log, url)
            server.wait_ready(1)
            yield server
        finally:
            process.kill()
            process.wait(WAIT_S)
