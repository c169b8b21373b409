"""Real brokers that are one cluster, each in a process of its own."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.commands import run_logboom
from tests.support.server import BrokerProcess, free_port
from tests.support.waiting import WAIT_S


@contextmanager
def cluster_of(
    directory: Path, racks: Sequence[str] = ("a", "b", "c"), observers: Sequence[str] = ()
) -> Iterator[list[BrokerProcess]]:
    """Brokers 1, 2, ..., one in each rack; the first founds the cluster, the others join it. Ready to be used. Behind
    them are brokers that only observe, in the racks of `observers`."""
    directory.mkdir(parents=True, exist_ok=True)
    key = directory / "key"
    made = run_logboom(["cluster", "key", "--out", str(key)], timeout_s=WAIT_S)
    assert made.returncode == 0, made
    everywhere = [*racks, *observers]
    peers = [f"127.0.0.1:{free_port()}" for _ in everywhere]
    brokers = []
    found = ["cluster", "found", "--data", str(directory / "node-1"), "--node-id", "1"]
    founded = run_logboom(found, timeout_s=WAIT_S)
    assert founded.returncode == 0, founded
    with ExitStack() as running:
        for number, (rack, peer) in enumerate(zip(everywhere, peers, strict=True), 1):
            join = peers[:1] if number > 1 else []
            settings = {"broker": {"rack": rack, "join": join, "observer": number > len(racks)}}
            config = directory / f"{number}.yaml"
            config.write_text(json.dumps(settings), encoding="utf-8")  # which is YAML too
            words = ("--config", str(config), "--node-id", str(number), "--peer", peer, "--key", str(key))
            brokers.append(running.enter_context(BrokerProcess(directory / f"node-{number}", *words)))
        yield brokers
