"""What a broker says of its replication."""

from pathlib import Path

from prometheus_client.core import Metric
from tests.broker.node import append
from tests.broker.replicated import cluster_of, until
from tests.support.simulated import run

from logboom.broker.broker import Broker
from logboom.http.broker_metrics import broker_metrics


def values(broker: Broker) -> dict[str, float]:
    def named(family: Metric) -> list[tuple[str, float]]:
        return [(sample.name, sample.value) for sample in family.samples if not sample.labels]

    return dict(pair for family in broker_metrics(broker, "1", "plain Python", 0) for pair in named(family))


def test_partitions_that_are_not_on_all_of_their_brokers_are_counted(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            own = values(cluster[1])["logboom_led_partitions"]
            await cluster.create("orders", [1, 2], partitions=3)
            for index in range(3):
                await append(cluster.leader("orders", index), b"a" * 100)
            whole, copies = values(cluster[1]), values(cluster[2])
            assert whole["logboom_led_partitions"] - own == copies["logboom_followed_partitions"] == 3
            assert copies["logboom_replicated_bytes_in_total"] == whole["logboom_replicated_bytes_out_total"] > 300
            assert (whole["logboom_under_replicated_partitions"], whole["logboom_lagging_replicas"]) == (0, 0)
            await cluster.stop(2)
            await until(lambda: values(cluster[1])["logboom_under_replicated_partitions"] == 3, "it is counted")
            assert values(cluster[1])["logboom_under_minimum_partitions"] == 3

    run(body)
