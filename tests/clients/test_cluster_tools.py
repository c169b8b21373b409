"""Kafka's own command line tools on a cluster of three brokers: they see it, move replicas and elect leaders."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.tools import Tool, tools
from tests.support.cluster_processes import cluster_of
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S, until

from logboom.bench.servers.process import UnavailableError

TOPICS, REASSIGN, ELECT, QUORUM, CLUSTER, LOG_DIRS = (
    f"org.apache.kafka.tools.{name}"
    for name in (
        "TopicCommand",
        "reassign.ReassignPartitionsCommand",
        "LeaderElectionCommand",
        "MetadataQuorumCommand",
        "ClusterTool",
        "LogDirsCommand",
    )
)
CONFIGS = "kafka.admin.ConfigCommand"
ROW = re.compile(r"Partition: (\d+)\tLeader: (\S+)\tReplicas: (\S+)\tIsr: (\S*)\tElr: (\S*)\tLastKnownElr: ")
Row = tuple[str, str, str]
"""Leader, replicas, ISR, as the tool prints them."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    """All three."""
    with cluster_of(tmp_path_factory.mktemp("cluster")) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def tool(broker: list[BrokerProcess]) -> Iterator[Tool]:
    with skipped_on(UnavailableError), tools(",".join(one.kafka for one in reversed(broker)), wait_s=WAIT_S) as run:
        yield run


def rows(tool: Tool, topic: str) -> dict[int, Row]:
    """As one of the brokers knows them, which may be a moment late."""
    said = tool(TOPICS, "--describe", "--topic", topic, "--if-exists")
    return {int(found[1]): (found[2], found[3], found[4]) for found in ROW.finditer(said)}


def first(tool: Tool, topic: str) -> Row:
    """Partition 0."""
    return rows(tool, topic).get(0, ("", "", ""))


def made(tool: Tool, topic: str, *replicas: str) -> None:
    """A topic with these replicas, one list a partition."""
    placed = ",".join(one.replace(",", ":") for one in replicas)
    assert "Created topic" in tool(TOPICS, "--create", "--topic", topic, "--replica-assignment", placed)


def planned(path: Path, topic: str, moves: dict[int, list[int]]) -> str:
    partitions = [{"topic": topic, "partition": index, "replicas": replicas} for index, replicas in moves.items()]
    file = path / "moves.json"
    file.write_text(json.dumps({"version": 1, "partitions": partitions}), encoding="utf-8")
    return str(file)


def test_a_topic_is_created_with_replicas_and_described(tool: Tool) -> None:
    words = ("--create", "--topic", "three", "--partitions", "6", "--replication-factor", "3")
    assert "Created topic" in tool(TOPICS, *words)
    until(lambda: len(rows(tool, "three")) == 6)
    found = rows(tool, "three")
    assert sorted(found) == list(range(6))
    assert {frozenset(replicas.split(",")) for _, replicas, _ in found.values()} == {frozenset("123")}
    assert all(leader == replicas[0] and isr == "1,2,3" for leader, replicas, isr in found.values())
    four = tool(TOPICS, "--create", "--topic", "four", "--replication-factor", "4", fails=True)
    assert "InvalidReplicationFactorException" in four
    tool(TOPICS, "--alter", "--topic", "three", "--partitions", "7")
    until(lambda: len(rows(tool, "three")) == 7)


def test_replicas_move(tool: Tool, tmp_path: Path) -> None:
    made(tool, "moves", "1,2", "1,3")
    plan = planned(tmp_path, "moves", {0: [3, 2], 1: [2]})
    assert "Successfully started" in tool(REASSIGN, "--reassignment-json-file", plan, "--execute")

    def verified() -> bool:
        said = tool(REASSIGN, "--reassignment-json-file", plan, "--verify")
        return said.count("is completed.") == 2

    until(verified)
    assert "No partition reassignments found." in tool(REASSIGN, "--list")
    until(lambda: rows(tool, "moves") == {0: ("3", "3,2", "2,3"), 1: ("2", "2", "2")})
    dirs = tool(LOG_DIRS, "--describe", "--topic-list", "moves")
    assert '"partition":"moves-0"' in dirs
    strange = planned(tmp_path, "moves", {0: [9]})
    refused = tool(REASSIGN, "--reassignment-json-file", strange, "--execute", fails=True)
    assert "9" in refused


def test_a_throttled_move_is_throttled_until_it_is_verified(tool: Tool, tmp_path: Path) -> None:
    made(tool, "slow", "1,2")
    plan = planned(tmp_path, "slow", {0: [2, 3]})
    began = tool(REASSIGN, "--reassignment-json-file", plan, "--execute", "--throttle", "50000000")
    assert "The inter-broker throttle limit was set to 50000000 B/s" in began
    topic = tool(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "slow")
    assert "leader.replication.throttled.replicas=0:1,0:2 " in topic
    assert "follower.replication.throttled.replicas=0:3 " in topic
    for broker_id in "123":
        shown = tool(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", broker_id)
        assert "leader.replication.throttled.rate=50000000 " in shown
        assert "follower.replication.throttled.rate=50000000 " in shown

    def verified() -> bool:
        said = tool(REASSIGN, "--reassignment-json-file", plan, "--verify")
        return "Clearing topic-level throttles on topic slow" in said

    until(verified)
    for kind, name in (("topics", "slow"), ("brokers", "1"), ("brokers", "3")):
        assert "throttled" not in tool(CONFIGS, "--describe", "--entity-type", kind, "--entity-name", name)


def test_preferred_leaders_are_elected(tool: Tool, tmp_path: Path) -> None:
    made(tool, "elected", "1,2")
    plan = planned(tmp_path, "elected", {0: [2, 1]})
    tool(REASSIGN, "--reassignment-json-file", plan, "--execute")
    until(lambda: first(tool, "elected")[:2] == ("1", "2,1"))
    one = ("--topic", "elected", "--partition", "0")
    tool(ELECT, "--election-type", "preferred", *one)
    until(lambda: first(tool, "elected") == ("2", "2,1", "1,2"))
    assert "Valid replica already elected" in tool(ELECT, "--election-type", "preferred", *one)
    tool(ELECT, "--election-type", "preferred", "--all-topic-partitions")


def test_the_quorum_is_shown_by_any_broker(tool: Tool) -> None:
    status = tool(QUORUM, "describe", "--status")
    assert re.search(r"^LeaderId: +[123]$", status, re.MULTILINE), status
    assert re.search(r"^MaxFollowerLag: +\d+$", status, re.MULTILINE), status
    replication = tool(QUORUM, "describe", "--replication", "--human-readable")
    nodes = re.findall(r"^([123])\s*\t.*\t(Leader|Follower|Observer)\s*$", replication, re.MULTILINE)
    assert sorted(node for node, _ in nodes) == ["1", "2", "3"], replication
    assert [role for _, role in nodes].count("Leader") == 1


def test_the_brokers_are_listed_and_one_that_is_stopped_leaves(tool: Tool, broker: list[BrokerProcess]) -> None:
    running = tool(CLUSTER, "unregister", "--id", "3", fails=True)
    assert "running" in running
    there = tool(CLUSTER, "list-endpoints", "--include-fenced-brokers")
    assert all(one.kafka.split(":")[1] in there for one in broker)
    tool(TOPICS, "--create", "--topic", "less", "--replica-assignment", "1:2:3")
    broker[2].kill9()
    until(lambda: first(tool, "less")[2] == "1,2")
    until(lambda: "Partition: 0" in tool(TOPICS, "--describe", "--under-replicated-partitions", "--topic", "less"))
    listed = ("list-endpoints", "--include-fenced-brokers")
    until(lambda: re.search(r"^3 .*fenced", tool(CLUSTER, *listed), re.MULTILINE) is not None)
    broker[2].restart()
    until(lambda: first(tool, "less")[2] == "1,2,3")
