"""The shell: streams come, grow and go, and what was promised survives restarts of every kind."""

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

import pytest
from tests.broker.node import FaultyDisk, append, run, running, start, until, values_of
from tests.support.waiting import WAIT_S

from logboom.base.errors import (
    InvalidStreamNameError,
    LogboomError,
    OutcomeUnknownError,
    PolicyViolationError,
    StorageError,
    StreamExistsError,
    UnknownStreamError,
    UnknownStreamIdError,
)
from logboom.base.ids import Offset, StreamId
from logboom.broker.config import BrokerConfig, StreamDefaults
from logboom.broker.disk.data_dir import DataDirError
from logboom.metadata import DEFAULT_STREAM_CONFIG, Flush
from logboom.storage import TimedOffset


def directories(path: Path) -> list[str]:
    return sorted(entry.name for entry in (path / "streams").iterdir() if not entry.name.startswith("__"))


def public(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("__"))


def test_broker_defaults_are_the_tables() -> None:
    assert StreamDefaults().stream_config == DEFAULT_STREAM_CONFIG


def test_streams_survive_a_restart_with_id_and_settings(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, default_partitions=2) as broker:
            orders = await broker.catalog.create_stream("orders", config={"logboom.flush": "none"})
            assert orders.partitions == 2
            await append(broker.replicas.find("orders", 1), b"a")
        async with running(tmp_path) as broker:
            again = broker.catalog.stream("orders")
            assert again is not None
            assert (again.id, again.partitions, again.overrides) == (orders.id, orders.partitions, orders.overrides)
            assert broker.catalog.stream_by_id(orders.id) == again
            assert again in broker.catalog.streams().values()
            assert broker.config.stream_config(orders).flush is Flush.NONE
            assert await values_of(broker.replicas.find_by_id(orders.id, 1)) == [b"a"]

    run(body)


def test_two_brokers_on_one_directory_the_second_refuses(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            with pytest.raises(DataDirError, match="in use"):
                await start(tmp_path)
            await broker.catalog.create_stream("orders")

    run(body)


@pytest.mark.parametrize("acks", [-1, 1])
def test_what_was_acked_is_there_after_a_kill(tmp_path: Path, acks: int) -> None:
    """A copy of the directory under a running broker is what kill -9 leaves."""

    async def body() -> None:
        async with running(tmp_path / "one") as broker:
            await broker.catalog.create_stream("orders", partitions=3)
            await broker.catalog.create_stream("loose", config={"logboom.flush": "none"})
            for n in range(20):
                await append(broker.replicas.find("orders", n % 3), b"%d" % n, acks=acks)
                await append(broker.replicas.find("loose", 0), b"%d" % n, acks=acks)
            epoch = broker.replicas.find("orders", 0).leader_epoch
            await asyncio.to_thread(shutil.copytree, tmp_path / "one", tmp_path / "two")
        async with running(tmp_path / "two") as broker:
            for index in range(3):
                expected = [b"%d" % n for n in range(20) if n % 3 == index]
                assert await values_of(broker.replicas.find("orders", index)) == expected
                assert broker.replicas.find("orders", index).leader_epoch == epoch + 1
            assert len(await values_of(broker.replicas.find("loose", 0))) == 20
            await append(broker.replicas.find("orders", 0), b"on")

    run(body)


def test_each_start_is_a_leadership_even_if_nothing_is_written_in_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path / "one") as broker:
            await broker.catalog.create_stream("orders")
            await asyncio.to_thread(shutil.copytree, tmp_path / "one", tmp_path / "two")
        async with running(tmp_path / "two") as broker:
            assert broker.replicas.find("orders", 0).leader_epoch == 1
            await asyncio.to_thread(shutil.copytree, tmp_path / "two", tmp_path / "three")
        async with running(tmp_path / "three") as broker:
            assert broker.replicas.find("orders", 0).leader_epoch == 2

    run(body)


def test_idempotence_survives_a_kill(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path / "one") as broker:
            await broker.catalog.create_stream("orders")
            for n in range(7):
                await append(broker.replicas.find("orders", 0), b"%d" % n, producer=(5, 0, n))
            await asyncio.to_thread(shutil.copytree, tmp_path / "one", tmp_path / "two")
        async with running(tmp_path / "two") as broker:
            again = await append(broker.replicas.find("orders", 0), b"6", producer=(5, 0, 6))
            assert again.base_offset == 6
            assert (await append(broker.replicas.find("orders", 0), b"7", producer=(5, 0, 7))).base_offset == 7

    run(body)


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    async def body() -> None:
        given: list[int] = []
        for _ in range(3):
            async with running(tmp_path, producer_id_block=10) as broker:
                given += await asyncio.gather(*(broker.producer_ids.allocate() for _ in range(25)))
        assert len(set(given)) == 75

    run(body)


