"""logboom cluster: a cluster of real processes, and what is done to its nodes from other terminals."""

import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import ok, refused
from tests.docs.blocks import blocks_of
from tests.support.cluster import ClusterProcess
from tests.support.commands import LogboomProcess, run_logboom
from tests.support.server import BrokerProcess, free_port
from tests.support.waiting import WAIT_S

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with ClusterProcess(tmp_path_factory.mktemp("cluster") / "c") as process:
        yield process


@pytest.fixture
def whole(cluster: ClusterProcess) -> ClusterProcess:
    """The cluster with all its nodes up, whatever a test before has left."""
    for node in (1, 2, 3):
        state = cluster.node(node)["state"]
        if state == "paused":
            cluster.do("resume", node)
        elif state == "down":
            cluster.do("start", node)
    cluster.until(is_whole)
    return cluster


def is_whole(told: dict[str, Any]) -> bool:
    """Whether every node serves and every replica is in sync."""
    return told["controller"] is not None and not told["troubles"] and not any(n["fenced"] for n in told["nodes"])


def fenced(told: dict[str, Any]) -> list[int]:
    """The nodes that the controller has taken out of service."""
    return [node["id"] for node in told["nodes"] if node["fenced"]]


def test_cluster_forms_and_says_where_it_is(whole: ClusterProcess) -> None:
    nodes = whole.ready["nodes"]
    assert [node["id"] for node in nodes] == [1, 2, 3]
    assert whole.bootstrap == ",".join(node["kafka"] for node in nodes)
    everybody_votes = whole.until(lambda told: is_whole(told) and {node["role"] for node in told["nodes"]} == {"voter"})
    assert [node["kafka"] for node in everybody_votes["nodes"]] == [node["kafka"] for node in nodes]
    assert (whole.folder / "cluster.key").stat().st_mode & 0o777 == 0o600

    def told_in_words(told: dict[str, Any]) -> bool:
        """On a machine that gives the processes no time leases end, and another look finds another controller, or
        none."""
        text = ok("cluster", "status", "--data", str(whole.folder)).out
        return (
            text.startswith(f"cluster {told['cluster']}  3 nodes  controller {told['controller']}  ")
            and "every partition has a leader, and all its replicas are in sync" in text
        )

    whole.until(told_in_words)


def test_killed_node_is_fenced_and_records_go_on(whole: ClusterProcess) -> None:
    ok("streams", "create", "killed", "--partitions", "6", bootstrap=whole.bootstrap)
    before = ok("publish", "killed", bootstrap=whole.bootstrap, stdin="a\nb\nc\n")
    assert before.code == 0
    victim = whole.status()["controller"]
    pid = whole.node(victim)["pid"]
    assert whole.do("kill", victim) == {"id": victim, "state": "down", "pid": None}
    assert not Path(f"/proc/{pid}").exists()

    def taken_over(told: dict[str, Any]) -> bool:
        return fenced(told) == [victim] and {each["what"] for each in told["troubles"]} == {"not all in sync"}

    told = whole.until(taken_over)
    assert told["controller"] not in (None, victim)
    text = ok("cluster", "status", "--data", str(whole.folder)).out
    assert "fenced, down" in text
    ok("publish", "killed", bootstrap=whole.bootstrap, stdin="d\n")
    assert f"node {victim} is down" in refused("cluster", "pause", str(victim), "--data", str(whole.folder))

    assert whole.do("start", victim)["state"] == "up"
    whole.until(is_whole)
    read = ok("tail", "killed", "--earliest", "--count", "4", bootstrap=whole.bootstrap).out
    assert sorted(read.split()) == ["a", "b", "c", "d"]


def test_paused_node_is_fenced_until_it_goes_on(whole: ClusterProcess) -> None:
    assert whole.do("pause", 2)["state"] == "paused"
    told = whole.until(lambda told: fenced(told) == [2])
    (paused,) = [node for node in told["nodes"] if node["id"] == 2]
    assert paused["error"] == "it does not answer"
    assert "node 2 is paused already" in refused("cluster", "start", "2", "--data", str(whole.folder))
    assert whole.do("resume", 2)["state"] == "up"
    whole.until(is_whole)


def test_what_makes_no_sense_is_refused(whole: ClusterProcess) -> None:
    data = ("--data", str(whole.folder))
    assert "there is no node 9 here; there are 1, 2, 3" in refused("cluster", "kill", "9", *data)
    assert "node 1 is up already" in refused("cluster", "start", "1", *data)
    assert "is not paused" in refused("cluster", "resume", "1", *data)
    assert "is in use" in refused("cluster", "up", *data)
    assert "no cluster runs in" in refused("cluster", "kill", "1", "--data", "/nowhere")


