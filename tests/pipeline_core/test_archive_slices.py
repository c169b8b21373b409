"""What a replay reads of an archive, in slices: each event in one of them, in the order of origins, within the room."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.run import archive_slices
from logboom.pipeline.run.archive_slices import ArchivePart, Origin, Slice, Survey, cut
from logboom.pipeline.sinks.parquet.reading import ArchiveReader

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
RUN = 10
"""Offsets that go together here."""


@pytest.fixture(autouse=True)
def _short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_slices, "RUN_OFFSETS", RUN)


def _event(stream: str | None, partition: int, offset: int, seen_s: float | None) -> dict[str, Any]:
    seen = None if seen_s is None else NOON + timedelta(seconds=seen_s)
    place = {"stream": stream, "partition": partition, "offset": offset, "observed_time": seen}
    return place | {"event_id": f"{stream}:{partition}:{offset}", "body": "x" * 100}


def _archived(root: Path, files: list[list[dict[str, Any]]]) -> ArchivePart:
    for number, events in enumerate(files):
        pq.write_table(pa.Table.from_pylist(events, schema=LIVE_SCHEMA), root / f"{number}.parquet")
    reader = ArchiveReader(str(root))
    return ArchivePart(reader, tuple(reader.files()), 0, 1 << 42, (), {})


def _slices(part: ArchivePart, room_bytes: int) -> list[Slice]:
    numbers = pa.RecordBatch.from_pydict({"id": range(len(part.files))})
    found = list(Survey(part)([numbers]))
    return cut(pa.Table.from_batches(found), room_bytes) if found else []


def _loaded(part: ArchivePart, slices: list[Slice]) -> list[list[dict[str, Any]]]:
    """The events of each slice, read as a load reads them: behind the slice before, in files that it names."""
    loaded, begin = [], dict[Origin, int]()
    for one in slices:
        behind = replace(part, begin=dict(begin))
        batches = [events for file in sorted(one.files) for events in behind.events(file, one.upto)]
        loaded.append([event for events in batches for event in events.to_pylist()])
        begin |= one.upto
    return loaded


@pytest.mark.parametrize("seed", range(5))
def test_each_event_is_in_one_slice_and_origins_keep_their_order(tmp_path: Path, seed: int) -> None:
    """Files have events of any origins and times, some of them without a time, and clocks that go back."""
    chance = random.Random(seed)
    files: list[list[dict[str, Any]]] = [[] for _ in range(7)]
    for stream, partition in (("web", 0), ("web", 1), ("api", 0), (None, 0)):
        for offset in range(chance.randrange(1, 400)):
            seen = None if chance.random() < 0.01 else offset + chance.uniform(-30, 30)
            chance.choice(files).append(_event(stream, partition, offset, seen))
    part = _archived(tmp_path, files)
    slices = _slices(part, 20_000)
    loaded = _loaded(part, slices)
    wanted = Counter(each["event_id"] for events in files for each in events if each["observed_time"] is not None)
    assert Counter(each["event_id"] for events in loaded for each in events) == wanted
    assert [len(events) for events in loaded] == [one.events for one in slices]
    assert len(slices) > 1
    assert all(one.size_bytes <= 20_000 for one in slices)
    reached: dict[Any, int] = {}
    for events in loaded:
        for each in events:
            assert each["offset"] > reached.get((each["stream"], each["partition"]), -1)
        for each in events:
            origin = each["stream"], each["partition"]
            reached[origin] = max(reached.get(origin, -1), each["offset"])


def test_slices_go_by_time_over_all_origins(tmp_path: Path) -> None:
    events = [_event(stream, 0, offset, offset) for stream in ("a", "b", "c") for offset in range(100)]
    part = _archived(tmp_path, [events])
    (size,) = {one.size_bytes for one in _slices(part, 1)[:1]}
    loaded = _loaded(part, _slices(part, 4 * size))
    assert all(len({each["stream"] for each in events}) > 1 for events in loaded)
    for before, behind in itertools.pairwise(loaded):
        assert max(each["offset"] for each in before) - min(each["offset"] for each in behind) < 2 * RUN


def test_a_run_that_is_larger_than_the_room_is_a_slice_of_its_own(tmp_path: Path) -> None:
    part = _archived(tmp_path, [[_event("web", 0, offset, offset) for offset in range(3 * RUN)]])
    assert [one.events for one in _slices(part, 1)] == [RUN, RUN, RUN]


def test_a_load_goes_on_behind_what_was_loaded(tmp_path: Path) -> None:
    part = _archived(tmp_path, [[_event("web", 0, offset, offset) for offset in range(50)]])
    left = replace(part, begin={Origin("web", 0): 20})
    assert sum(one.events for one in _slices(left, 1 << 30)) == 30
    assert [one.files for one in _slices(left, 1 << 30)] == [{0}]


@pytest.mark.parametrize("room_bytes", [1, 1 << 30])
def test_nothing_from_a_seam_on_is_loaded(tmp_path: Path, room_bytes: int) -> None:
    """Within a run of offsets too; an origin of which the log has all gives nothing."""
    events = [_event("web", partition, offset, offset) for offset in range(50) for partition in (0, 1, 2)]
    part = replace(_archived(tmp_path, [events]), end={Origin("web", 0): 23, Origin("web", 1): 40})
    loaded = [(one["partition"], one["offset"]) for some in _loaded(part, _slices(part, room_bytes)) for one in some]
    wanted = [(0, offset) for offset in range(23)] + [(1, offset) for offset in range(40)]
    assert sorted(loaded) == wanted


def test_an_archive_without_such_events_has_no_slice(tmp_path: Path) -> None:
    part = replace(_archived(tmp_path, [[_event("web", 0, 1, 1)]]), ids=("another",))
    assert _slices(part, 1) == []
