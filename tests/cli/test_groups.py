"""logboom groups, with a group that a real consumer makes."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConsumerGroupDescription
from tests.cli.running import logboom, ok, refused
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.cli import groups as commands
from logboom.cli.common import CommandError

Name = Callable[[], str]


@contextmanager
def member(broker: BrokerProcess, group: str, stream: str, committed: int) -> Iterator[Consumer]:
    """A consumer that has its partitions and has committed `committed` records of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.kafka,
            "group.id": group,
            "client.id": "tester",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([stream])
        deadline = time.monotonic() + WAIT_S
        while not consumer.assignment():
            assert time.monotonic() < deadline, "no assignment"
            consumer.poll(0.1)
        consumer.commit(offsets=[TopicPartition(stream, 0, committed)], asynchronous=False)
        yield consumer
    finally:
        consumer.close()


@pytest.fixture
def stream(broker: BrokerProcess, name: Name) -> str:
    made = name()
    ok("streams", "create", made, "--partitions", "2", bootstrap=broker.kafka)
    lines = "".join(f"{number}\n" for number in range(10))
    ok("publish", made, "--partition", "0", bootstrap=broker.kafka, stdin=lines)
    return made


def test_lag_and_members_are_shown(broker: BrokerProcess, stream: str, name: Name) -> None:
    group = name()
    with member(broker, group, stream, 4):
        listed = ok("groups", "list", "--json", bootstrap=broker.kafka).json
        assert {"group": group, "state": "stable", "members": 1} in listed
        described = ok("groups", "describe", group, "--json", bootstrap=broker.kafka).json
        assert (described["state"], described["lag"]) == ("stable", 6)
        assert described["members"][0]["client"] == "tester"
        assert sorted(described["members"][0]["partitions"]) == [f"{stream}:0", f"{stream}:1"]
        first = described["positions"][0]
        assert (first["partition"], first["committed"], first["end"], first["lag"]) == (0, 4, 10, 6)
        text = ok("groups", "describe", group, bootstrap=broker.kafka).out
        assert text.startswith(f"{group}  stable  1 member  lag 6\n")


def test_reset_refuses_a_live_group_and_moves_a_stopped_one(broker: BrokerProcess, stream: str, name: Name) -> None:
    group = name()
    with member(broker, group, stream, 4):
        said = refused("groups", "reset", group, "--to", "earliest", bootstrap=broker.kafka)
        assert f"group '{group}' has 1 live member (tester): stop them, then reset it" in said

    def committed() -> int:
        positions = ok("groups", "describe", group, "--json", bootstrap=broker.kafka).json["positions"]
        return int(positions[0]["committed"])

    ok("groups", "reset", group, "--to", "latest", "--dry-run", bootstrap=broker.kafka)
    assert committed() == 4
    for where, expected in (("earliest", 0), ("latest", 10), ("7", 7), ("2020-01-01", 0), ("2099-01-01T00:00", 10)):
        arguments = ["--to", where, "--partition", "0", "--json"]
        done = ok("groups", "reset", group, *arguments, bootstrap=broker.kafka).json
        assert done["changes"][0]["to"] == expected
        assert committed() == expected
    ok("groups", "reset", group, "--since", "1h", bootstrap=broker.kafka)
    assert committed() == 0


def test_group_that_never_read_can_be_given_a_start(broker: BrokerProcess, stream: str, name: Name) -> None:
    group = name()
    ok("groups", "reset", group, "--to", "latest", "--stream", stream, bootstrap=broker.kafka)
    listed = ok("groups", "list", "--json", bootstrap=broker.kafka).json
    assert {"group": group, "state": "empty", "members": 0} in listed
    assert "yes" in refused("groups", "delete", group, bootstrap=broker.kafka)
    ok("groups", "delete", group, "--yes", bootstrap=broker.kafka)
    assert f"there is no group '{group}'" in refused("groups", "describe", group, bootstrap=broker.kafka)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name the target"),
        (["--to", "earliest", "--since", "1h"], "name the target"),
        (["--to", "earliest"], "has no offsets yet"),
        (["--to", "earliest", "--stream", "nope"], "there is no stream 'nope'"),
    ],
    ids=["nowhere", "two places", "no offsets", "no stream"],
)
def test_reset_that_makes_no_sense_is_refused(
    broker: BrokerProcess, name: Name, arguments: list[str], said: str
) -> None:
    assert said in refused("groups", "reset", name(), *arguments, bootstrap=broker.kafka)


def test_place_that_is_none_is_refused(broker: BrokerProcess, stream: str, name: Name) -> None:
    for where, said in (
        ("tomorrow", "neither earliest, latest, an offset nor a time"),
        ("99", "is not between 0 and 10"),
    ):
        arguments = ["--to", where, "--stream", stream, "--partition", "0"]
        assert said in refused("groups", "reset", name(), *arguments, bootstrap=broker.kafka)


def test_unknown_option_is_a_usage_error() -> None:
    assert logboom("groups", "reset", "g", "--from", "x").code == 2


class HalfSilent:
    """An AdminClient of two brokers, of which one tells a group and the other does not answer."""

    def list_consumer_groups(self, **_: object) -> Future[Any]:
        answer = Future[Any]()
        silent = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
        answer.set_result(SimpleNamespace(valid=[SimpleNamespace(group_id="told")], errors=[silent]))
        return answer

    def describe_consumer_groups(self, groups: list[str], **_: object) -> dict[str, Future[Any]]:
        answer = Future[Any]()
        answer.set_result(Mock(ConsumerGroupDescription, state=ConsumerGroupState.EMPTY, members=[]))
        return {groups[0]: answer}


def test_groups_of_a_broker_that_does_not_answer_are_not_said_to_be_absent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "admin", lambda bootstrap: HalfSilent())
    with pytest.raises(CommandError, match="not every broker has answered"):
        commands.list_("somewhere:9092")
    assert "told" in capsys.readouterr().out
    with pytest.raises(CommandError, match="whether there is a group 'other' is not known"):
        commands.delete("other", yes=True, bootstrap="somewhere:9092")
