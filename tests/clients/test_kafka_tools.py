"""Kafka's own command line tools: kafka-configs for each kind of entity, kafka-topics, kafka-features."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from tests.clients.tools import Tool, tools
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S

from logboom.bench.servers.process import UnavailableError
from logboom.metadata.records import LEVEL_NEWEST

CONFIGS, TOPICS, FEATURES, TRANSACTIONS, ACLS = (
    "kafka.admin.ConfigCommand",
    "org.apache.kafka.tools.TopicCommand",
    "org.apache.kafka.tools.FeatureCommand",
    "org.apache.kafka.tools.TransactionsCommand",
    "org.apache.kafka.tools.AclCommand",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("tools") / "data") as process:
        yield process


@pytest.fixture(scope="module")
def tool(broker: BrokerProcess) -> Iterator[Tool]:
    with skipped_on(UnavailableError), tools(broker.kafka) as run:
        yield run


def test_a_topic_takes_every_kind_of_setting_and_names_what_it_refuses(tool: Tool) -> None:
    given = {"compression.type": "zstd", "flush.messages": "10", "segment.jitter.ms": "5", "preallocate": "true"}
    settings = [word for name, value in given.items() for word in ("--config", f"{name}={value}")]
    assert "Created topic" in tool(TOPICS, "--create", "--topic", "all", *settings)
    topic = ("--entity-type", "topics", "--entity-name", "all")
    tool(
        CONFIGS,
        "--alter",
        *topic,
        "--add-config",
        "unclean.leader.election.enable=true,flush.ms=9",
        "--delete-config",
        "preallocate",
    )
    shown = tool(CONFIGS, "--describe", *topic)
    for setting in ("compression.type=zstd", "flush.messages=10", "unclean.leader.election.enable=true", "flush.ms=9"):
        assert f"{setting} " in shown
    assert "preallocate" not in shown
    refused = tool(CONFIGS, "--alter", *topic, "--add-config", "remote.storage.enable=true", fails=True)
    assert "there is no tiered storage" in refused


@pytest.mark.parametrize("kind", ["brokers", "users", "clients", "ips", "client-metrics", "groups"])
def test_each_kind_of_entity_can_be_described(tool: Tool, kind: str) -> None:
    """Kafka's tool ends with 0, which `tool` asserts."""
    tool(CONFIGS, "--describe", "--entity-type", kind)


def test_the_level_of_the_log_is_a_broker_logger(tool: Tool) -> None:
    logger = ("--entity-type", "broker-loggers", "--entity-name", "1")
    assert "root=INFO" in tool(CONFIGS, "--describe", *logger)
    tool(CONFIGS, "--alter", *logger, "--add-config", "root=WARN")
    assert "root=WARN" in tool(CONFIGS, "--describe", *logger)
    tool(CONFIGS, "--alter", *logger, "--delete-config", "root")


def test_the_metadata_level_is_a_feature(tool: Tool) -> None:
    level = "logboom.metadata.version"
    shown = tool(FEATURES, "describe")
    spoken = f"SupportedMinVersion: 1\tSupportedMaxVersion: {LEVEL_NEWEST}\tFinalizedVersionLevel: {LEVEL_NEWEST}"
    assert f"Feature: {level}\t{spoken}" in shown
    assert f"{level} was upgraded to {LEVEL_NEWEST}" in tool(
        FEATURES, "upgrade", "--feature", f"{level}={LEVEL_NEWEST}"
    )
    assert f"the controller speaks metadata levels 1 to {LEVEL_NEWEST}" in tool(
        FEATURES, "upgrade", "--feature", f"{level}={LEVEL_NEWEST + 1}", fails=True
    )
    assert "hold records of level 2" in tool(FEATURES, "downgrade", "--feature", f"{level}=1", fails=True)


def test_idempotent_producers_are_told_and_there_are_no_transactions(broker: BrokerProcess, tool: Tool) -> None:
    producer = Producer({"bootstrap.servers": broker.kafka, "enable.idempotence": True})
    for value in (b"a", b"b", b"c"):
        producer.produce("sequenced", value)
    assert producer.flush(WAIT_S) == 0
    told = tool(TRANSACTIONS, "describe-producers", "--topic", "sequenced", "--partition", "0").splitlines()
    # Java says first what it takes from JDK_JAVA_OPTIONS, where that is set.
    heads, values = (line.split("\t") for line in told if "\t" in line)
    found = dict(zip((head.strip() for head in heads), (value.strip() for value in values), strict=True))
    assert (found["ProducerEpoch"], found["LastSequence"], found["CurrentTransactionStartOffset"]) == ("0", "2", "None")
    assert int(found["ProducerId"]) >= 0
    assert "Ongoing" not in tool(TRANSACTIONS, "list")
    assert "sequenced" not in tool(TRANSACTIONS, "find-hanging", "--broker-id", "1")


def test_there_are_no_acls(tool: Tool) -> None:
    assert "this broker has no authorizer" in tool(ACLS, "--list", fails=True)
