"""The archive: each event once, whatever is repeated or cut short, and no moment in which a reader counts wrongly."""

import contextlib
import errno
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.support import fill_disk

from logboom.pipeline.sinks.parquet import ParquetSink
from logboom.pipeline.sinks.parquet import archive as archive_module
from logboom.pipeline.sinks.parquet import compaction as compaction_module
from logboom.pipeline.sinks.parquet.archive import Archive
from logboom.pipeline.sinks.parquet.compaction import Compactor
from logboom.pipeline.sinks.parquet.partitioning import NO_VALUE
from logboom.pipeline.sinks.parquet.staging import ArchiveWriter, Report

SINK = ParquetSink(name="archive", line=1, inputs=("e",), path="archive")
EDGE = "_p.e"
PAGE_BYTES = 4_096


def _event(offset: int, *, partition: int = 0, **more: object) -> bytes:
    event = {
        "attributes": {"n": offset},
        "time": "2026-11-20T12:30:00.25Z",
        "event_id": f"web-{partition}-{offset}",
        "source": "web",
        "stream": "web",
        "partition": partition,
        "offset": offset,
        "body": f"line {offset}",
        **more,
    }
    return json.dumps(event).encode()


def _batch(values: list[bytes], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([EDGE] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "key": pa.array(keys or [None] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )


def _deliver(archive: Archive, number: int, *batches: pa.RecordBatch, sink: ParquetSink = SINK) -> Report:
    report = _staged(archive, number, *batches, sink=sink)
    archive.commit(number, [report])
    return report


def _staged(archive: Archive, number: int, *batches: pa.RecordBatch, sink: ParquetSink = SINK) -> Report:
    writer = ArchiveWriter(
        sink=sink,
        root=str(archive.root),
        staging=archive.staging_for(number),
        label=f"x-{number}",
        high_water=archive.state.high_water,
        retried=archive.state.retried,
    )
    (told,) = writer(list(batches))
    return msgspec.json.decode(told.column("report")[0].as_py(), type=Report)


def _ids(root: Path) -> Counter[str]:
    return Counter(pq.read_table(root, columns=["event_id"]).column("event_id").to_pylist())


def test_events_are_read_back_whole(tmp_path: Path) -> None:
    _deliver(Archive(tmp_path, "me"), 0, _batch([_event(0, severity_number=9, weight=10.0, host="web-1")]))
    (row,) = pq.read_table(tmp_path).to_pylist()
    assert row["attributes"] == '{"n": 0}'
    assert row["time"].isoformat() == "2026-11-20T12:30:00.250000+00:00"
    assert (row["severity_number"], row["weight"], row["host"], row["trace_id"]) == (9, 10.0, "web-1", None)
    assert (str(row["date"]), int(row["hour"])) == ("2026-11-20", 12)


def test_each_hour_has_a_directory(tmp_path: Path) -> None:
    events = [_event(0), _event(1, time="2026-11-20T13:00:00Z"), _event(2, time=None, observed_time=None)]
    _deliver(Archive(tmp_path, "me"), 0, _batch(events))
    found = sorted(str(path.parent.relative_to(tmp_path)) for path in tmp_path.glob("date=*/*/*.parquet"))
    assert found == [
        "date=2026-11-20/hour=12",
        "date=2026-11-20/hour=13",
        f"date={NO_VALUE}/hour={NO_VALUE}",
    ]


def test_a_directory_by_service_keeps_odd_names_apart(tmp_path: Path) -> None:
    sink = msgspec.structs.replace(SINK, partition_by=("service",))
    events = [_event(0, service="a/b"), _event(1, service="a b"), _event(2)]
    _deliver(Archive(tmp_path, "me"), 0, _batch(events), sink=sink)
    found = pq.read_table(tmp_path).to_pylist()
    assert {(row["event_id"], row["service"]) for row in found} == {
        ("web-0-0", "a/b"),
        ("web-0-1", "a b"),
        ("web-0-2", None),
    }


def test_a_value_that_is_too_long_for_a_directory_is_cut_and_stays_apart_from_others(tmp_path: Path) -> None:
    sink = msgspec.structs.replace(SINK, partition_by=("service",))
    events = [_event(0, service="é" * 5_000), _event(1, service="é" * 5_001), _event(2, service="é" * 5_000)]
    _deliver(Archive(tmp_path, "me"), 0, _batch(events), sink=sink)
    assert _ids(tmp_path) == Counter({f"web-0-{offset}": 1 for offset in range(3)})
    assert len(list(tmp_path.glob("service=*"))) == 2


def test_what_the_router_wrote_twice_is_archived_once(tmp_path: Path) -> None:
    archive = Archive(tmp_path, "me")
    first = _deliver(archive, 0, _batch([_event(0), _event(1), _event(0), _event(1), _event(2)]))
    assert (first.rows, first.repeats) == (3, 2)
    second = _deliver(archive, 1, _batch([_event(1), _event(2), _event(5)]))
    assert (second.rows, second.repeats) == (1, 2)
    assert _ids(tmp_path) == Counter({f"web-0-{offset}": 1 for offset in (0, 1, 2, 5)})


def test_partitions_of_origin_do_not_hide_each_other(tmp_path: Path) -> None:
    events = [_event(7), _event(3, partition=1), _event(8), _event(4, partition=1)]
    assert _deliver(Archive(tmp_path, "me"), 0, _batch(events)).rows == 4


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_repeated_prefixes_leave_each_event_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A batch of the router is a run of offsets; each broken attempt wrote a prefix of it before the whole one."""
    root = tmp_path_factory.mktemp("archive")
    written: list[int] = []
    end = 0
    for _ in range(data.draw(st.integers(1, 4))):
        run = list(range(end, end + data.draw(st.integers(1, 6))))
        for cut in data.draw(st.lists(st.integers(0, len(run)), max_size=2)):
            written += run[:cut]
        written += run
        end = run[-1] + 1
    archive = Archive(root, "me")
    number = 0
    while written:
        size = data.draw(st.integers(1, len(written)))
        _deliver(archive, number, _batch([_event(offset) for offset in written[:size]]))
        written, number = written[size:], number + 1
        if data.draw(st.booleans()):
            archive = Archive(root, "me")
    assert _ids(root) == Counter({f"web-0-{offset}": 1 for offset in range(end)})
    shutil.rmtree(root)


def test_a_retried_dead_letter_is_archived_once_though_its_offset_is_old(tmp_path: Path) -> None:
    archive = Archive(tmp_path, "me")
    _deliver(archive, 0, _batch([_event(9)]))
    again = _batch([_event(4), _event(4)], [b"retry:p.dead.archive/0/0", b"retry:p.dead.archive/0/0"])
    assert _deliver(archive, 1, again).rows == 1
    assert _deliver(archive, 2, again).rows == 0
    assert _ids(tmp_path) == Counter({"web-0-9": 1, "web-0-4": 1})


def test_a_value_that_is_not_an_event_is_reported_and_affects_no_other(tmp_path: Path) -> None:
    report = _deliver(Archive(tmp_path, "me"), 0, _batch([_event(0), b"rubbish", _event(1)]))
    assert report.rows == 2
    (unreadable,) = report.unreadable
    assert (unreadable.stream, unreadable.offset, unreadable.value) == (EDGE, 1, b"rubbish")


def test_staged_files_are_no_part_of_the_archive(tmp_path: Path) -> None:
    archive = Archive(tmp_path, "me")
    _staged(archive, 0, _batch([_event(0)]))
    assert not list(tmp_path.rglob("*.parquet"))
    assert Archive(tmp_path, "me").state.batch == -1
    assert not list(tmp_path.rglob("*.staged"))


class CrashError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("at", range(12))
def test_a_commit_cut_short_anywhere_is_finished_or_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    archive = Archive(tmp_path, "me")
    _deliver(archive, 0, _batch([_event(0)]))
    events = [_event(1), _event(2, time="2026-11-20T13:00:00Z"), _event(3, time="2026-11-20T14:00:00Z")]
    steps = iter(range(1_000))

    def crashing(real: object) -> object:
        def step(*arguments: object, **named: object) -> object:
            if next(steps) == at:
                raise CrashError
            return real(*arguments, **named)  # type: ignore[operator]

        return step

    report = _staged(archive, 1, _batch(events))
    with monkeypatch.context() as patched:
        for name in ("write_checked", "sync_dir", "make_dir", "keep_last"):
            patched.setattr(archive_module, name, crashing(getattr(archive_module, name)))
        patched.setattr(Path, "rename", crashing(Path.rename))
        with contextlib.suppress(CrashError):
            archive.commit(1, [report])
    again = Archive(tmp_path, "me")
    if again.state.batch < 1:
        assert _ids(tmp_path) == Counter({"web-0-0": 1})
        _deliver(again, 1, _batch(events))
    assert _ids(tmp_path) == Counter({f"web-0-{offset}": 1 for offset in range(4)})


def _delivered(archive: Archive, number: int, *batches: pa.RecordBatch) -> bool:
    """As the delivery does it; False where the attempt failed and is to be made again."""
    try:
        archive.settle()
        if number <= archive.state.batch:
            return True
        archive.commit(number, [_staged(archive, number, *batches)])
    except OSError:
        return False
    return True


def _refusing(patched: pytest.MonkeyPatch, at: int, *, is_done: bool) -> None:
    """Lets the step `at` fail, and those behind it too until the attempt ends; `is_done`: it was carried out first."""
    steps = iter(range(1_000))

    def step_of(real: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **named: object) -> object:
            number = next(steps)
            done = real(*arguments, **named) if number < at or (number == at and is_done) else None
            if number >= at:
                raise OSError(errno.ENOSPC, "No space left on device")
            return done

        return step

    for name in ("write_checked", "sync_dir", "make_dir", "keep_last"):
        patched.setattr(archive_module, name, step_of(getattr(archive_module, name)))
    patched.setattr(Path, "rename", step_of(Path.rename))


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("at", range(14))
def test_a_disk_that_fails_anywhere_in_a_commit_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, is_done: bool, is_killed: bool
) -> None:
    """The attempt is made again in the same process, or that is killed while the tasks of the next attempt write."""
    archive = Archive(tmp_path, "me")
    _deliver(archive, 0, _batch([_event(0)]))
    hours = [_event(1), _event(2, time="2026-11-20T13:00:00Z"), _event(3, time="2026-11-20T14:00:00Z")]
    with monkeypatch.context() as patched:
        _refusing(patched, at, is_done=is_done)
        _delivered(archive, 1, _batch(hours))
    if is_killed and archive.state.batch < 1:
        _staged(archive, 1, _batch(hours))
        archive = Archive(tmp_path, "me")
    assert _delivered(archive, 1, _batch(hours))
    assert _delivered(archive, 2, _batch([_event(4)]))
    Archive(tmp_path, "me")
    assert _ids(tmp_path) == Counter({f"web-0-{offset}": 1 for offset in range(5)})


def _hours(root: Path) -> list[int]:
    return sorted(len(list(path.glob("*.parquet"))) for path in root.glob("date=*/hour=*"))


def _filled(root: Path) -> Archive:
    archive = Archive(root, "me")
    for number in range(4):
        late = _event(number, partition=1, time="2026-11-20T13:00:00Z")
        _deliver(archive, number, _batch([_event(number), late]))
    return archive


@pytest.mark.parametrize("services", [1, 7])
def test_a_disk_that_is_full_in_any_step_loses_and_repeats_nothing(small_disk: Path, services: int) -> None:
    """Each batch meets a disk with a little more room than the last, until one is taken."""
    chance, root, filler = random.Random(7), small_disk / "archive", small_disk / "filler"
    sink = msgspec.structs.replace(SINK, partition_by=("service",))
    failed, taken, offset = 0, 0, 0
    while not taken:
        archive = Archive(root, "me")
        number = archive.state.batch + 1
        events = [
            _event(offset + at, service=f"s{at % services}", body=chance.randbytes(300).hex()) for at in range(services)
        ]
        fill_disk(filler, but_bytes=failed * services * PAGE_BYTES)
        try:
            _deliver(archive, number, _batch(events), sink=sink)
            taken += 1
        except OSError:
            failed += 1
        filler.unlink()
        if failed % 2:  # by the same process, or by one that starts anew
            archive = Archive(root, "me")
        archive.settle()
        if archive.state.batch < number:
            _deliver(archive, number, _batch(events), sink=sink)
        offset += services
        assert _ids(root) == Counter({f"web-0-{at}": 1 for at in range(offset)})
    assert failed
    assert not list(root.rglob("*.staged"))


def test_small_files_of_finished_hours_become_one(tmp_path: Path) -> None:
    _filled(tmp_path)
    compactor = Compactor(tmp_path, target_bytes=1 << 20, compression="zstd")
    assert compactor.run() == 0, "a file came to these directories a moment ago"
    before = _ids(tmp_path)
    assert compactor.run(quiet_s=-1, directories_max=9) == 2
    assert _hours(tmp_path) == [1, 1]
    assert _ids(tmp_path) == before
    assert compactor.run(quiet_s=-1, directories_max=9) == 0


def test_merged_files_have_row_groups_as_small_as_those_that_were_merged(tmp_path: Path) -> None:
    _filled(tmp_path)
    hour = next(tmp_path.glob("date=*/hour=*"))
    first = next(hour.glob("*.parquet"))
    table = pq.ParquetFile(first).read()
    pq.write_table(pa.concat_tables([table] * 3), first, row_group_size=table.num_rows)
    groups = sum(pq.read_metadata(path).num_row_groups for path in hour.glob("*.parquet"))
    assert Compactor(tmp_path, target_bytes=1 << 20, compression="zstd").run(quiet_s=-1, directories_max=9) == 2
    (merged,) = hour.glob("*.parquet")
    assert pq.read_metadata(merged).num_row_groups == groups >= 4


def test_files_of_a_good_size_are_left_alone(tmp_path: Path) -> None:
    _filled(tmp_path)
    size = max(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    assert Compactor(tmp_path, target_bytes=size, compression="zstd").run(quiet_s=-1) == 0


@pytest.mark.parametrize("at", range(8))
def test_a_compaction_cut_short_anywhere_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    _filled(tmp_path)
    before = _ids(tmp_path)
    compactor = Compactor(tmp_path, target_bytes=1 << 20, compression="zstd")
    steps = iter(range(1_000))

    def crashing(real: object) -> object:
        def step(*arguments: object, **named: object) -> object:
            if next(steps) == at:
                raise CrashError
            return real(*arguments, **named)  # type: ignore[operator]

        return step

    with monkeypatch.context() as patched:
        for name in ("write_durably", "sync_dir", "exchange"):
            patched.setattr(compaction_module, name, crashing(getattr(compaction_module, name)))
        patched.setattr(shutil, "rmtree", crashing(shutil.rmtree))
        with contextlib.suppress(CrashError):
            compactor.run(quiet_s=-1, directories_max=1)
    assert _ids(tmp_path) == before
    Compactor(tmp_path, target_bytes=1 << 20, compression="zstd").run(quiet_s=-1, directories_max=9)
    assert _ids(tmp_path) == before
    assert _hours(tmp_path) == [1, 1]
    assert os.listdir(tmp_path / "_logboom" / "compaction") == []
