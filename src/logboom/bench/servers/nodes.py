"""Several of Logboom's own brokers, run by one command as a user would: `cluster up`, or `serve --processes`."""

import json
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from logboom.app.supervisor.folder import FolderError, read_list
from logboom.app.supervisor.remote import ask_supervisor
from logboom.base.settings import split_address
from logboom.bench.servers.probe import kafka_brokers
from logboom.bench.servers.process import STOP_TIMEOUT_S, Server, free_port


class LogboomNodes(Server):
    """Brokers under one supervisor, which is one of the processes.

    Between its turns it is stopped, not paused: a pause that is longer than a lease is a fault, and what is measured
    after it would be the way back.
    """

    name = "logboom"

    def __init__(
        self, directory: Path, nodes: int, settings: Mapping[str, object] | None = None, *, processes: bool = False
    ) -> None:
        """`processes`: brokers of one machine (`serve --processes`), which never hold two replicas of a partition;
        else a cluster whose brokers are meant to stand for machines."""
        super().__init__(directory)
        self.nodes = nodes
        self._processes = processes
        self._settings = dict(settings or {})
        self._doors = (self.port, free_port(), free_port())
        self._address = ""

    @property
    def address(self) -> str:
        """All nodes, for clients to begin with."""
        return ",".join(str(node["kafka"]) for node in self._list())

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def brokers(self) -> dict[str, int]:
        return {str(node["kafka"]): int(node["pid"]) for node in self._list() if node["pid"]}

    @property
    def pids(self) -> list[int]:
        """The supervisor is one of them."""
        return [self.pid, *self.brokers.values()]

    def address_of(self, node_id: int) -> str:
        """Where a node serves clients, running or not."""
        return next(str(node["kafka"]) for node in self._list() if node["id"] == node_id)

    def order(self, what: str, node_id: int) -> None:
        """Tell the supervisor to `kill`, `stop` or `start` a node. Raises LogboomError."""
        ask_supervisor(self.data, what, node_id, STOP_TIMEOUT_S)

    def _list(self) -> list[dict[str, Any]]:
        try:
            nodes: list[dict[str, Any]] = read_list(self.data)["nodes"]
        except (FolderError, OSError):
            return []
        return nodes

    def version(self) -> str:
        how = "serve --processes" if self._processes else "cluster up --nodes"
        return f"{version('logboom')}, Python {sys.version.split()[0]}, {how} {self.nodes}"

    def settings(self) -> dict[str, object]:
        return dict(self._settings)

    def prepare(self) -> None:
        return

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "logboom.cli"]
        if self._processes:
            kafka, peer, http = (f"127.0.0.1:{port}" for port in self._doors)
            command += ["serve", "--processes", str(self.nodes), "--kafka", kafka, "--http", http]
            command += ["--set", f"peer.listen={peer}"]
        else:
            command += ["cluster", "up", "--nodes", str(self.nodes), "--free-ports"]
        command += ["--data", str(self.data)]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
        return command

    def answers(self) -> bool:
        ports = [split_address(address)[1] for address in self.brokers]
        return len(ports) == self.nodes and all(kafka_brokers(port) == self.nodes for port in ports)

    def pause(self) -> None:
        """Stop it: see the class."""
        self.stop()

    def resume(self) -> None:
        """Start it again on its data, after `pause`."""
        if not self.running:
            self.start()
