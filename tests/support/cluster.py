"""A real cluster: `logboom cluster up` on free ports of 127.0.0.1, a process for each broker.

Knows the command line and nothing of what is behind it.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.commands import LogboomProcess, run_logboom
from tests.support.waiting import WAIT_S

from logboom.base.settings import split_address
from logboom.host.tcp_ports import hold_port


class ClusterProcess:
    """`logboom cluster up` in `folder`, and the commands that are given to it.

        with ClusterProcess(tmp_path / "cluster") as cluster:
            cluster.bootstrap   # "127.0.0.1:23456,127.0.0.1:23457,127.0.0.1:23458"
            cluster.kill(2)
            cluster.start(2)

    The logs of all nodes are in the file `log_path`; its end is printed where the `with` block fails. The ports
    stay the cluster's while it is down.
    """

    def __init__(
        self, folder: Path, *arguments: str, command: tuple[str, ...] = ("cluster", "up", "--free-ports")
    ) -> None:
        self.folder = folder
        self.log_path = folder.with_name(f"{folder.name}.cluster.log")
        self.ready: dict[str, Any] = {}
        """What it said when it was ready: bootstrap, folder, nodes."""
        self._arguments = [*command, "--json", "--data", str(folder), *arguments]
        self._process: LogboomProcess | None = None

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.down()
        finally:
            if error is not None:
                print(f"the nodes' log, {self.log_path}, ends with:\n{self.log_text()[-8_000:]}", file=sys.stderr)

    @property
    def bootstrap(self) -> str:
        """All nodes, for a client."""
        return str(self.ready["bootstrap"])

    @property
    def process(self) -> LogboomProcess:
        """The supervisor."""
        assert self._process is not None
        return self._process

    def node(self, node_id: int) -> dict[str, Any]:
        """What the folder's list says of a node now."""
        told = json.loads((self.folder / "cluster.json").read_text())
        return next(node for node in told["nodes"] if node["id"] == node_id)

    def up(self) -> None:
        """Start it and return once it says that it is ready."""
        with self.log_path.open("ab") as log:
            self._process = LogboomProcess(self._arguments, stdout=subprocess.PIPE, stderr=log, env=dict(os.environ))
        try:
            self.ready = json.loads(self._first_line())
        except BaseException:
            self.down()
            raise

    def down(self) -> int:
        """Stop it in whatever state it is; the exit code."""
        process = self.process
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        process.stdout.close()
        try:
            return process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        finally:
            self._hold_ports()

    def do(self, what: str, *arguments: object) -> dict[str, Any]:
        """A command of `logboom cluster` in this folder; its answer."""
        command = ["cluster", what, *map(str, arguments), "--json", "--data", str(self.folder)]
        done = run_logboom(command, timeout_s=WAIT_S)
        assert done.returncode == 0, (command, done.stderr.decode())
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    def status(self) -> dict[str, Any]:
        """`logboom cluster status`."""
        return self.do("status")

    def until(self, condition: Callable[[dict[str, Any]], object], timeout_s: float = WAIT_S) -> dict[str, Any]:
        """The status, once it fulfils a condition."""
        deadline = time.monotonic() + timeout_s
        while True:
            told = self.status()
            if condition(told):
                return told
            assert time.monotonic() < deadline, told

    def log_text(self) -> str:
        """All that its nodes have logged."""
        return self.log_path.read_text(errors="replace")

    def _hold_ports(self) -> None:
        """Until this process ends, since a supervisor may come back to them."""
        for node in self.ready.get("nodes", ()):
            for address in filter(None, (node["kafka"], node["peer"], node["http"])):
                with contextlib.suppress(OSError):  # a node that a test has left alive still listens
                    hold_port(*split_address(address)).detach()

    def _first_line(self) -> bytes:
        assert self.process.stdout is not None
        output = self.process.stdout.fileno()
        deadline = time.monotonic() + WAIT_S
        line = b""
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"not ready after {WAIT_S} s:\n{self.log_text()[-8_000:]}"
            chunk = os.read(output, 65_536)
            assert chunk, f"it ended before it was ready:\n{self.log_text()[-8_000:]}"
            line += chunk
        return line
