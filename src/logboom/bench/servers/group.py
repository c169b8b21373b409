"""Several servers of one kind that are one cluster to their clients, each a process of its own."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

from logboom.bench.servers.process import Server, UnavailableError

Node = TypeVar("Node", bound=Server)


class ServerGroup(Server, Generic[Node]):
    """The nodes are started, paused and killed together. A subclass says how they are made, and when they have found
    each other."""

    def __init__(self, directory: Path, nodes: Sequence[Node]) -> None:
        super().__init__(directory)
        self._nodes = nodes

    @property
    def data(self) -> Path:
        return self.directory

    @property
    def brokers(self) -> dict[str, int]:
        return {node.address: node.pid for node in self._nodes}

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

    def command(self) -> Sequence[str]:
        return self._nodes[0].command()

    def start(self) -> float:
        began = time.perf_counter()
        for node in self._nodes:
            node.launch()
        for node in self._nodes:
            node.await_answers()
        while not self.answers():
            if time.perf_counter() - began > self.start_timeout_s:
                raise UnavailableError(
                    f"the nodes of {self.name} did not find each other within {self.start_timeout_s:.0f} s"
                )
            time.sleep(0.05)
        return time.perf_counter() - began

    def stop(self) -> None:
        """Killed: a shutdown in order would have to be one of a majority, and the data are not used again."""
        self.kill9()

    def kill9(self) -> None:
        for node in self._nodes:
            node.kill9()
