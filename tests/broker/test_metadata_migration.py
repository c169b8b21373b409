"""A data directory of a broker that was always alone becomes that of a member of a group, whatever interrupts it."""

import contextlib
import errno
from collections.abc import Sequence
from pathlib import Path
from random import Random
from uuid import UUID

import msgspec
import pytest
from tests.broker.node import append, run, running, values_of
from tests.support.disk_lives import Fault, PowerFailureError

from logboom.base.errors import StorageError
from logboom.base.ids import BrokerId, Epoch, Offset, StreamId, StreamName
from logboom.base.ports import Disk
from logboom.broker.disk.data_dir import METADATA_DIR, STREAMS_DIR
from logboom.broker.raft import OpenedGroup
from logboom.broker.raft.inspect import MemberView
from logboom.broker.raft.migration import GROUP_DIR, GROUP_FORMAT, open_member, read_old_log
from logboom.host import OsDisk
from logboom.metadata import (
    Image,
    MetadataRecord,
    StreamCreated,
    StreamDeleted,
    apply_all,
    decode_all,
    encode,
)
from logboom.metadata.records import BrokerChanged, BrokerRegistered
from logboom.raft import Voter
from logboom.records import Record, build_batch, read_header
from logboom.sim.disk import Always, SimDisk
from logboom.storage import LogConfig, PartitionLog, format_of, raise_format

NODE = Voter(BrokerId(1), UUID(int=7)).node_id
PROGRAM = "Logboom 2.0"


def created(number: int) -> StreamCreated:
    return StreamCreated(
        name=StreamName(f"s{number}"), id=StreamId(UUID(int=number)), partitions=number, config={"segment.ms": "7"}
    )


def write_old(disk: Disk, records: Sequence[MetadataRecord]) -> None:
    """What the program of format 1 wrote: a batch for each commit."""
    log = PartitionLog.open(disk, METADATA_DIR, LogConfig(), now_ms=0, report=lambda found: None)
    for record in records:
        batch = build_batch([Record(Offset(0), 0, None, encode(record), ())])
        log.append(batch, ((0, read_header(batch)),), leader_epoch=Epoch(log.epochs.latest + 1), now_ms=0)
    log.flush(sync=True)
    log.close()


def old_directory() -> tuple[SimDisk, Image]:
    disk = SimDisk()
    raise_format(disk, "Logboom 1.0", 1)
    for name in (METADATA_DIR, STREAMS_DIR):
        disk.make_dir(name)
    disk.sync_dir(".")
    records = (created(1), created(2), created(3), StreamDeleted(id=StreamId(UUID(int=2))))
    write_old(disk, records)
    disk.open(f"{STREAMS_DIR}/s1-0", create=True)
    disk.sync_dir(STREAMS_DIR)
    return disk, apply_all(Image(), records)


def opened(disk: SimDisk, *, joins: bool = False) -> OpenedGroup:
    return open_member(disk, NODE, program=PROGRAM, joins=joins, had_metadata=False, report=lambda found: None)


def image_of(member: OpenedGroup) -> Image:
    return apply_all(Image(), decode_all(member.snapshot))


def old_image(disk: SimDisk) -> Image:
    log = PartitionLog.open(disk, METADATA_DIR, LogConfig(), now_ms=0, report=lambda found: None)
    return apply_all(Image(), read_old_log(log))


def test_the_records_become_the_first_snapshot_of_a_group_of_one() -> None:
    disk, image = old_directory()
    member = opened(disk)
    assert image_of(member) == image
    assert member.stored.snapshot.conf_state.voters == (NODE,)
    assert format_of(disk) == GROUP_FORMAT
    assert disk.list(METADATA_DIR) == ["raft"]
    member.files.close()
    assert image_of(opened(disk.power_cut(Always(False)))) == image


def test_a_new_directory_gets_a_member_that_is_alone_or_one_that_waits() -> None:
    for joins in (False, True):
        disk = SimDisk()
        raise_format(disk, PROGRAM, GROUP_FORMAT)
        member = opened(disk, joins=joins)
        assert member.belongs_to_group is not joins
        assert not member.snapshot


