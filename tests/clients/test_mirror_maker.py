"""Kafka's MirrorMaker 2 copies streams, their settings and the offsets of groups from one broker to another.

It is the way onto Logboom and off it again for who has Kafka, and between two clusters of it.
"""

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.cli.running import ok
from tests.clients.drivers import DriverMissingError, mirror_maker
from tests.clients.program import Program
from tests.clients.reading import ends, read
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S, until

pytestmark = [pytest.mark.clients, pytest.mark.slow]

PARTITIONS: Final = 3
RECORDS: Final = 5_000
"""In each round."""
CONSUMED: Final = 3_000
GROUP: Final = "billing"

SETTINGS: Final = """
clusters=east,west
east.bootstrap.servers={east}
west.bootstrap.servers={west}
east->west.enabled=true
east->west.topics=orders,state
west->east.enabled=false
replication.factor=1
offset-syncs.topic.replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=2
status.storage.partitions=2
sync.group.offsets.enabled=true
sync.group.offsets.interval.seconds=1
emit.checkpoints.interval.seconds=1
refresh.topics.interval.seconds=1
refresh.groups.interval.seconds=1
sync.topic.configs.interval.seconds=1
offset.lag.max=0
"""


@pytest.fixture(scope="module")
def command() -> list[str]:
    with skipped_on(DriverMissingError):
        return mirror_maker()


def test_streams_settings_and_groups_are_copied_over_kills_of_all_three(command: list[str], tmp_path: Path) -> None:
    settings = tmp_path / "mirror.properties"
    with BrokerProcess(tmp_path / "east") as east, BrokerProcess(tmp_path / "west") as west:
        settings.write_text(SETTINGS.format(east=east.kafka, west=west.kafka))
        ok("streams", "create", "orders", "--partitions", str(PARTITIONS), bootstrap=east.kafka)
        ok("streams", "create", "state", "--config", "cleanup.policy=compact", bootstrap=east.kafka)
        with Program([*command, str(settings)], tmp_path / "mirror.log") as mirror:
            publish(east.kafka, 0)
            until(partial(is_copied, east.kafka, west.kafka), "the first round of records")
            until(partial(has_setting, west.kafka, "east.state", "cleanup.policy", "compact"), "the stream's settings")
            consume(east.kafka, CONSUMED)
            until(partial(committed, west.kafka), "the offsets of the group")
            mirror.kill9()
            publish(east.kafka, 1)
            mirror.start()
            until(partial(is_copied, east.kafka, west.kafka), "what was published while it was gone")
            for broker in (west, east):
                broker.kill9()
                broker.restart()
                publish(east.kafka, 2)
                until(partial(is_copied, east.kafka, west.kafka), "what was published after a kill of a broker")
        # It promises at least once: each record of the one is in the other, in its order, some of them twice.
        assert set(read(west.kafka, "east.orders")) == set(read(east.kafka, "orders"))
        # Who goes on over there has all that it has not read here.
        assert left(west.kafka, "east.orders") >= left(east.kafka, "orders")
        assert "The node does not support" not in mirror.log.read_text(errors="replace")


def publish(bootstrap: str, round_number: int) -> None:
    lines = "".join(f"{round_number}-{number}\n" for number in range(RECORDS))
    ok("publish", "orders", stdin=lines, bootstrap=bootstrap)


def is_copied(source: str, target: str) -> bool:
    return ends(target, "east.orders") >= ends(source, "orders") > 0


def has_setting(bootstrap: str, stream: str, name: str, value: str) -> bool:
    resource = ConfigResource(ResourceType.TOPIC, stream)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs([resource])[resource].result(WAIT_S)
    return bool(found[name].value == value)


def consume(bootstrap: str, count: int) -> None:
    """Read so many records as the group, and commit."""
    with closing(member(bootstrap, "orders")) as consumer:
        while count:
            count -= isinstance(polled(consumer), bytes)
        consumer.commit(asynchronous=False)


def committed(bootstrap: str) -> bool:
    """Whether the group has offsets over there."""
    partitions = [TopicPartition("east.orders", number) for number in range(PARTITIONS)]
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})) as consumer:
        return any(one.offset > 0 for one in consumer.committed(partitions, timeout=WAIT_S))


def left(bootstrap: str, stream: str) -> set[bytes]:
    """The records that the group has not read, by its committed offsets."""
    found = set[bytes]()
    at_end = set[int]()
    with closing(member(bootstrap, stream)) as consumer:
        while len(at_end) < PARTITIONS:
            got = polled(consumer)
            if isinstance(got, bytes):
                found.add(got)
            else:
                at_end.add(got)
    return found


def polled(consumer: Consumer) -> bytes | int:
    """The value of the next record, or the number of a partition that is at its end."""
    message = consumer.poll(WAIT_S)
    assert message is not None
    error, value, partition = message.error(), message.value(), message.partition()
    if error is not None:
        assert error.code() == KafkaError._PARTITION_EOF
        assert partition is not None
        return partition
    assert isinstance(value, bytes)
    return value


def member(bootstrap: str, stream: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([stream])
    return consumer
