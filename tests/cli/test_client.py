"""What the commands make of the answers that librdkafka gives them."""

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.cli.running import refused
from tests.support.server import BrokerProcess, free_port

from logboom.cli.client import Bounds, offsets_at, offsets_at_time
from logboom.cli.common import CommandError


class Answers:
    """An AdminClient whose broker gives these offsets, or errors, for the partitions of a stream."""

    def __init__(self, *outcomes: int | KafkaError) -> None:
        self._outcomes = outcomes

    def list_offsets(self, asked: Mapping[TopicPartition, object], **_: object) -> dict[TopicPartition, Future[Any]]:
        answers = {}
        for partition, outcome in zip(asked, self._outcomes, strict=True):
            future = answers[partition] = Future[Any]()
            if isinstance(outcome, KafkaError):
                future.set_exception(KafkaException(outcome))
            else:
                future.set_result(SimpleNamespace(offset=outcome))
        return answers


def test_a_partition_without_an_answer_has_no_offset() -> None:
    """Librdkafka says OFFSET_INVALID, and no error, for a broker that did not answer in time."""
    client = cast("AdminClient", Answers(5, OFFSET_INVALID, KafkaError(KafkaError.LEADER_NOT_AVAILABLE), -1))
    partitions = [TopicPartition("orders", index) for index in range(4)]
    found = offsets_at(client, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    assert found == {("orders", 0): 5, ("orders", 3): -1}


def test_a_time_is_the_end_of_a_partition_only_if_the_broker_says_so() -> None:
    """A group that is reset to the end skips records: a broker that does not answer is no reason for it."""
    ends = {("orders", 0): Bounds(0, 5), ("orders", 1): Bounds(0, 7)}
    assert offsets_at_time(cast("AdminClient", Answers(-1, 3)), ends, 0) == {("orders", 0): 5, ("orders", 1): 3}
    silent = cast("AdminClient", Answers(-1, KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)))
    with pytest.raises(CommandError, match="partition 1 of orders does not answer"):
        offsets_at_time(silent, ends, 0)


def test_brokers_that_advertise_an_address_nobody_reaches_are_told_of_at_once(tmp_path: Path) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with BrokerProcess(tmp_path / "data", "--set", f"kafka.advertised={nowhere}") as broker:
        for command in ("publish x", "tail x", "streams list", "groups list", "groups describe g", "tables list t"):
            told = refused(*command.split(), bootstrap=broker.kafka)
            assert f"({nowhere}: Connection refused)" in told
            assert "`kafka.advertised`" in told
