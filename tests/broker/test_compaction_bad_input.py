"""What key compaction meets in bad hands: huge keys, nothing but tombstones, a policy that goes back and forth, a map
of the least size, a directory that takes no file. Each is survived or told in a sentence, and nothing is lost."""

import asyncio
import errno
from pathlib import Path

from tests.broker.node import FaultyDisk, running
from tests.broker.node import run as run_real
from tests.broker.test_log_cleaner import SOON, compacted_stream, fill, latest, put, records_of, until
from tests.support.compaction import clean, pairs_of
from tests.support.compaction import put as put_pairs
from tests.support.logs import Reports, open_log
from tests.support.simulated import run

from logboom.sim.disk import SimDisk
from logboom.storage import Cleaned, CompactionSettings, LogConfig, PartitionLog

MAP_BYTES_MIN = 1 << 20
"""The least that broker.cleaner.key_map_bytes takes."""


def test_keys_of_a_mebibyte_are_compacted(tmp_path: Path) -> None:
    async def body() -> None:
        keys = [bytes([n]) * 1_000_000 for n in range(3)]
        async with running(tmp_path, cleaner={**SOON, "key_map_bytes": MAP_BYTES_MIN}) as broker:
            table = await compacted_stream(broker, **{"segment.bytes": "2000000"})
            for number in range(5):
                for key in keys:
                    await put(table, key, value=b"%d" % number)
            await until(lambda: broker.counters.compacted_away_records >= 10)
            assert latest(await records_of(table)) == dict.fromkeys(keys, b"4")

    run(body)


def test_a_log_of_nothing_but_tombstones_becomes_nothing() -> None:
    disk, config = SimDisk(), LogConfig(segment_bytes=200_000)
    log = open_log(disk, config)
    count, settings = 30_000, CompactionSettings(delete_retention_ms=100, map_bytes=MAP_BYTES_MIN)
    for start in range(0, count, 1000):
        put_pairs(log, *((f"key {number}", None) for number in range(start, start + 1000)))
    log.roll()
    put_pairs(log, ("last", "1"))
    assert clean_whole(log, settings, 2000).records_removed == 0
    assert len(pairs_of(log)) == count + 1
    assert clean_whole(log, settings, 3000).records_removed == count
    assert pairs_of(log) == [(count, "last", "1")]
    assert log.size_bytes < 1000
    assert log.log_start_offset == 0
    reports = Reports()
    again = open_log(disk.after_kill(), config, reports=reports)
    assert not reports.damage
    assert pairs_of(again) == [(count, "last", "1")]


def clean_whole(log: PartitionLog, settings: CompactionSettings, now_ms: int) -> Cleaned:
    """Clean until nothing is left to be cleaned; a run goes as far as its map has room."""
    while True:
        cleaned = clean(log, settings, now_ms=now_ms)
        if cleaned.is_complete:
            return cleaned


def test_a_stream_switched_back_and_forth_under_load_loses_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, cleaner={"backoff_ms": 10}, retention_check_interval_s=0.05) as broker:
            table = await compacted_stream(broker, **{"retention.ms": "100000000"})
            done = False

            async def switch() -> None:
                policies = ("delete", "compact", "compact,delete", "compact")
                while not done:
                    for policy in policies:
                        await broker.catalog.change_stream_config("table", {"cleanup.policy": policy})
                        await asyncio.sleep(0.03)

            switching = asyncio.create_task(switch())
            written: dict[bytes | None, bytes | None] = {}
            for number in range(400):
                key, value = b"key-%d" % (number % 11), None if number % 7 == 0 else b"%d " % number + bytes(900)
                await put(table, key, value=value)
                written[key] = value
                await asyncio.sleep(0.01)
            done = True
            await switching
            await until(lambda: broker.counters.compacted_away_records > 200)
            found = latest(await records_of(table))
            assert {key: value for key, value in found.items() if value is not None} == {
                key: value for key, value in written.items() if value is not None
            }
            assert table.log_end_offset == 400
            assert not broker.cleaner.state.uncleanable

    run(body)


def test_more_keys_than_the_least_map_has_room_for_are_compacted_in_several_runs(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, cleaner={**SOON, "key_map_bytes": MAP_BYTES_MIN}) as broker:
            table = await compacted_stream(broker, **{"segment.bytes": "1000000", "min.cleanable.dirty.ratio": "0.01"})
            keys = [b"%d" % number for number in range(45_000)]
            for _ in range(2):
                for start in range(0, len(keys), 2500):
                    await put(table, *keys[start : start + 2500], value=b"v")
            await put(table, b"end", value=bytes(900_000))
            await until(lambda: broker.counters.compacted_away_records == len(keys))
            assert broker.counters.compactions > 1
            assert len(await records_of(table)) == len(keys) + 1

    run(body)


def test_a_directory_that_takes_no_file_leaves_the_log_as_it_is_and_says_so(tmp_path: Path) -> None:
    async def body() -> None:
        disk = FaultyDisk(str(tmp_path))
        async with running(tmp_path, open_disk=lambda _: disk, cleaner=SOON) as broker:
            table = await compacted_stream(broker)
            disk.where, disk.open_errno = ".cleaned", errno.EACCES
            await fill(table, 10)
            await until(lambda: bool(broker.cleaner.state.uncleanable))
            assert "EACCES" in broker.cleaner.state.sentence_of(table.stream.name)
            await fill(table, 1)
            assert len(await records_of(table)) == 110
            assert broker.flusher.failure is None
        async with running(tmp_path, cleaner=SOON) as broker:
            await until(lambda: broker.counters.compacted_away_records > 0)

    run_real(body)
