"""Brokers that cannot be part of a cluster, as processes: each ends with a sentence that says what to do, and nothing
of the cluster changes."""

import secrets
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from tests.cli.running import ok, refused
from tests.support.server import BrokerProcess, BrokerStartError, free_port
from tests.support.waiting import WAIT_S

QUICK = ("--set", "broker.command_timeout_ms=1s")
"""So that a broker that finds no controller asks the others sooner."""


class Brokers:
    """A cluster of two, of which broker 1 alone votes, and directories for whoever wants to join it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = folder / "key"
        ok("cluster", "key", "--out", str(self.key))
        self.peers = {number: f"127.0.0.1:{free_port()}" for number in (1, 2)}
        ok("cluster", "found", "--data", str(folder / "1"), "--node-id", "1")
        self.one, self.two = self.broker(1, join=""), self.broker(2)

    def broker(
        self, number: int, *more: str, name: str = "", join: str | None = None, key: Path | None = None
    ) -> BrokerProcess:
        """Broker `number` in the directory `name`, not started. It joins through broker 1 if nobody else is named."""
        words = ["--node-id", str(number), "--key", str(key or self.key)]
        words += ["--peer", self.peers[number] if not name else f"127.0.0.1:{free_port()}"]
        joined = self.peers[1] if join is None else join
        words += ["--join", joined] if joined else []
        return BrokerProcess(self.folder / (name or str(number)), *words, *more)

    def members(self) -> list[int]:
        """Brokers 1 and 2, and whoever else is registered now."""
        told = ok("cluster", "status", "--json", bootstrap=self.one.kafka).json
        return [node["id"] for node in told["nodes"] if node["kafka"] is not None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path_factory.mktemp("refusals"))
    with brokers.one, brokers.two:
        yield brokers


def end_of(broker: BrokerProcess) -> str:
    """What a broker says that ends before it is ready."""
    with pytest.raises(BrokerStartError, match="ended with 1 before it was ready"):
        broker.start()
    return broker.log_text()


def test_an_empty_directory_founds_no_cluster_unasked(cluster: Brokers) -> None:
    said = end_of(cluster.broker(1, name="emptied", join=""))
    assert "does not found a cluster by itself" in said
    assert f"logboom cluster found --data {cluster.folder / 'emptied'} --node-id 1" in said
    assert not (cluster.folder / "emptied" / "node.json").exists()


def test_the_first_broker_with_an_empty_disk_is_a_stranger_to_its_cluster(cluster: Brokers) -> None:
    """Its service names the others from its first start on; the command that has founded the cluster is not in it."""
    said = end_of(cluster.broker(1, name="new-disk", join=cluster.peers[2]))
    assert "broker 1 is registered with another data directory" in said
    assert "logboom cluster remove 1" in said
    assert cluster.members() == [1, 2]


def test_a_cluster_is_founded_once(cluster: Brokers, tmp_path: Path) -> None:
    once = ("cluster", "found", "--data", str(tmp_path / "new"), "--node-id", "3", "--set", "broker.cluster_id=mine")
    assert ok(*once, "--json").json == {"cluster": "mine", "node": 3, "data": str(tmp_path / "new")}
    assert "belongs to cluster mine already: nothing was changed" in refused(*once)
    assert "in use by another broker" in refused("cluster", "found", "--data", str(cluster.one.data))
    # A broker that has founded one of its own is not let into another.
    assert "to cluster mine" in end_of(cluster.broker(3, name=str(tmp_path / "new")))


def test_a_wrong_key_ends_the_start(cluster: Brokers, tmp_path: Path) -> None:
    other = tmp_path / "other-key"
    other.write_text(f"{secrets.token_hex(32)}\n")
    other.chmod(0o600)
    assert "all brokers of a cluster need the same peer.key_file" in end_of(cluster.broker(3, name="a", key=other))
    assert cluster.members() == [1, 2]


def test_another_clusters_id_ends_the_start(cluster: Brokers) -> None:
    said = end_of(cluster.broker(3, "--set", "broker.cluster_id=another", name="b"))
    assert "and this one, broker 3, to cluster another: correct the addresses in broker.join" in said
    assert cluster.members() == [1, 2]


def test_the_address_of_something_else_ends_the_start(cluster: Brokers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            with listening.accept()[0] as connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")

        greeting = Thread(target=greet)
        greeting.start()
        said = end_of(cluster.broker(3, name="c", join=f"127.0.0.1:{listening.getsockname()[1]}"))
        greeting.join(WAIT_S)
    assert "it does not speak Logboom's protocol between brokers: this looks like SSH" in said
    assert cluster.members() == [1, 2]


def test_the_port_of_clients_ends_the_start_and_tells_the_right_one(cluster: Brokers) -> None:
    said = end_of(cluster.broker(3, name="clients-port", join=cluster.one.kafka))
    assert (
        f"clients connect there: that broker listens for other brokers at {cluster.peers[1]} (its peer.listen)" in said
    )
    assert "it is another broker, which is to connect to peer.listen" in cluster.one.log_text()
    assert cluster.members() == [1, 2]


def test_an_id_that_is_taken_ends_the_start(cluster: Brokers) -> None:
    said = end_of(cluster.broker(2, name="e"))
    assert "broker 2 is registered with another data directory. Give this one an id of its own" in said
    assert cluster.members() == [1, 2]


def test_a_broker_that_was_removed_does_not_come_back_with_its_disk(cluster: Brokers) -> None:
    three = cluster.broker(3, *QUICK, name="f")
    with three:
        three.sigterm()
        ok("cluster", "remove", "3", bootstrap=cluster.one.kafka)
        assert "broker 3 was removed from this cluster, and does not come back with its old disk" in end_of(three)


@pytest.mark.slow
def test_a_broker_that_is_removed_while_it_is_frozen_ends_when_it_goes_on(cluster: Brokers) -> None:
    four = cluster.broker(4, *QUICK, name="g")
    with four:
        four.pause()
        until_fenced(cluster, 4)
        ok("cluster", "remove", "4", bootstrap=cluster.one.kafka)
        assert four.end(signal.SIGCONT, WAIT_S) == 1  # it goes on, and ends by itself
        assert "It joins again, with --join and an empty data directory" in four.log_text()


def until_fenced(cluster: Brokers, number: int) -> None:
    """Return once the controller has noticed that a broker is silent."""
    deadline = time.monotonic() + WAIT_S
    while True:
        nodes = ok("cluster", "status", "--json", bootstrap=cluster.one.kafka).json["nodes"]
        if any(node["id"] == number and node["fenced"] for node in nodes):
            return
        assert time.monotonic() < deadline, nodes


@pytest.mark.slow
def test_a_copy_of_a_directory_is_refused_and_the_broker_that_runs_stays(cluster: Brokers) -> None:
    five = cluster.broker(5, *QUICK, name="h")
    with five:
        five.sigterm()
        shutil.copytree(five.data, cluster.folder / "older")
        five.start()
        said = end_of(cluster.broker(5, *QUICK, name="older"))
        assert "the data directory of this process is an older copy: broker 5 has run since" in said
        shutil.copytree(five.data, cluster.folder / "copy", ignore=lambda *_: ["lock"])
        said = end_of(cluster.broker(5, *QUICK, name="copy"))
        assert "another process of broker 5 is alive, and this data directory is a copy of its own" in said
        assert cluster.members() == [1, 2, 5]
        five.kill9()
        five.start()  # at once: the controller has not missed the process before yet
        five.sigterm()
        # Nobody lives, and the older copy still lacks what the other one has acknowledged.
        assert "is an older copy" in end_of(cluster.broker(5, *QUICK, name="older"))
    ok("cluster", "remove", "5", bootstrap=cluster.one.kafka)
