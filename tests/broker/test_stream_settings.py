"""What a stream's settings do to its log: codecs, syncs without commit, the ends of segments."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker.node import append, batch, running, values_of
from tests.support.simulated import run

from logboom.base.errors import MessageTooLargeError
from logboom.base.ids import Offset, PartitionIndex
from logboom.broker.config import BrokerConfig
from logboom.broker.partition.replica import log_config
from logboom.broker.partition.validation import AppendRules
from logboom.metadata import Compression, StreamConfig
from logboom.records import Codec, crc_ok, iter_records, read_header

VALUES = [b"a%d" % number * 20 for number in range(50)]
CODECS = {
    Compression.UNCOMPRESSED: Codec.NONE,
    Compression.GZIP: Codec.GZIP,
    Compression.SNAPPY: Codec.SNAPPY,
    Compression.LZ4: Codec.LZ4,
    Compression.ZSTD: Codec.ZSTD,
}


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("sent", Codec)
def test_a_batch_is_stored_in_the_streams_codec(kind: Compression, sent: Codec) -> None:
    rules = AppendRules.of(StreamConfig(compression_type=kind), BrokerConfig())
    data = batch(*VALUES, codec=sent, producer=(7, 0, 3))
    before = read_header(data)
    checked = rules.check(data, 1_000)
    assert isinstance(checked, tuple)
    stored, header = checked
    assert header.codec is CODECS[kind]
    assert header == read_header(stored)
    assert header.size_bytes == len(stored)
    assert crc_ok(stored, 0, header)
    assert (stored is data) == (sent is CODECS[kind]), "what is in the codec already is not touched"
    assert header._replace(batch_length=0, crc=0, attributes=0) == before._replace(batch_length=0, crc=0, attributes=0)
    assert [record.value for record in iter_records(stored, 0, header, 1 << 20)] == VALUES


def test_levels_are_the_streams() -> None:
    text = "".join(
        f'{{"name": "{n % 37}", "at": {n * n % 1009}, "text": "some words"}}\n' for n in range(2_000)
    ).encode()

    def size(**settings: object) -> int:
        config = replace(StreamConfig(), **settings)  # type: ignore[arg-type]
        checked = AppendRules.of(config, BrokerConfig()).check(batch(text), 1_000)
        assert isinstance(checked, tuple)
        return len(checked[0])

    for kind, field, low, high in (
        (Compression.GZIP, "compression_gzip_level", 1, 9),
        (Compression.ZSTD, "compression_zstd_level", -7, 19),
        (Compression.LZ4, "compression_lz4_level", 9, 12),  # 9 is lz4's fast mode, as in Kafka
    ):
        assert size(compression_type=kind, **{field: high}) < size(compression_type=kind, **{field: low})


def test_a_batch_that_is_too_large_in_the_streams_codec_is_refused() -> None:
    config = StreamConfig(compression_type=Compression.UNCOMPRESSED, max_message_bytes=1_000)
    refused = AppendRules.of(config, BrokerConfig()).check(batch(bytes(5_000), codec=Codec.ZSTD), 1_000)
    assert isinstance(refused, MessageTooLargeError)
    assert "compression.type" in str(refused)


def test_a_stream_changes_its_codec_while_it_is_used(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", config={"compression.type": "zstd"})
            partition = broker.replicas.find("orders", 0)
            await append(partition, b"first", codec=Codec.GZIP)
            await broker.catalog.change_stream_config("orders", {"compression.type": None})
            await append(partition, b"second", codec=Codec.GZIP)
            kinds = [read_header(await partition.reads.read(Offset(offset), 100)).codec for offset in (0, 1)]
            assert kinds == [Codec.ZSTD, Codec.GZIP]
            assert await values_of(partition) == [b"first", b"second"]

    run(body)


def test_so_many_records_without_a_sync_are_synced_by_the_append_that_makes_them(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, background_sync_interval_s=1_000) as broker:
            await broker.catalog.create_stream("loose", config={"logboom.flush": "none", "flush.messages": "3"})
            log = broker.replicas.find("loose", 0).log
            ends = []
            for value in (b"a", b"b", b"c", b"d"):
                await append(broker.replicas.find("loose", 0), value)
                ends.append(log.durable_end)
            assert ends == [0, 0, 3, 3]

    run(body)


def test_a_stream_may_be_synced_more_often_than_the_broker_does(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, background_sync_interval_s=100) as broker:
            loop = asyncio.get_running_loop()
            await broker.catalog.create_stream("plain", config={"logboom.flush": "none"})
            await asyncio.sleep(101)  # its first round, after which it waits its own time
            await broker.catalog.create_stream("often", config={"logboom.flush": "none", "flush.ms": "500"})
            await asyncio.sleep(100)
            plain, often = (broker.replicas.find(name, 0) for name in ("plain", "often"))
            began_s = loop.time()
            await append(plain, b"a")
            await append(often, b"a")
            while often.log.durable_end < 1:
                await asyncio.sleep(0.01)
            assert loop.time() - began_s < 1.1
            assert plain.log.durable_end == 0, "the other keeps the broker's time"
            while plain.log.durable_end < 1:
                await asyncio.sleep(0.5)
            assert loop.time() - began_s < 101

    run(body)


def test_flush_ms_of_nothing_is_a_sync_of_each_append(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, background_sync_interval_s=1_000) as broker:
            await broker.catalog.create_stream("loose", config={"logboom.flush": "none", "flush.ms": "0"})
            partition = broker.replicas.find("loose", 0)
            await append(partition, b"a", acks=1)
            assert partition.log.durable_end == 1

    run(body)


def test_what_was_not_synced_is_synced_once_the_stream_asks_for_it(tmp_path: Path) -> None:
    """Also if nothing is appended any more: a power failure would lose it at any later time."""

    async def body() -> None:
        async with running(tmp_path, background_sync_interval_s=1_000) as broker:
            await broker.catalog.create_stream("loose", config={"logboom.flush": "none"})
            partition = broker.replicas.find("loose", 0)
            await append(partition, b"a")
            assert partition.log.durable_end == 0
            await broker.catalog.change_stream_config("loose", {"logboom.flush": "commit"})
            async with asyncio.timeout(60):
                while partition.log.durable_end < 1:
                    await asyncio.sleep(0.01)

    run(body)


def test_the_segments_of_many_partitions_do_not_end_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            config = {"segment.ms": "10000", "segment.jitter.ms": "4000", "index.interval.bytes": "0"}
            stream = await broker.catalog.create_stream("many", partitions=20, config=config)
            logs = [broker.replicas.find("many", index).log.config for index in range(20)]
            times_ms = {log.segment_ms for log in logs}
            assert len(times_ms) > 10
            assert all(6_000 < time_ms <= 10_000 for time_ms in times_ms)
            assert {log.index_interval_bytes for log in logs} == {1}
            again = [log_config(stream, PartitionIndex(index), broker.config) for index in range(20)]
            assert again == logs, "the same after a restart"

    run(body)
