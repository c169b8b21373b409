"""logboom cluster status, of one broker and of addresses where none is."""

import subprocess
import sys

from tests.cli.running import logboom, ok, refused
from tests.support.server import BrokerProcess, free_port

from logboom.cli import cluster_status
from logboom.cli.cluster_view import Cluster, NodeView


def test_one_broker_is_a_cluster(broker: BrokerProcess) -> None:
    ok("streams", "create", "orders", "--partitions", "3", bootstrap=broker.kafka)
    told = ok("cluster", "status", "--json", bootstrap=broker.kafka).json
    (node,) = told["nodes"]
    assert (node["id"], node["kafka"], node["fenced"], node["error"]) == (1, broker.kafka, False, None)
    assert told["controller"] == 1
    assert node["leads"] == node["preferred"] == node["replicas"] == told["partitions"] == told["at_preferred"]
    assert node["lag"] == 0
    assert (told["troubles"], told["lags"]) == ([], [])

    text = ok("cluster", "status", bootstrap=broker.kafka).out
    assert text.startswith(f"cluster {told['cluster']}  1 node  controller 1  ")
    assert "every partition has a leader, and all its replicas are in sync" in text
    assert f"   1  {broker.kafka}  up " in text


def test_addresses_that_do_not_answer_are_passed_over(broker: BrokerProcess) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    assert ok("cluster", "status", "--json", bootstrap=f"{nobody},{broker.kafka}").json["controller"] == 1
    said = refused("cluster", "status", bootstrap=nobody)
    assert f"no broker answers ({nobody}: connection refused)" in said
    assert "--bootstrap: " in refused("cluster", "status", bootstrap="nonsense")


def test_watching_into_a_pipe_prints_one_look_below_the_other(broker: BrokerProcess) -> None:
    command = [sys.executable, "-m", "logboom.cli", "cluster", "status", "--watch", "--bootstrap", broker.kafka]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        try:
            looks = (line for line in watching.stdout if line.startswith("cluster "))
            first, second = next(looks), next(looks)
        finally:
            watching.kill()
    assert first.startswith("cluster ")
    assert second.split()[:4] == first.split()[:4]


def test_folder_without_a_cluster_is_told(broker: BrokerProcess) -> None:
    assert "there is no cluster in /nowhere" in refused("cluster", "status", "--data", "/nowhere")
    assert logboom("cluster", "status", "--help").code == 0


def test_observers_are_told_with_what_they_lack(broker: BrokerProcess) -> None:
    refusal = refused("streams", "create", "watched", "--observers", "1", bootstrap=broker.kafka)
    assert (
        "logboom.observers=1 cannot be had: partition 0 has replicas on 1 of 1 brokers, and 0 of the others" in refusal
    )
    cluster = Cluster(
        "c", 1, 7, {1: NodeView(1, "h:1"), 4: NodeView(4, "h:4", observers=2, is_observer=True, fenced=False)}
    )
    cluster.observers = {("watched", 0): (4,), ("watched", 1): (4,)}
    assert "2 observers of 2 partitions, none behind" in cluster_status.lines(cluster, {})
    cluster.lags = {("watched", 1, 4): 1_200, ("watched", 0, 1): 3}
    shown = cluster_status.lines(cluster, {})
    assert "2 observers of 2 partitions, 1 of them behind, by 1,200 records at most" in shown
    assert any(line.split() == ["watched:1", "observer", "4", "1200"] for line in shown)
    assert any(line.split() == ["watched:0", "replica", "1", "3"] for line in shown)
    assert any("up, only observes" in line for line in shown)
    assert cluster_status.as_json_of(cluster, {})["observers"] == [
        {"stream": "watched", "partition": 0, "node": 4, "records": 0},
        {"stream": "watched", "partition": 1, "node": 4, "records": 1_200},
    ]
