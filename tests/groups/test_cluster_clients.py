"""Consumer groups of an unmodified client on a cluster of processes, whose coordinators are killed."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.groups.test_clients import Committer, Reader, new_stream, produce, shared_evenly
from tests.support.cluster_processes import cluster_of
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

pytestmark = [pytest.mark.clients, pytest.mark.slow]

OFFSETS = "__consumer_offsets"


def everywhere(brokers: list[BrokerProcess]) -> str:
    return ",".join(one.kafka for one in brokers)


def wait_for_replicas(admin: AdminClient, stream: str) -> None:
    """Return once every partition has three replicas in sync."""

    def all_in_sync() -> bool:
        partitions = admin.list_topics(stream, timeout=WAIT_S).topics[stream].partitions.values()
        return bool(partitions) and all(len(one.isrs) == 3 for one in partitions)

    until(all_in_sync, f"{stream} is on all brokers")


def coordinator_of(admin: AdminClient, brokers: list[BrokerProcess], group: str) -> BrokerProcess:
    described = admin.describe_consumer_groups([group], request_timeout=WAIT_S)[group].result(WAIT_S)
    return brokers[int(described.coordinator.id) - 1]


def test_members_work_on_and_no_acked_commit_is_forgotten_when_coordinators_are_killed(tmp_path: Path) -> None:
    with cluster_of(tmp_path) as brokers:
        bootstrap = everywhere(brokers)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        stream = new_stream(bootstrap)
        wait_for_replicas(admin, OFFSETS)
        wait_for_replicas(admin, stream)
        produce(bootstrap, stream, 0, 20)
        with (
            Committer(bootstrap, stream, "commits") as commits,
            Reader(bootstrap, stream, "members") as first,
            Reader(bootstrap, stream, "members") as second,
        ):
            until(lambda: shared_evenly(first, second), "both have some")
            until(lambda: len(set(first.seen + second.seen)) == 20, "all is read")
            before = (first.assignments, second.assignments)
            for number, group in enumerate(("members", "commits"), 1):
                commits.wait_for(50)
                killed = coordinator_of(admin, brokers, group)
                killed.kill9()
                produce(bootstrap, stream, 20 * number, 20)
                count = 20 * number + 20
                until(lambda n=count: len(set(first.seen + second.seen)) == n, "all is read")  # type: ignore[misc]
                commits.wait_for(50)
                killed.restart()
                wait_for_replicas(admin, OFFSETS)
                wait_for_replicas(admin, stream)
                known = commits.acked
                assert commits.told() >= known
            assert (first.assignments, second.assignments) == before, "a needless rebalance"
