"""`logboom cluster up --nats embedded`: one nats-server for all brokers of the cluster."""

from pathlib import Path

import pytest
from tests.nats.servers import attach, needs_nats_server, on_a_loop, stored, taken
from tests.support.cluster import ClusterProcess
from tests.support.waiting import WAIT_S

import nats

pytestmark = [needs_nats_server, pytest.mark.slow]


@on_a_loop
async def test_streams_of_all_brokers_take_from_one_embedded_server(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path / "cluster", "--nodes", "3", "--nats", "embedded") as cluster:
        attach(cluster.bootstrap, "spread", "spread.{partition}", partitions=3, replicas=3)
        async with await nats.connect(str(cluster.ready["nats"])) as client:
            for partition in range(3):  # leaders are spread over the brokers, each subscribes to its own
                await taken(client, f"spread.{partition}")
                ack = await client.jetstream().publish(f"spread.{partition}", b"%d" % partition, timeout=WAIT_S)
                assert (ack.stream, ack.seq) == ("spread", 2)
        for partition in range(3):
            assert stored(cluster.bootstrap, "spread", 2, partition)[1].value == b"%d" % partition
