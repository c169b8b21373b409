"""What is removed is what the metadata explains; everything else in the data directory stays and is named."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.broker.node import append, run, running, start, values_of

from logboom.base.errors import StorageError
from logboom.base.ids import PartitionIndex, StreamId, StreamName
from logboom.broker.broker import Broker
from logboom.broker.disk.ownership import Mark, is_damaged, read_mark, write_mark
from logboom.sim.disk import SimDisk


def said(broker: Broker) -> str:
    logger: Any = broker.log
    return "\n".join(str(call) for call in logger._logger.calls)


def names(path: Path) -> set[str]:
    return {entry.name for entry in (path / "streams").iterdir() if not entry.name.startswith("__")}


def test_leftovers_of_a_creation_that_crashed_are_removed(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
        shutil.copytree(tmp_path / "metadata", tmp_path / "before")
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("never", partitions=2)
        shutil.rmtree(tmp_path / "metadata")
        (tmp_path / "before").rename(tmp_path / "metadata")
        (tmp_path / "streams" / "never-1" / "notes.txt").write_text("somebody was here")
        async with running(tmp_path) as broker:
            assert names(tmp_path) == {"orders-0", "never-1"}
            assert "never-1" in said(broker)

    run(body)


def test_an_empty_partition_whose_mark_was_lost_with_the_power_is_removed(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", partitions=2)
            await append(broker.replicas.find("orders", 1), b"a")
        streams = tmp_path / "streams"
        for name in ("never-0", "never-1", "kept-0"):
            shutil.copytree(streams / "orders-0", streams / name)
            (streams / name / "owner.json").write_bytes(b"")
        (streams / "orders-0" / "owner.json").write_bytes(b"")
        for path in (streams / "never-1").iterdir():
            path.unlink()
        (streams / "kept-0" / "leader-epochs").write_bytes(b"")  # it has had records
        (streams / "more-0").write_text("no directory")
        async with running(tmp_path) as broker:
            assert names(tmp_path) == {"orders-0", "orders-1", "kept-0", "more-0"}
            await append(broker.replicas.find("orders", 0), b"a")
            assert "orders" in (streams / "orders-0" / "owner.json").read_text()

    run(body)


def test_leftovers_of_a_deletion_that_crashed_are_removed_and_copies_are_kept(tmp_path: Path) -> None:
    async def body() -> None:
        streams = tmp_path / "streams"
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            gone = await broker.catalog.create_stream("gone", partitions=3)
            for index in range(3):
                await append(broker.replicas.find("gone", index), b"a")
        for index in range(3):
            shutil.copytree(streams / f"gone-{index}", tmp_path / f"copy-{index}")
        shutil.copytree(streams / "gone-0", streams / "gone-0.bak")
        async with running(tmp_path) as broker:
            await broker.catalog.delete_stream("gone")
        (tmp_path / "copy-0").rename(streams / "gone-0")
        (tmp_path / "copy-1").rename(streams / f"{gone.id.hex}-1.deleted")
        (tmp_path / "copy-2").rename(streams / f"{gone.id.hex}-2.deleted")
        (streams / f"{gone.id.hex}-2.deleted" / "owner.json").unlink()
        async with running(tmp_path) as broker:
            assert names(tmp_path) == {"orders-0", "gone-0.bak"}
            assert "gone-0.bak" in said(broker)

    run(body)


def test_unknown_files_and_directories_are_left_and_logged(tmp_path: Path) -> None:
    async def body() -> None:
        streams = tmp_path / "streams"
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            await append(broker.replicas.find("orders", 0), b"a")
        unknown = ["orders-0.bak", "orders-7", "0" * 32 + "-0.deleted", "other.deleted"]
        for name in unknown:
            shutil.copytree(streams / "orders-0", streams / name)
        (streams / "orders-7" / "owner.json").write_bytes(b"{")
        (streams / "notes.txt").write_text("mine")
        (tmp_path / "todo.txt").write_text("mine")
        inside = streams / "orders-0"
        for name in ("notes.tmp", "5.log", "5.producers", "99999999999999999999.log"):
            (inside / name).write_text("mine")
        (inside / "durable-end.tmp").write_text("cut off")
        before = names(tmp_path)
        for _ in range(2):
            async with running(tmp_path) as broker:
                assert names(tmp_path) == before
                assert await values_of(broker.replicas.find("orders", 0)) == [b"a"]
                for name in (*unknown, "notes.txt", "todo.txt", "notes.tmp", "5.log", "99999999999999999999.log"):
                    assert name in said(broker)
        assert (inside / "notes.tmp").read_text() == "mine"
        assert not (inside / "durable-end.tmp").exists()

    run(body)


def test_a_new_stream_moves_an_unknown_directory_aside(tmp_path: Path) -> None:
    async def body() -> None:
        streams = tmp_path / "streams"
        long_name = "n" * 249
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
            await append(broker.replicas.find("orders", 0), b"a")
            shutil.copytree(streams / "orders-0", streams / "new-0")
            (streams / "new-1").write_text("a file")
            (streams / f"{long_name}-0").mkdir()
            await broker.catalog.create_stream("new", partitions=2)
            await broker.catalog.create_stream(long_name)
            await append(broker.replicas.find("new", 0), b"b")
            assert await values_of(broker.replicas.find("new", 0)) == [b"b"]
            assert "moved aside" in said(broker)
        aside = {name.split("-0.set-aside-")[0] for name in names(tmp_path) if "-0.set-aside-" in name}
        assert aside == {"new", long_name[:180]}
        (moved,) = streams.glob("new-0.set-aside-*")
        assert (moved / "00000000000000000000.log").stat().st_size > 60
        (moved,) = streams.glob("new-1.set-aside-*")
        assert moved.read_text() == "a file"
        async with running(tmp_path) as broker:
            assert await values_of(broker.replicas.find("new", 0)) == [b"b"]

    run(body)


def test_a_directory_of_another_partition_is_refused(tmp_path: Path) -> None:
    async def body() -> None:
        streams = tmp_path / "streams"
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", partitions=2)
            await append(broker.replicas.find("orders", 0), b"a")
        (streams / "orders-0").rename(tmp_path / "swap")
        (streams / "orders-1").rename(streams / "orders-0")
        (tmp_path / "swap").rename(streams / "orders-1")
        async with running(tmp_path) as broker:
            with pytest.raises(StorageError, match="holds orders-1"):
                broker.replicas.find("orders", 0)
        (streams / "orders-0").rename(tmp_path / "swap")
        (streams / "orders-1").rename(streams / "orders-0")
        (tmp_path / "swap").rename(streams / "orders-1")
        async with running(tmp_path) as broker:
            assert await values_of(broker.replicas.find("orders", 0)) == [b"a"]

    run(body)


def test_a_partition_without_a_mark_gets_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
        mark = tmp_path / "streams" / "orders-0" / "owner.json"
        written = mark.read_bytes()
        for damaged in (None, b"", b"{", b'{"stream": 1}', b'{"stream": "a", "id": 5, "partition": 0}', b"[]", b"\xff"):
            mark.unlink() if damaged is None else mark.write_bytes(damaged)
            async with running(tmp_path) as broker:
                assert mark.read_bytes() == written
                assert "rewritten" in said(broker)

    run(body)


def test_a_mark_that_is_right_is_left_alone(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
        mark = tmp_path / "streams" / "orders-0" / "owner.json"
        written = mark.stat()
        async with running(tmp_path) as broker:
            assert "rewritten" not in said(broker)
        assert mark.stat().st_ino == written.st_ino

    run(body)


def test_any_bit_that_flips_in_a_mark_is_mended() -> None:
    disk, mark = SimDisk(), Mark(StreamName("orders"), StreamId(uuid4()), PartitionIndex(0))
    disk.make_dirs(["streams/orders-0"])
    write_mark(disk, "streams/orders-0", mark)
    data = disk.nodes["streams/orders-0/owner.json"].data
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        assert read_mark(disk, "streams/orders-0") in {None, mark}, bit
        data[bit // 8] ^= 1 << bit % 8
    assert read_mark(disk, "streams/orders-0") == mark


def test_a_mark_without_a_checksum_is_damaged_where_it_can_be_nobody_elses() -> None:
    mark = Mark(StreamName("orders"), StreamId(UUID("5f3e0a9c-1d2b-4c6e-8f70-123456789abc")), PartitionIndex(0))
    flipped = replace(mark, id=StreamId(UUID("5f3e0a9c-1d2b-4c6e-8f70-123456789abd")))
    assert is_damaged(flipped, mark)
    assert is_damaged(replace(mark, stream=StreamName("ordess")), mark)
    assert not is_damaged(replace(mark, index=PartitionIndex(1)), mark)
    assert not is_damaged(replace(flipped, stream=StreamName("other")), mark)
    assert not is_damaged(replace(mark, id=StreamId(uuid4())), mark)


@pytest.mark.parametrize("lost", ["metadata", "metadata/raft"])
def test_metadata_that_are_lost_stop_the_start_even_if_there_are_no_streams(tmp_path: Path, lost: str) -> None:
    """The directory id says that this member has voted: it would vote again, or found a second cluster of that name."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.groups.loaded()
        shutil.rmtree(tmp_path / lost)
        for directory in (tmp_path / "streams").iterdir():
            shutil.rmtree(directory)
        with pytest.raises(StorageError, match="the metadata is missing"):
            await start(tmp_path)
        assert names(tmp_path) == set()

    run(body)


@pytest.mark.parametrize("marked", [True, False])
def test_streams_without_metadata_stop_the_start(tmp_path: Path, marked: bool) -> None:
    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders")
        if not marked:
            (tmp_path / "streams" / "orders-0" / "owner.json").unlink()
        else:
            (tmp_path / "streams" / "orders-0" / "00000000000000000000.log").write_bytes(b"x")
        shutil.rmtree(tmp_path / "metadata")
        with pytest.raises(StorageError, match="the metadata is missing"):
            await start(tmp_path)
        assert "orders-0" in names(tmp_path)

    run(body)
