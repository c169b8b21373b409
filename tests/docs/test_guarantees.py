"""docs/guarantees.md: each promise names a test, and each test that is named exists.

Tests are looked for in the source, not run: a promise must not pass because a test was renamed away. What the page says
of `flush` and acks, and no other room proves from end to end, is proven here.
"""

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker.node import append, running
from tests.broker.node import run as run_loop
from tests.support.server import BrokerProcess
from tests.support.sources import functions_of
from tests.support.waiting import WAIT_S

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "guarantees.md"
RULES = ROOT / "docs" / "replication.md"
MUTANTS = ("tests/replication/mutants.py", "tests/sim/mutants.py", "tests/raft/test_simulation.py")
NOT_YET = "## Not promised yet"
TEST_ID = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
CELL_BAR = " | "


def promises() -> list[tuple[int, str, str]]:
    """Line, promise and proof of every row of every table of promises."""
    found = []
    inside = False
    for number, line in enumerate(PAGE.read_text().split(NOT_YET)[0].splitlines(), 1):
        if not line.startswith("|"):
            inside = False
        elif line == "| promise | proven by |":
            inside = True
        elif inside and not line.startswith("|---"):
            promise, _, proof = line.strip("| ").rpartition(CELL_BAR)
            found.append((number, promise, proof))
    return found


def test_there_are_promises() -> None:
    assert len(promises()) > 30


def test_each_promise_names_its_proof() -> None:
    bare = [f"line {number}: {promise}" for number, promise, proof in promises() if not TEST_ID.search(proof)]
    assert not bare, "promises without a test:\n" + "\n".join(bare)


def test_each_proof_exists() -> None:
    missing = []
    for file, name in sorted(set(TEST_ID.findall(PAGE.read_text() + RULES.read_text()))):
        path = ROOT / file
        if not path.exists() or name not in functions_of(path):
            missing.append(f"{file}::{name}")
    assert not missing, (
        "tests that docs/guarantees.md or docs/replication.md names and that are not there:\n" + "\n".join(missing)
    )


def test_each_rule_of_replication_is_broken_somewhere() -> None:
    rules = [line for line in RULES.read_text().splitlines() if re.match(r"\| \d+\. ", line)]
    assert len(rules) == 12
    there = set().union(*(functions_of(ROOT / file) for file in MUTANTS))
    for rule in rules:
        named = re.findall(r"`(\w+)`", rule.rpartition(CELL_BAR)[2])
        assert named, f"nothing breaks {rule[:80]}"
        assert set(named) <= there, f"of {named} some break nothing"


def test_everything_that_looks_like_a_test_is_one() -> None:
    """A misspelt id must not slip through by not looking like one."""
    mentioned = re.findall(r"`([^`]*(?:tests/|test_)[^`]*)`", PAGE.read_text())
    odd = [text for text in mentioned if not TEST_ID.fullmatch(f"`{text}`")]
    assert not odd


def test_the_documents_never_promise_exactly_once_delivery() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert not re.search(r"exactly[- ]once delivery", page.read_text(), re.IGNORECASE), page


@pytest.mark.parametrize("acks", ["1", "all"])
@pytest.mark.parametrize("flush", ["commit", "none"])
def test_what_was_acked_is_there_after_kill_9_whatever_the_flush(tmp_path: Path, flush: str, acks: str) -> None:
    acked: dict[int, bytes] = {}
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, message: Message) -> None:
        offset, value = message.offset(), message.value()
        if error is not None:
            failed.append(error)
        else:
            assert offset is not None
            assert value is not None
            acked[offset] = value

    with BrokerProcess(tmp_path / "data", "--set", "broker.background_sync_interval_s=1h") as broker:
        stream = NewTopic("s", num_partitions=1, config={"logboom.flush": flush})
        admin = AdminClient({"bootstrap.servers": broker.kafka})
        admin.create_topics([stream])["s"].result(WAIT_S)
        producer = Producer({"bootstrap.servers": broker.kafka, "acks": acks, "linger.ms": 1})
        for number in range(2_000):
            producer.produce("s", str(number), on_delivery=told)
        assert producer.flush(WAIT_S) == 0
        broker.kill9()
        broker.start()
        assert not failed
        assert len(acked) == 2_000
        assert read(broker.kafka, "s", len(acked)) == acked
        assert "damage" not in broker.log_text()


def read(bootstrap: str, stream: str, count: int) -> dict[int, bytes]:
    """So many records of a stream's only partition, by their offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(stream, 0, 0)])
    found: dict[int, bytes] = {}
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None, f"only {len(found)} records came"
        offset, value = message.offset(), message.value()
        assert message.error() is None
        assert offset is not None
        assert value is not None
        found[offset] = value
    consumer.close()
    return found


@pytest.mark.parametrize(("flush", "synced"), [("commit", True), ("none", False)])
@pytest.mark.parametrize("acks", [1, -1])
def test_an_ack_waits_for_the_disk_with_flush_commit_alone(
    tmp_path: Path, flush: str, acks: int, *, synced: bool
) -> None:
    async def body() -> None:
        async with running(tmp_path, background_sync_interval_s=3600) as broker:
            await broker.catalog.create_stream("orders", config={"logboom.flush": flush})
            partition = broker.replicas.find("orders", 0)
            result = await append(partition, b"x", acks=acks)
            assert partition.log.written_end > result.base_offset
            assert (partition.log.durable_end > result.base_offset) == synced

    run_loop(body)
