"""Flipped bits in the files of a checkpoint: each is found where the file is read, and told with what to do."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.hadoop_checksums import as_spark_writes

from logboom.pipeline.checkpoint.batch_plans import BatchPlans
from logboom.pipeline.checkpoint.checked import DamagedError, checked, read_checked, with_checksum, write_checked
from logboom.pipeline.checkpoint.ledger import EMPTY, BatchLedgers
from logboom.pipeline.checkpoint.owner import claim, owner_of
from logboom.pipeline.checkpoint.spark_log import check_query_is_whole, durably_committed, offsets_of
from logboom.pipeline.checkpoint.states import StateStore
from logboom.pipeline.checkpoint.stream_identity import check_ids
from logboom.pipeline.edge.trimming import read_start
from logboom.pipeline.enrich.store import TableStore
from logboom.pipeline.plan.nodes import Plan, StreamSource
from logboom.pipeline.plan.tables import TableRef
from logboom.pipeline.registry import read_plan
from logboom.pipeline.run.carry_over import check_state_carries_over, check_state_is_whole
from logboom.pipeline.sinks.bulk.progress import DeliveredOrigins, read_progress, write_progress
from logboom.pipeline.sinks.console import ConsoleSink
from logboom.pipeline.sinks.parquet.archive import Archive
from logboom.pipeline.state.memory import Memory, ShardMemory, TransformMemory
from logboom.pipeline.state.segments import SegmentDirectory, fault_of


class Box(msgspec.Struct):
    numbers: dict[str, int]
    text: str = ""


def _flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(bytes(data))


@given(st.text(max_size=20), st.integers(0), st.integers(0, 7))
def test_a_flipped_bit_is_found_or_changes_nothing(text: str, at: int, bit: int) -> None:
    whole = Box({"a": 1_234, "b": 99}, text)
    written = bytearray(with_checksum(msgspec.json.encode(whole)))
    assert msgspec.json.decode(checked(Path("x"), bytes(written), ""), type=Box) == whole
    written[at % len(written)] ^= 1 << bit
    try:
        found = msgspec.json.decode(checked(Path("x"), bytes(written), ""), type=Box)
    except (DamagedError, msgspec.DecodeError, UnicodeDecodeError):
        return
    assert found == whole, "what is in the name of the checksum itself does no harm"


def test_the_checksum_is_a_member_of_the_object() -> None:
    begin = b'{"a":1'
    assert json.loads(with_checksum(begin + b"}")) == {"a": 1, "crc32": f"{zlib.crc32(begin):08x}"}


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_bytes(b'{"numbers":{"a":1}}')
    assert read_checked(tmp_path / "old.json", Box, "") == Box({"a": 1})
    (tmp_path / "cut.json").write_bytes(b'{"numbers":{"a":1')
    with pytest.raises(DamagedError, match=r"cut.json is damaged \(.*\): put the checkpoint back from a copy; without"):
        read_checked(tmp_path / "cut.json", Box, "remove it")


def _plan() -> Plan:
    source = StreamSource(name="web", line=1, streams=("web",))
    sink = ConsoleSink(name="out", line=1, inputs=("web",))
    return Plan(name="p", file="f", checkpoint="c", sources=(source,), transforms=(), sinks=(sink,))


def _pin(directory: Path) -> Callable[[], Any]:
    BatchPlans(directory, read_plan).pin(7, _plan(), {}, {"out": {"0": 7}})
    return lambda: BatchPlans(directory, read_plan).pinned(7)


def _entry(directory: Path) -> Callable[[], Any]:
    BatchLedgers(directory).record(batch=3, plan="x", started_at="now", duration_ms=1, ledger=EMPTY)
    return lambda: BatchLedgers(directory).last()


def _owner(directory: Path) -> Callable[[], Any]:
    claim(directory, "shop")
    return lambda: owner_of(directory, None)


def _ids(directory: Path) -> Callable[[], Any]:
    check_ids(directory / "streams.json", {"web": "abc"})
    return lambda: check_ids(directory / "streams.json", {"web": "abc"})


def _progress(directory: Path) -> Callable[[], Any]:
    write_progress(directory, DeliveredOrigins(high_water={"e web 0": 123_456}))
    return lambda: read_progress(directory)


def _start(directory: Path) -> Callable[[], Any]:
    write_checked(directory / "start.json", {"_p.e": {"0": 123_456}})
    return lambda: read_start(directory)


def _manifest(directory: Path) -> Callable[[], Any]:
    Archive(directory, "me").commit(0, [])
    return lambda: Archive(directory, "me")


@pytest.mark.parametrize("write", [_pin, _entry, _owner, _ids, _progress, _start, _manifest])
def test_each_file_that_decides_is_checked(tmp_path: Path, write: Callable[[Path], Callable[[], Any]]) -> None:
    read = write(tmp_path)
    read()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for file in files:
        kept = file.read_bytes()
        _flip(file, len(kept) // 3)
        with pytest.raises(DamagedError, match=f"{file.name} is damaged"):
            read()
        file.write_bytes(kept)
    read()


def _state(checkpoint: Path) -> Path:
    """One shard's state behind batch 4; its file."""
    directory = checkpoint / "state" / "segments" / "once"
    directory.mkdir(parents=True)
    (name,) = SegmentDirectory(directory).keep([pa.table({"hash": pa.array(range(1_000), pa.uint64())})])
    shards = (ShardMemory((name,), 0, 1_000), *[ShardMemory()] * 15)
    memory = Memory(transforms={"once": TransformMemory("by id", shards), "other": TransformMemory("by key", ())})
    (checkpoint / "state" / "memories").mkdir()
    write_checked(checkpoint / "state" / "memories" / "4.json", memory)
    for log in ("offsets", "commits"):
        (checkpoint / "router" / log).mkdir(parents=True)
        (checkpoint / "router" / log / "4").write_text("v1")
    return directory / name


