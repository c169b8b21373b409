"""Three nats-servers that hold one JetStream together, as its R3 streams need."""

from pathlib import Path
from typing import Any

from logboom.bench.servers.group import ServerGroup
from logboom.bench.servers.nats import NatsServer
from logboom.bench.servers.process import free_port


class NatsCluster(ServerGroup[NatsServer]):
    """Nodes with JetStream in files; the first one is what clients connect to."""

    name = "nats-cluster"

    def __init__(self, directory: Path, nodes: int = 3) -> None:
        ports = [free_port() for _ in range(nodes)]
        routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in ports)
        made = [
            NatsServer(
                directory / f"node-{number}",
                lines=(
                    f"server_name: node-{number}",
                    f"cluster: {{name: bench, listen: 127.0.0.1:{port}, routes: [{routes}]}}",
                ),
            )
            for number, port in enumerate(ports, 1)
        ]
        super().__init__(directory, made)
        self.port = made[0].port

    def answers(self) -> bool:
        return all(node.answers() for node in self._nodes)

    def load(self, *arguments: str, timeout_s: float = 600) -> dict[str, Any]:
        """Run the load client against the first node."""
        return self._nodes[0].load(*arguments, timeout_s=timeout_s)
