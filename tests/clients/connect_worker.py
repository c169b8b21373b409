"""A worker of Kafka Connect in distributed mode: a process that tests kill and freeze, and its HTTP interface."""

import http.client
import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.clients.program import Program
from tests.support.server import free_port
from tests.support.waiting import WAIT_S, until


class ConnectWorker(Program):
    """`settings` are those of its file of properties, but for its own address."""

    def __init__(self, command: list[str], settings: Mapping[str, str], directory: Path) -> None:
        self.id = f"127.0.0.1:{free_port()}"
        path = directory / f"{self.id}.properties"
        lines = {**settings, "listeners": f"HTTP://{self.id}"}
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        super().__init__([*command, str(path)], directory / "connect.log")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stopped for so long that it has lost its place in the group before it goes on."""
        process = self.process
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def configure(self, name: str, settings: Mapping[str, str]) -> None:
        """Make the connector, or change its settings."""
        path = f"/connectors/{name}/config"
        until(partial(self.ask, "PUT", path, settings), f"connector {name}")

    def tasks(self, name: str, count: int) -> set[str]:
        """The workers on which the connector's tasks run; none where not all of them run."""
        status = self.ask("GET", f"/connectors/{name}/status")
        if status is None or len(status["tasks"]) != count:
            return set()
        assert all(task["state"] != "FAILED" for task in status["tasks"]), status
        if any(task["state"] != "RUNNING" for task in status["tasks"]):
            return set()
        return {task["worker_id"] for task in status["tasks"]}

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer, or None where the worker is not ready to give one."""
        assert self.process.poll() is None, "a worker ended"
        headers = {"Content-Type": "application/json"}
        with closing(http.client.HTTPConnection(self.id, timeout=WAIT_S)) as connection:
            try:
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                answer = connection.getresponse()
                told = answer.read()
            except ConnectionError:
                return None  # it has only begun to start
        assert answer.status != 400, f"{method} {path}: {told.decode()}"
        # 404 while it starts, 409 while the group rebalances, 500 where the worker that leads is not there any more.
        return json.loads(told or b"{}") if answer.status < 300 else None


def properties(text: str) -> dict[str, str]:
    """The settings of a file of properties."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return dict(line.split("=", 1) for line in lines)