def test_a_deleted_stream_is_gone_and_its_name_is_free(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            first = await broker.catalog.create_stream("orders", partitions=2)
            await append(broker.replicas.find("orders", 0), b"old")
            await broker.catalog.delete_stream("orders")
            assert broker.catalog.stream("orders") is None
            with pytest.raises(UnknownStreamError):
                broker.replicas.find("orders", 0)
            with pytest.raises(UnknownStreamIdError):
                broker.replicas.find_by_id(first.id, 0)
            with pytest.raises(UnknownStreamError):
                await broker.catalog.delete_stream("orders")
            second = await broker.catalog.create_stream("orders")
            assert second.id != first.id
            assert await values_of(broker.replicas.find("orders", 0)) == []
        assert directories(tmp_path) == ["orders-0"]
        async with running(tmp_path) as broker:
            again = broker.catalog.stream("orders")
            assert again is not None
            assert again.id == second.id

    run(body)


def test_deleting_beside_a_running_read(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            partition = broker.replicas.find("orders", 0)
            await append(partition, b"a")
            lookups = [asyncio.ensure_future(partition.reads.offset_for_time(0)) for _ in range(20)]
            await asyncio.sleep(0)
            await broker.catalog.delete_stream("orders")
            found = await asyncio.gather(*lookups, return_exceptions=True)
            answered = [one.offset for one in found if isinstance(one, TimedOffset)]
            refused = [one for one in found if isinstance(one, UnknownStreamError)]
            assert len(answered) + len(refused) == 20
            assert set(answered) <= {0}

    run(body)


def test_partitions_are_added(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            await append(broker.replicas.find("orders", 0), b"kept")
            assert (await broker.catalog.create_partitions("orders", 3, validate_only=True)).partitions == 3
            with pytest.raises(UnknownStreamError):
                broker.replicas.find("orders", 2)
            await broker.catalog.create_partitions("orders", 3)
            await append(broker.replicas.find("orders", 2), b"new")
            assert broker.replicas.find("orders", 0).stream.partitions == 3
        async with running(tmp_path) as broker:
            assert await values_of(broker.replicas.find("orders", 0)) == [b"kept"]
            assert await values_of(broker.replicas.find("orders", 2)) == [b"new"]

    run(body)


def test_validate_only_changes_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", validate_only=True)
            assert broker.catalog.stream("orders") is None
            assert directories(tmp_path) == []

    run(body)


def test_one_of_many_concurrent_creations_of_a_stream_wins(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            tries = await asyncio.gather(
                *(broker.catalog.create_stream("orders") for _ in range(5)), return_exceptions=True
            )
            assert sum(isinstance(one, StreamExistsError) for one in tries) == 4

    run(body)


def test_a_creation_completes_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            asker = asyncio.ensure_future(broker.catalog.create_stream("orders"))
            await asyncio.sleep(0)
            asker.cancel()
            with pytest.raises(StreamExistsError):
                await broker.catalog.create_stream("orders")

    run(body)


def test_limits_and_names_are_enforced(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, max_partitions=20) as broker:
            with pytest.raises(InvalidStreamNameError):
                await broker.catalog.create_stream("__transaction_state")
            with pytest.raises(PolicyViolationError):
                await broker.catalog.create_stream("orders", partitions=21)
            assert (await broker.catalog.ensure_internal_stream("__ours", partitions=1, config={})).internal
        async with running(tmp_path) as broker:
            ours = broker.catalog.stream("__ours")
            assert ours is not None
            assert ours.internal

    run(body)


def test_a_missing_partition_is_told_and_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", partitions=2)
            await append(broker.replicas.find("orders", 1), b"b")
        shutil.rmtree(tmp_path / "streams" / "orders-0")
        async with running(tmp_path) as broker:
            for _ in range(2):
                with pytest.raises(StorageError, match="orders-0 is missing"):
                    broker.replicas.find("orders", 0)
            assert await values_of(broker.replicas.find("orders", 1)) == [b"b"]
            await broker.catalog.delete_stream("orders")
            await broker.catalog.create_stream("orders", partitions=2)
            await append(broker.replicas.find("orders", 0), b"new")

    run(body)


def test_a_damaged_batch_answers_an_error_and_everything_else_stays(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            for value in (b"first", b"damaged", b"third"):
                await append(broker.replicas.find("orders", 0), value)
        segment = tmp_path / "streams" / "orders-0" / "00000000000000000000.log"
        data = bytearray(segment.read_bytes())
        data[data.index(b"damaged")] ^= 1
        segment.write_bytes(data)
        async with running(tmp_path) as broker:
            partition = broker.replicas.find("orders", 0)
            assert partition.high_watermark == 3
            with pytest.raises(StorageError):
                await partition.reads.read(Offset(1), 1000)
            assert broker.counters.damaged_reads == 1
            assert await values_of(partition, 2) == [b"third"]
            await append(partition, b"fourth")
            assert await values_of(partition, 2) == [b"third", b"fourth"]

    run(body)


def test_damaged_metadata_stops_the_start_with_a_clear_error(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            await broker.catalog.create_stream("more")
        (segment,) = (tmp_path / "metadata").rglob("*.log")
        data = bytearray(segment.read_bytes())
        data[data.index(b"orders")] ^= 1
        segment.write_bytes(data)
        with pytest.raises(StorageError, match=r"cluster's log in metadata/raft is damaged.*at byte \d+"):
            await start(tmp_path)

    run(body)


def test_without_room_for_metadata_a_change_waits_and_is_made_once_there_is_some(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk, command_timeout_ms=2_000) as broker:
            disk.fill("metadata")
            with pytest.raises(OutcomeUnknownError):
                await broker.catalog.create_stream("orders")
            assert broker.catalog.stream("orders") is None
            disk.mend()
            await until(lambda: any(one.role.leads for one in broker.replicas if one.stream.name == "orders"))
            await append(broker.replicas.find("orders", 0), b"b")
        assert directories(tmp_path) == ["orders-0"]
        async with running(tmp_path) as broker:
            assert public(broker.catalog.streams()) == ["orders"]

    run(body)


def test_a_full_disk_refuses_a_new_stream_and_deleting_one_makes_room(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk) as broker:
            await broker.catalog.create_stream("old", partitions=2)
            await append(broker.replicas.find("old", 0), b"a")
            disk.fill("streams/")
            with pytest.raises(LogboomError):
                await broker.catalog.create_stream("orders")
            # Room for metadata was reserved ahead, so only the streams' own files find none.
            await broker.catalog.delete_stream("old")
            disk.mend()
            await broker.catalog.create_stream("orders")
            await append(broker.replicas.find("orders", 0), b"b")
        assert directories(tmp_path) == ["orders-0"]
        async with running(tmp_path) as broker:
            assert public(broker.catalog.streams()) == ["orders"]

    run(body)


def test_metadata_that_could_not_be_synced_is_never_seen(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        broker = await start(tmp_path, open_disk=lambda _: disk)
        disk.break_sync("metadata")
        with pytest.raises(StorageError):
            await broker.catalog.create_stream("orders")
        assert broker.catalog.stream("orders") is None
        await broker.stop()

    run(body)


def test_many_partitions_open_in_one_start(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("wide", partitions=200)
            await asyncio.gather(*(append(broker.replicas.find("wide", n), b"%d" % n) for n in range(200)))
        async with running(tmp_path) as broker:
            for n in range(200):
                assert await values_of(broker.replicas.find("wide", n)) == [b"%d" % n]

    run(body)


def test_an_unknown_id_and_an_unknown_partition_are_told_apart(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            stream = await broker.catalog.create_stream("orders")
            with pytest.raises(UnknownStreamError):
                broker.replicas.find_by_id(stream.id, 1)
            with pytest.raises(UnknownStreamIdError):
                broker.replicas.find_by_id(StreamId(UUID(int=1)), 0)
            with pytest.raises(UnknownStreamError):
                broker.replicas.find("orders", -1)

    run(body)


def test_background_work_syncs_streams_without_flush_and_writes_checkpoints(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, background_sync_interval_s=0.05, checkpoint_interval_s=1) as broker:
            await broker.catalog.create_stream("loose", config={"logboom.flush": "none"})
            partition = broker.replicas.find("loose", 0)
            await append(partition, b"a")
            while partition.log.durable_end < 1:
                await asyncio.sleep(0.01)
            assert partition.reads.read_cached(Offset(0), 100)

    run(body)


def test_the_index_of_a_log_that_nobody_reads_is_saved_by_a_checkpoint(tmp_path: Path) -> None:
    """Else a crash after weeks of writing would have recovery walk the whole segment."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            now_ms = broker.clock.wall_ms()  # of an old record the segment would end
            await broker.catalog.create_stream("orders")
            await append(broker.replicas.find("orders", 0), b"a", timestamp_ms=now_ms)
        async with running(tmp_path, checkpoint_interval_s=1) as broker:
            partition = broker.replicas.find("orders", 0)
            index = tmp_path / "streams" / "orders-0" / f"{0:020d}.index"
            size_bytes = index.stat().st_size
            for _ in range(10):
                await append(partition, bytes(5_000), timestamp_ms=now_ms)
            assert partition.log.reader.index_is_behind
            async with asyncio.timeout(WAIT_S):
                while index.stat().st_size == size_bytes:
                    await asyncio.sleep(0.05)
            assert not partition.log.reader.index_is_behind

    run(body)


def test_the_config_has_a_place_for_everything() -> None:
    config = BrokerConfig()
    assert config.stream_defaults.max_message_bytes == 1024 * 1024 + 12
    assert config.groups.offsets_partitions >= 1
