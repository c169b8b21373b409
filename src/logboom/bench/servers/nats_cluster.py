"""Three nats-servers that hold one JetStream together, as its R3 streams need."""

import time
from pathlib import Path
from typing import Any

from logboom.bench.servers.nats import NatsServer
from logboom.bench.servers.process import Server, UnavailableError, free_port

_READY_MAX_S = 60.0


class NatsCluster(Server):
    """Nodes with JetStream in files, each a process of its own; the first one is what clients connect to."""

    name = "nats-cluster"

    def __init__(self, directory: Path, nodes: int = 3) -> None:
        super().__init__(directory)
        ports = [free_port() for _ in range(nodes)]
        routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in ports)
        self._nodes = [
            NatsServer(
                self.directory / f"node-{number}",
                lines=(
                    f"server_name: node-{number}",
                    f"cluster: {{name: bench, listen: 127.0.0.1:{port}, routes: [{routes}]}}",
                ),
            )
            for number, port in enumerate(ports, 1)
        ]
        self.port = self._nodes[0].port

    @property
    def data(self) -> Path:
        return self.directory

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self._nodes]

    @property
    def running(self) -> bool:
        return all(node.running for node in self._nodes)

    def version(self) -> str:
        return f"{self._nodes[0].version()}, {len(self._nodes)} nodes"

    def settings(self) -> dict[str, object]:
        return self._nodes[0].settings()

    def prepare(self) -> None:
        for node in self._nodes:
            node.prepare()

    def command(self) -> list[str]:
        return self._nodes[0].command()

    def answers(self) -> bool:
        return all(node.answers() for node in self._nodes)

    def start(self) -> float:
        began = time.perf_counter()
        for node in self._nodes:
            node.launch()
        while not self.answers():
            if time.perf_counter() - began > _READY_MAX_S:
                raise UnavailableError(f"the nodes did not agree on a leader within {_READY_MAX_S:.0f} s")
            time.sleep(0.05)
        return time.perf_counter() - began

    def kill9(self) -> None:
        for node in self._nodes:
            node.kill9()

    def stop(self) -> None:
        """Killed: its data are not used again."""
        self.kill9()

    def load(self, *arguments: str, timeout_s: float = 600) -> dict[str, Any]:
        """Run the load client against the first node."""
        return self._nodes[0].load(*arguments, timeout_s=timeout_s)
