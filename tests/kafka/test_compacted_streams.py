"""Compacted streams at the Kafka door: records without a key are refused by their index, the state is described."""

import asyncio
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from tests.kafka.door import batch, running, until
from tests.kafka.test_config_resources import described
from tests.kafka.test_hot_apis import fetch_request, first_offsets, produce_request, produced
from tests.support.simulated import run
from tests.support.waiting import WAIT_S

from logboom.base.ids import Offset
from logboom.broker.partition.reads import CommittedReads
from logboom.http.broker_metrics import broker_metrics
from logboom.kafka.apis import produce
from logboom.kafka.wire.messages import milliseconds
from logboom.records import Record, build_batch, holds_records, iter_batches, iter_records

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "16384"}
VERSIONS = range(3, produce.HANDLER.max_version + 1)


def keyed(*keys: bytes | None, value: bytes = b"v") -> bytes:
    return bytes(build_batch([Record(Offset(n), 1_000, key, value) for n, key in enumerate(keys)]))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_without_a_key_is_named_and_the_rest_of_the_request_is_taken(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            table = await node.broker.catalog.create_stream("table", partitions=3, config=COMPACT)
            parts = {0: keyed(b"a", b"b"), 1: keyed(b"a", b"b", None, None), 2: keyed(b"c")}
            client.send(0, version, produce_request(version, table, parts))
            reply = await client.reply()
            taken, refused, other = reply.responses[0].partition_responses
            assert (taken.error_code, taken.base_offset) == (ErrorCode.none, 0)
            assert (other.error_code, other.base_offset) == (ErrorCode.none, 0)
            assert refused.error_code is ErrorCode.invalid_record
            if version >= 8:
                assert [fault.batch_index for fault in refused.record_errors] == [2, 3]
                assert all("has no key" in fault.batch_index_error_message for fault in refused.record_errors)
                assert "cleanup.policy=compact" in refused.error_message
            # The same once more, alone: the way of requests that look like the last one.
            for _ in range(3):
                again = await produced(client, version, table, 1, keyed(None))
                assert again.error_code is ErrorCode.invalid_record
                if version >= 8:
                    assert [one.batch_index for one in again.record_errors] == [0]
            assert node.broker.replicas.find("table", 1).log_end_offset == 0

    run(body)


def test_other_faults_name_no_record(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            table = await node.broker.catalog.create_stream("table", config=COMPACT)
            broken = bytearray(batch(b"a"))
            broken[-1] ^= 1
            refused = await produced(client, 9, table, 0, bytes(broken))
            assert (refused.error_code, refused.record_errors) == (ErrorCode.corrupt_message, ())

    run(body)


def test_the_state_of_compaction_is_described_and_counted(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, cleaner={"backoff_ms": 100}) as node, node.client() as client:
            broker = node.broker
            table = await broker.catalog.create_stream("table", config=COMPACT)
            await broker.catalog.create_stream("plain")
            for _ in range(40):
                await produced(client, 9, table, 0, keyed(b"a", b"b", value=bytes(1_000)))
            await until(lambda: broker.counters.compacted_away_records > 40)
            values = {
                sample.name: sample.value
                for metric in broker_metrics(broker, "1", "plain Python", 100)
                for sample in metric.samples
            }
            assert values["logboom_compacted_written_bytes_total"] < values["logboom_compacted_read_bytes_total"]
            assert 0 < values["logboom_compaction_recopy_ratio"] < 1
            assert values["logboom_uncompactable_partitions"] == 0
            shown = {one.name: one for one in (await described(client, 2, "table")).configs}
            state = shown["logboom.compaction.state"]
            assert state.read_only
            assert state.value.startswith("partition 0 is ")
            assert state.value.endswith("% dirty")
            assert "logboom.compaction.state" not in {one.name for one in (await described(client, 2, "plain")).configs}

    run(body)


def test_what_is_read_over_segments_of_removed_records_has_records(tmp_path: Path) -> None:
    """Each key was written in each of many segments, so that all but the last ones hold nothing any more."""

    async def body() -> None:
        async with running(tmp_path, cleaner={"backoff_ms": 100}) as node, node.client() as client:
            broker = node.broker
            table = await broker.catalog.create_stream("table", config=COMPACT)
            reads = broker.replicas.find("table", 0).reads
            for _ in range(300):
                await produced(client, 9, table, 0, keyed(b"a", b"b", value=bytes(1_000)))
            await until(lambda: broker.counters.compacted_away_records >= 500)
            for start in range(0, 560, 7):
                data = await reads.read(Offset(start), 1_000)
                assert holds_records(data), f"a read at {start} finds the next record behind it"
            end = Offset(reads.high_watermark)
            assert [offset for offset, _ in await records_from(reads, Offset(0))][-1] == end - 1

    run(body)


async def records_from(reads: CommittedReads, offset: Offset) -> list[tuple[int, bytes | None]]:
    """Offset and key of every record from there on, with the smallest reads."""
    found: list[tuple[int, bytes | None]] = []
    while offset < reads.high_watermark:
        for at, header in iter_batches(data := await reads.read(offset, 1)):
            found += [(record.offset, record.key) for record in iter_records(data, at, header, 1 << 20)]
            offset = header.next_offset
    return found


def test_what_is_read_ahead_over_removed_records_has_records(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, cleaner={"backoff_ms": 100}) as node, node.client() as client:
            broker = node.broker
            table = await broker.catalog.create_stream("table", config=COMPACT)
            reads = broker.replicas.find("table", 0).reads
            await produced(client, 9, table, 0, keyed(b"first"))
            await produced(client, 9, table, 0, keyed(b"second"))
            for _ in range(100):
                await produced(client, 9, table, 0, keyed(b"a", value=bytes(1_000)))
            await until(lambda: broker.counters.compacted_away_records >= 80)
            reads.read_cached(Offset(0), 1)
            await reads.read(Offset(1), 1)
            reads.read_ahead(Offset(1), 1)
            data = reads.read_cached(Offset(2), 1)
            assert data is None or holds_records(data)

    run(body)


def test_a_log_that_shrinks_while_a_fetch_waits_does_not_hold_it_up(tmp_path: Path) -> None:
    """How much was written since is not the difference of the log's sizes, once compaction removed some of it."""

    async def body() -> None:
        async with (
            running(tmp_path, cleaner={"backoff_ms": 100}) as node,
            node.client() as client,
            node.client() as other,
        ):
            broker = node.broker
            table = await broker.catalog.create_stream("table", config={"segment.bytes": "16384"})
            one = keyed(b"a", value=bytes(1_000))
            for _ in range(90):
                await produced(other, 9, table, 0, one)
            client.send(1, 12, fetch_request(12, table, {0: 90}, max_wait=milliseconds(40_000), min_bytes=2 * len(one)))
            await until(lambda: node.metrics.waiting_fetches)
            await broker.catalog.change_stream_config("table", COMPACT)
            await until(lambda: broker.counters.compacted_away_records >= 60)
            assert node.metrics.waiting_fetches == 1
            for _ in range(3):
                await produced(other, 9, table, 0, one)
            async with asyncio.timeout(WAIT_S):
                reply = await client.reply()
            assert first_offsets(reply.responses[0].partitions[0].records)[0] == 90

    run(body)
