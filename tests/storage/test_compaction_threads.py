"""A log that is cleaned while others append to it and read from it, on a real disk with few open files."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from random import Random
from threading import Event

import pytest
from tests.support.compaction import Pair, Table, clean, pairs_batch, pairs_of
from tests.support.logs import Reports, append
from tests.support.waiting import WAIT_S

from logboom.base.ids import Offset
from logboom.host.disk import OsDisk
from logboom.records import iter_batches, iter_records
from logboom.storage import CompactionSettings, LogConfig, OpenFiles, PartitionLog
from logboom.storage.segment import Segment

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=300, recovery_point_bytes=1000, preallocate_bytes=0)
SETTINGS = CompactionSettings(delete_retention_ms=0)
BATCHES = 300
READERS = 2


def test_a_search_that_meets_a_segment_which_has_just_gone_finds_the_one_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = PartitionLog.open(OsDisk(tmp_path), "web-0", CONFIG, now_ms=1000, report=Reports())
    for number in range(60):
        append(log, pairs_batch([(f"key {number % 5}", "x" * 40)]))
        log.flush(sync=True)
    retire, found = Segment.retire, []

    def retire_and_search(segment: Segment) -> None:
        retire(segment)
        found.append(log.reader.offset_for_time(1, ceiling=log.log_end_offset))

    monkeypatch.setattr(Segment, "retire", retire_and_search)
    clean(log, SETTINGS, now_ms=1 << 50)
    assert found
    log.close()


def test_readers_and_writers_go_on_beside_a_cleaning(tmp_path: Path) -> None:
    reports, table, ended = Reports(), Table(), Event()
    log = PartitionLog.open(
        OsDisk(tmp_path), "web-0", CONFIG, now_ms=1000, report=reports, open_files=OpenFiles(limit=3)
    )
    with ThreadPoolExecutor(1) as flusher, ThreadPoolExecutor(READERS + 1) as others:

        def on_flusher(function: Callable[[], object]) -> None:
            flusher.submit(function).result(timeout=WAIT_S)

        readers = [others.submit(read_until, log, table, ended, seed) for seed in range(READERS)]
        cleaner = others.submit(clean_until, log, ended, on_flusher)
        random = Random(7)
        try:
            for _ in range(BATCHES):
                pairs: list[Pair] = [
                    (f"key {random.randrange(20)}", random.choice((None, "x" * random.randrange(80))))
                    for _ in range(random.randrange(1, 5))
                ]
                table.put(log.log_end_offset, pairs)
                append(log, pairs_batch(pairs))
                on_flusher(lambda: log.flush(sync=False))
        finally:
            ended.set()
        reads = sum(reader.result(timeout=WAIT_S) for reader in readers)
        swaps = cleaner.result(timeout=WAIT_S)
    assert not reports.damage, reports.damage
    assert swaps > 3
    assert reads > READERS
    table.hold(log)
    assert len(pairs_of(log)) < len(table.appended) / 2
    log.close()


def read_until(log: PartitionLog, table: Table, ended: Event, seed: int) -> int:
    """Read from random places on; each read gives whole batches, one behind the other, of what was written there."""
    random, reads = Random(seed), 0
    while not ended.is_set():
        end = log.written_end
        if not end:
            continue
        start = Offset(random.randrange(end))
        data = log.reader.read(start, random.choice((1, 500, 5000)), ceiling=end)
        if not data:
            continue  # a gap reaches above what was the end when this read began
        batches = list(iter_batches(data))
        assert batches[0][1].base_offset <= start < batches[0][1].next_offset
        assert all(before.next_offset == after.base_offset for (_, before), (_, after) in pairwise(batches))
        for at, header in batches:
            for record in iter_records(data, at, header, 1 << 20):
                key, value = table.appended[record.offset]
                assert (record.key, record.value) == (key.encode(), None if value is None else value.encode())
        found = log.reader.offset_for_time(1000, ceiling=end)
        assert found is None or found.offset < end
        reads += 1
    return reads


def clean_until(log: PartitionLog, ended: Event, on_flusher: Callable[[Callable[[], object]], None]) -> int:
    """Clean again and again; how many swaps there were."""
    swaps = 0
    while not ended.is_set():
        cleaning = log.compaction.begin(SETTINGS, now_ms=1 << 50, stable_end=log.durable_end)
        while (swap := cleaning.write_next(lambda size_bytes: None, lambda: False)) is not None:
            on_flusher(swap)
            swaps += 1
        on_flusher(cleaning.finish)
        cleaning.abandon()
    return swaps
