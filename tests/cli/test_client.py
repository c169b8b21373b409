"""What the commands make of the answers that librdkafka gives them."""

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from logboom.cli.client import offsets_at


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
