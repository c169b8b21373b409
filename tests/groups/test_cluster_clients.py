"""Consumer groups of an unmodified client on a cluster of processes, whose coordinators are killed."""

import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.groups.test_clients import Reader, new_stream, produce, shared_evenly
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
        acked, stop = [-1], threading.Event()

        def commit_on_and_on() -> None:
            consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "commits"})
            offset = 0
            while not stop.is_set():
                try:
                    done = consumer.commit(offsets=[TopicPartition(stream, 0, offset)], asynchronous=False)
                except KafkaException:
                    continue
                if done[0].error is None:
                    acked[0] = offset
                offset += 1
            consumer.close()

        thread = threading.Thread(target=commit_on_and_on)
        thread.start()
        try:
            with (
                Reader(bootstrap, stream, "members", session_timeout_ms=30_000) as first,
                Reader(bootstrap, stream, "members", session_timeout_ms=30_000) as second,
            ):
                until(lambda: shared_evenly(first, second), "both have some")
                until(lambda: len(set(first.seen + second.seen)) == 20, "all is read")
                before = (first.assignments, second.assignments)
                for number, group in enumerate(("members", "commits"), 1):
                    goal = acked[0] + 50
                    until(lambda goal=goal: acked[0] >= goal, "commits are acked")  # type: ignore[misc]
                    killed = coordinator_of(admin, brokers, group)
                    killed.kill9()
                    known = acked[0]
                    produce(bootstrap, stream, 20 * number, 20)
                    count = 20 * number + 20
                    until(lambda n=count: len(set(first.seen + second.seen)) == n, "all is read")  # type: ignore[misc]
                    until(lambda known=known: acked[0] > known + 50, "commits go on")  # type: ignore[misc]
                    killed.restart()
                    wait_for_replicas(admin, OFFSETS)
                    wait_for_replicas(admin, stream)
                    asked = Consumer({"bootstrap.servers": bootstrap, "group.id": "commits"})
                    known = acked[0]
                    (found,) = asked.committed([TopicPartition(stream, 0)], WAIT_S)
                    assert found.offset >= known
                    asked.close()
                assert (first.assignments, second.assignments) == before, "a needless rebalance"
        finally:
            stop.set()
            thread.join(WAIT_S)
