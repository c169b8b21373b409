"""The idempotent producers that a partition remembers, and the transactions that there are none of (KIP-664)."""

from pathlib import Path
from typing import Any, Final

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.door import Client, Running, batch, running
from tests.support.simulated import run

from logboom.kafka.apis import describe_producers
from logboom.kafka.wire.messages import make, nested

PRODUCERS, TRANSACTIONS = 61, 66
NONE: Final = ErrorCode.none


async def appended(node: Running, index: int, *producers: tuple[int, int, int]) -> None:
    """One batch of two records for each producer id, epoch and first sequence."""
    partition = node.broker.replicas.find("s", index)
    for producer, epoch, sequence in producers:
        data = batch(b"a", b"b", producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        done: list[Any] = []
        partition.append(bytearray(data), acks=0, done=done.append)
    await node.broker.flusher.flush(partition)


async def described(client: Client, *indexes: int, stream: str = "s") -> list[Any]:
    topic = make(nested(load_request_schema(PRODUCERS, 0), "topics"), name=stream, partition_indexes=indexes)
    (told,) = (await client.ask(PRODUCERS, 0, topics=(topic,))).topics
    assert told.name == stream
    return list(told.partitions)


def test_a_leader_tells_the_last_batch_of_each_producer(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await node.broker.catalog.create_stream("s", partitions=2)
            await appended(node, 1, (7, 0, 0), (9, 3, 0), (7, 0, 2))
            empty, full, missing = await described(client, 0, 1, 5)
            assert (empty.partition_index, empty.error_code, empty.active_producers) == (0, NONE, ())
            told = [(one.producer_id, one.producer_epoch, one.last_sequence) for one in full.active_producers]
            assert told == [(9, 3, 1), (7, 0, 3)]
            assert {(one.coordinator_epoch, one.current_txn_start_offset) for one in full.active_producers} == {
                (-1, -1)
            }
            assert all(one.last_timestamp > 0 for one in full.active_producers)
            assert missing.error_code is ErrorCode.unknown_topic_or_partition
            (unknown,) = await described(client, 0, stream="nothing")
            assert unknown.error_code is ErrorCode.unknown_topic_or_partition

    run(body)


def test_a_response_has_no_more_producers_than_one_partition_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_producers, "_PRODUCERS_MAX", 3)

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await node.broker.catalog.create_stream("s", partitions=3)
            await appended(node, 0, (1, 0, 0), (2, 0, 0))
            await appended(node, 1, (3, 0, 0), (4, 0, 0))
            await appended(node, 2, (5, 0, 0))
            first, second, third = await described(client, 0, 1, 2)
            assert [len(one.active_producers) for one in (first, second, third)] == [2, 0, 1]
            assert second.error_code is ErrorCode.policy_violation
            assert "ask for fewer partitions" in second.error_message

    run(body)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_there_are_no_transactions_in_any_state(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            more = {"duration_filter": -1} if version >= 1 else {}
            pattern = {"transactional_id_pattern": "("} if version >= 2 else {}
            told = await client.ask(
                TRANSACTIONS,
                version,
                state_filters=("Ongoing", "Odd", "Odd"),
                producer_id_filters=(),
                **more,
                **pattern,
            )
            assert (told.error_code, told.transaction_states) == (NONE, ())
            assert told.unknown_state_filters == ("Odd",)

    run(body)