@pytest.mark.parametrize("code", [None, errno.EIO, errno.ENOSPC], ids=["crash", "EIO", "full"])
def test_whatever_interrupts_it_nothing_is_lost(code: int | None) -> None:
    before, image = old_directory()
    happened = 0
    counting = Fault(1 << 40, code)
    counting.install(whole := before.copy())
    opened(whole)
    for at in range(counting.count):
        disk, fault = before.copy(), Fault(at, code)
        fault.install(disk)
        with contextlib.suppress(PowerFailureError, StorageError):
            opened(disk)
        if fault.happened is None:
            continue
        happened += 1
        disk.fault = lambda operation, path: None
        for seed, survivor in enumerate((disk.copy(), *(disk.power_cut(Random(seed)) for seed in range(4)))):
            where = f"{at} ({fault.happened}), survivor {seed}"
            if format_of(survivor) == 1:
                older = survivor.copy()
                assert old_image(older) == image, where
                write_old(older, (created(9),))  # the program before goes on for a while
                assert image_of(opened(older)) == apply_all(image, (created(9),)), where
            assert image_of(opened(survivor)) == image, where
            left = [name for name in survivor.list(METADATA_DIR) if not name.endswith(".unreadable")]
            assert left == ["raft"], where
    assert happened > 20


def test_a_damaged_old_log_is_refused_and_left_as_it_is() -> None:
    disk, _ = old_directory()
    (segment,) = (name for name in disk.list(METADATA_DIR) if name.endswith(".log"))
    file = disk.open(f"{METADATA_DIR}/{segment}")
    file.write(100, [b"\xff"])
    file.sync()
    with pytest.raises(StorageError, match="metadata log is damaged"):
        opened(disk)
    assert format_of(disk) == 1
    assert segment in disk.list(METADATA_DIR)


def test_metadata_that_is_missing_from_a_used_directory_is_not_made_anew() -> None:
    disk, _ = old_directory()
    opened(disk).files.close()
    disk.remove_tree(GROUP_DIR)
    with pytest.raises(StorageError, match="restore metadata, or remove this broker"):
        opened(disk)
    disk, _ = old_directory()
    disk.remove_tree(METADATA_DIR)
    with pytest.raises(StorageError, match="restore metadata, or remove this broker"):
        opened(disk)
    assert format_of(disk) == 1


def test_a_broker_goes_on_from_a_directory_of_format_1(tmp_path: Path) -> None:
    """Its streams, their records and its settings are there, and it takes changes."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.catalog.create_stream("orders", partitions=2)
            await append(broker.replicas.find("orders", 1), b"kept")
            before = broker.catalog.image
        disk = OsDisk(str(tmp_path))
        disk.remove_tree(GROUP_DIR)
        older = [
            msgspec.structs.replace(record, placed=()) if isinstance(record, StreamCreated) else record
            for record in before.snapshot()
            if not isinstance(record, BrokerRegistered | BrokerChanged)
        ]
        write_old(disk, older)
        raise_format(disk, "Logboom 1.0", 1)
        for _ in range(2):
            async with running(tmp_path) as broker:
                assert broker.catalog.streams().keys() == before.by_name.keys()
                assert await values_of(broker.replicas.find("orders", 1)) == [b"kept"]
                await broker.catalog.change_stream_config("orders", {"segment.ms": "5000"})
            assert set(disk.list(METADATA_DIR)) == {"clean-shutdown", "incarnations", "made-replicas", "raft"}

    run(body)


def test_other_files_beside_the_old_log_are_left_alone() -> None:
    disk, _ = old_directory()
    disk.open(f"{METADATA_DIR}/clean-shutdown", create=True)
    for _ in range(2):
        opened(disk).files.close()
        assert disk.list(METADATA_DIR) == ["clean-shutdown", "raft"]


def test_a_broker_shortens_its_metadata_while_it_runs_and_comes_back_the_same(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, metadata_snapshot_records=20) as broker:
            await broker.catalog.create_stream("gone")
            await broker.catalog.create_stream("orders", partitions=2)
            await broker.catalog.delete_stream("gone")
            for number in range(1, 61):
                await broker.catalog.change_stream_config("orders", {"segment.ms": str(number)})
            await broker.catalog.change_broker_config("1", {"num.partitions": "5"})
            before = broker.catalog.image
        assert MemberView(OsDisk(str(tmp_path)), GROUP_DIR).snapshot.index > 20
        async with running(tmp_path) as broker:
            streams = broker.catalog.image.by_name
            assert streams.keys() == before.by_name.keys()
            assert {name: (stream.id, stream.overrides) for name, stream in streams.items()} == {
                name: (stream.id, stream.overrides) for name, stream in before.by_name.items()
            }
            assert broker.catalog.image.tombstones == before.tombstones
            assert broker.config.default_partitions == 5
            assert (await broker.catalog.create_stream("gone")).partitions == 5

    run(body)
