"""logboom cluster status, of one broker and of addresses where none is."""

from tests.cli.running import logboom, ok, refused
from tests.support.server import BrokerProcess, free_port


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


def test_folder_without_a_cluster_is_told(broker: BrokerProcess) -> None:
    assert "there is no cluster in /nowhere" in refused("cluster", "status", "--data", "/nowhere")
    assert logboom("cluster", "status", "--help").code == 0