def test_the_lines_of_the_readme_do_what_they_say(whole: ClusterProcess, tmp_path: Path) -> None:
    (block,) = (block for block in blocks_of(README) if "logboom cluster up" in block.text)
    *commands, export = [line.partition("#")[0].split() for line in block.text.splitlines()]
    lines = [command[1:] for command in commands]
    assert lines == [["cluster", "up"], ["cluster", "status", "--watch"], ["cluster", "kill", "1"]]
    assert export == ["export", "LOGBOOM_BOOTSTRAP=127.0.0.1:9092,127.0.0.1:9093"]
    (tmp_path / "logboom-cluster").symlink_to(whole.folder)  # what `cluster up` makes where it is not told a folder
    with watched(lines[1], tmp_path) as screen:
        told = run_logboom(lines[2], timeout_s=WAIT_S, cwd=tmp_path)
        assert told.returncode == 0, told.stderr
        whole.until(lambda told: fenced(told) == [1])
        whole.until(lambda _: "fenced, down" in screen())
    assert "`start 1` brings it back" in block.text
    assert run_logboom(["cluster", "start", "1"], timeout_s=WAIT_S, cwd=tmp_path).returncode == 0
    whole.until(is_whole)


@contextmanager
def watched(arguments: list[str], directory: Path) -> Iterator[Callable[[], str]]:
    """A command that goes on until Ctrl-C, in a terminal of its own; gives all that it has shown so far."""
    ours, its = os.openpty()
    os.set_blocking(ours, False)
    shown = bytearray()

    def screen() -> str:
        with suppress(BlockingIOError):
            shown.extend(os.read(ours, 1 << 16))
        return shown.decode(errors="replace")

    process = LogboomProcess(arguments, stdout=its, cwd=directory, env={**os.environ, "NO_COLOR": "1"})
    try:
        yield screen
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(WAIT_S)
        os.close(ours)
        os.close(its)


def test_one_more_broker_joins_and_is_forgotten(whole: ClusterProcess, tmp_path: Path) -> None:
    peer = f"127.0.0.1:{free_port()}"
    key = str(whole.folder / "cluster.key")
    arguments = ["--node-id", "4", "--join", whole.ready["nodes"][0]["peer"], "--peer", peer, "--key", key]
    with BrokerProcess(tmp_path / "four", *arguments) as broker:
        told = whole.until(lambda told: any(node["id"] == 4 and node["fenced"] is False for node in told["nodes"]))
        (four,) = [node for node in told["nodes"] if node["id"] == 4]
        assert (four["kafka"], four["role"]) == (broker.kafka, "observer")
    whole.until(lambda told: fenced(told) == [4])
    whole.do("remove", 4)
    assert [node["id"] for node in whole.until(is_whole)["nodes"]] == [1, 2, 3]


def test_everything_stops_and_comes_back_where_it_was(tmp_path: Path) -> None:
    cluster = ClusterProcess(tmp_path / "c", "--nodes", "2")
    with cluster:
        ready = cluster.ready
        ok("publish", "kept", bootstrap=cluster.bootstrap, stdin="one\n")
        assert "all nodes are down" in ok("cluster", "down", "--data", str(cluster.folder)).out
        assert cluster.process.wait(WAIT_S) == 0
        assert [cluster.node(node)["state"] for node in (1, 2)] == ["down", "down"]
    with cluster:
        assert [node["kafka"] for node in cluster.ready["nodes"]] == [node["kafka"] for node in ready["nodes"]]
        assert ok("tail", "kept", "--earliest", "--count", "1", bootstrap=cluster.bootstrap).out == "one\n"
        pids = [node["pid"] for node in cluster.ready["nodes"]]
        cluster.process.kill()
        cluster.process.wait(WAIT_S)
        for pid in pids:
            wait_gone(pid)


def wait_gone(pid: int) -> None:
    """Return once a process has ended."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([file], [], [], WAIT_S)[0], f"process {pid} lives on"
    os.close(file)


def test_processes_of_one_broker_command_are_started_again(tmp_path: Path) -> None:
    command = ("serve", "--processes", "2", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--peer", "127.0.0.1:0")
    with ClusterProcess(tmp_path / "many", command=command) as several:
        told = several.until(lambda told: len(told["nodes"]) == 2 and is_whole(told))
        assert [node["id"] for node in told["nodes"]] == [1, 2]
        pid = several.node(2)["pid"]
        os.kill(pid, signal.SIGKILL)
        several.until(lambda told: several.node(2)["pid"] not in (pid, None) and is_whole(told))
        assert "was ended by SIGKILL" in several.log_text()
        assert several.down() == 0


def test_ports_that_are_taken_are_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        data = tmp_path / "c"
        said = refused("cluster", "up", "--data", str(data), "--free-ports", "--kafka-port", str(port))
        assert f"taken by another program: 127.0.0.1:{port} (node 1, Kafka)" in said
    assert not (data / "node-1").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    said = refused("cluster", "up", "--data", str(tmp_path / "other"))
    assert "holds letter.txt and is not the folder of a cluster" in said
