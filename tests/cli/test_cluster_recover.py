"""logboom cluster recover, as docs/operations.md has it, and what it refuses."""

import shutil
from pathlib import Path

import pytest
from tests.cli.running import logboom, ok, refused
from tests.support.cluster import ClusterProcess
from tests.support.server import BrokerProcess


@pytest.mark.slow
def test_two_of_three_disks_are_lost_and_nothing_that_was_acked_is(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    lines = "".join(f"{number}\n" for number in range(1_000))
    with ClusterProcess(folder) as cluster:
        words = ("--partitions", "4", "--replicas", "3", "--config", "min.insync.replicas=2")
        ok("streams", "create", "orders", *words, bootstrap=cluster.bootstrap)
        ok("publish", "orders", bootstrap=cluster.bootstrap, stdin=lines)
        for node in (2, 3, 1):
            cluster.do("kill", node)
    for node in (2, 3):
        shutil.rmtree(folder / f"node-{node}")
    command = ("cluster", "recover", "--data", str(folder / "node-1"), "--lost", "2,3")
    assert "nothing was changed" in refused(*command)
    told = ok(*command, "--force-new-cluster", "--json").json
    assert (told["others"], told["partitions_elsewhere"], told["partitions_nowhere"]) == ([], 0, [])
    with ClusterProcess(folder) as cluster:
        cluster.until(lambda told: not told["troubles"] and [node["fenced"] for node in told["nodes"]] == [False] * 3)
        read = ok("tail", "orders", "--earliest", "--count", "1000", bootstrap=cluster.bootstrap).out
        assert sorted(map(int, read.split())) == list(range(1_000))
        cluster.until(lambda told: [node["role"] for node in told["nodes"]].count("voter") == 3)
        ok("publish", "orders", bootstrap=cluster.bootstrap, stdin="1000\n")


def test_what_is_no_directory_of_a_stopped_broker_is_refused(tmp_path: Path) -> None:
    assert "node.json is missing" in refused("cluster", "recover", "--data", str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()
    with BrokerProcess(tmp_path / "data") as broker:
        running = ("cluster", "recover", "--data", str(broker.data), "--force-new-cluster")
        assert "in use by another broker" in refused(*running)
    stopped = ("cluster", "recover", "--data", str(tmp_path / "data"))
    assert "no broker is registered as 9" in refused(*stopped, "--lost", "9", "--force-new-cluster")
    assert "it is not lost" in refused(*stopped, "--lost", "1", "--force-new-cluster")
    assert "write it as the ids of brokers" in refused(*stopped, "--lost", "one")
    assert "entries" in logboom(*stopped).out