def test_a_damaged_state_is_given_up_where_that_is_asked_for_alone(tmp_path: Path) -> None:
    segment = _state(tmp_path)
    check_state_is_whole(tmp_path, ())
    _flip(segment, segment.stat().st_size // 2, 5)
    told = r"checksum does not match\): .* what once remembers \(1,000 remembered, 0 events held\) with --drop-state"
    with pytest.raises(DamagedError, match=told):
        check_state_is_whole(tmp_path, ("other",))
    check_state_is_whole(tmp_path, ("once",))
    assert StateStore(tmp_path / "state").last().transforms["once"].form == "damaged, and given up: by id"
    check_state_carries_over(tmp_path, _plan(), ("once",))


def test_a_state_that_is_gone_is_told_too(tmp_path: Path) -> None:
    segment = _state(tmp_path)
    segment.unlink()
    with pytest.raises(DamagedError, match="No such file or directory"):
        check_state_is_whole(tmp_path, ())


def test_the_files_of_a_batch_that_has_to_run_again_are_looked_at(tmp_path: Path) -> None:
    segment = _state(tmp_path)
    (tmp_path / "router" / "offsets" / "5").write_text("v1")
    write_checked(tmp_path / "state" / "memories" / "5.json", Memory())
    _flip(segment, 100)
    with pytest.raises(DamagedError, match=segment.name):
        check_state_is_whole(tmp_path, ())


def test_a_damaged_list_of_a_state_is_told(tmp_path: Path) -> None:
    _state(tmp_path)
    _flip(tmp_path / "state" / "memories" / "4.json", 30)
    with pytest.raises(DamagedError, match=r"4\.json is damaged .* remove the directory state/ of the checkpoint"):
        check_state_is_whole(tmp_path, ())


def test_a_file_of_a_state_of_an_earlier_version_has_no_checksum(tmp_path: Path) -> None:
    (tmp_path / "0123.arrow").write_bytes(b"x")
    assert fault_of(tmp_path / "0123.arrow") is None


def test_a_damaged_version_of_a_table_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / "hosts.csv").write_text("hostname,team\na,shop\n")
    ref = TableRef(name="named", kind="csv", location="hosts.csv", key="hostname")
    told: list[str] = []

    def store() -> TableStore:
        return TableStore(tmp_path / "tables", tmp_path, told.append)

    versions = store().current([ref])
    (path,) = (Path(path.decode()) for path in store().paths(versions).values())
    kept = path.read_bytes()
    _flip(path, len(kept) // 2)
    assert store().missing(versions) == [ref.id]
    assert store().current([ref]) == versions
    assert path.read_bytes() == kept


def _query(path: Path) -> Path:
    """A query that has committed batch 1, of two."""
    as_spark_writes(path / "metadata", b'{"id":"e3c3f6e8"}')
    as_spark_writes(path / "sources" / "web" / "0", b'v1\n{"web":{"0":0}}')
    settings = b'{"batchWatermarkMs":0,"conf":{"padding":"' + b"x" * 700 + b'"}}'
    for number in range(3):
        as_spark_writes(path / "offsets" / str(number), b'v2\n%s\nweb:{"web":{"0":%d}}' % (settings, 7 * number))
    for number in range(2):
        as_spark_writes(path / "commits" / str(number), b'v1\n{"nextBatchWatermarkMs":0}')
    return path


@pytest.mark.parametrize("name", ["metadata", "sources/web/0", "offsets/1", "offsets/2", "commits/1"])
@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_a_file_of_sparks_is_found_at_the_start(tmp_path: Path, name: str, bit: int) -> None:
    query = _query(tmp_path / "router")
    check_query_is_whole(query)
    damaged = query / name
    _flip(damaged, damaged.stat().st_size - 3, bit)
    with pytest.raises(DamagedError, match=rf"{name} is damaged \(it does not match the checksums in \.\d?\w*\.crc\)"):
        check_query_is_whole(query)


def test_offsets_that_are_damaged_are_never_used(tmp_path: Path) -> None:
    query = _query(tmp_path / "router")
    assert offsets_of(query, 2) == {"web": {0: 14}}
    _flip(query / "offsets" / "2", (query / "offsets" / "2").stat().st_size - 4)  # 14 becomes 04 or the like
    with pytest.raises(DamagedError, match="remove the files of this number and of higher ones"):
        offsets_of(query, 2)
    assert durably_committed(query) == {"web": {0: 7}}, "the batch before is whole"
    sink = _query(tmp_path / "deliveries" / "archive" / "query")
    _flip(sink / "offsets" / "1", 700)
    with pytest.raises(DamagedError, match="remove the sink's directory below deliveries/"):
        durably_committed(sink)


def test_damaged_checksums_are_told_and_missing_ones_are_not_missed(tmp_path: Path) -> None:
    query = _query(tmp_path / "router")
    sums = query / "offsets" / ".2.crc"
    _flip(sums, 1)
    with pytest.raises(DamagedError, match=r"\.2\.crc is damaged \(it holds no checksums\): .* if 2 is intact"):
        check_query_is_whole(query)
    sums.unlink()
    check_query_is_whole(query)
    assert offsets_of(query, 2) == {"web": {0: 14}}


@pytest.mark.parametrize("left", [0, 3, 7])
def test_checksums_that_a_power_failure_cut_off_before_the_first_are_not_missed(tmp_path: Path, left: int) -> None:
    """Spark syncs neither a file nor its checksums, and Hadoop reads a file whose checksums have no whole head."""
    query = _query(tmp_path / "router")
    for sums in query.rglob(".*.crc"):
        sums.write_bytes(sums.read_bytes()[:left])
    check_query_is_whole(query)
    assert offsets_of(query, 2) == {"web": {0: 14}}
    assert durably_committed(query) == {"web": {0: 7}}
    (query / "offsets" / "2").write_bytes(b"")
    with pytest.raises(DamagedError, match=r"2 is damaged \(it is empty\): .* remove the files of this number"):
        check_query_is_whole(query)
