"""The directory `metadata/` of a broker: the member of the group in it, migrated from format 1 where there is one.

Up to format 1 of the data directory a broker was always alone, and its metadata was one log of records, in `metadata/`
itself. From format 2 on it is a member of a group, in `metadata/raft`. At the first start of a program that knows
groups the records become the first snapshot of a group whose only voter is this broker:

    read the old log -> make the member in metadata/raft -> raise the format -> remove the old log

Each step is durable before the next one begins. Until the format is raised the old log is what counts: a start that
finds a member made it in vain, since an older program may have gone on with the log, and makes it again. From then on
an older program refuses the directory, and what is left of the old log is removed.
"""

from typing import Final

import msgspec

from logboom.base.errors import FormatVersionError, StorageError
from logboom.base.ids import Offset
from logboom.base.ports import Disk
from logboom.base.units import MIB
from logboom.broker.disk.data_dir import METADATA_DIR, STREAMS_DIR
from logboom.broker.raft.files import RaftFiles, Report
from logboom.broker.raft.group import OpenedGroup
from logboom.metadata import Image, MetadataRecord, SnapshotBegun, apply_all, decode, encode_all
from logboom.raft import NodeId, Stored, bootstrap
from logboom.records import iter_batches, iter_records
from logboom.storage import (
    Damage,
    LogConfig,
    Notice,
    PartitionLog,
    format_of,
    is_known,
    is_log,
    raise_format,
    retriable_error_for,
)

GROUP_FORMAT: Final = 2
"""The first format of a data directory in which the metadata is that of a group."""
GROUP_DIR: Final = f"{METADATA_DIR}/raft"
_OLD_SEGMENT_BYTES: Final = 64 * MIB
"""A segment of the old log. A snapshot in it is one batch."""
_OLD_CONFIG: Final = LogConfig(segment_bytes=_OLD_SEGMENT_BYTES, max_decompressed_bytes=_OLD_SEGMENT_BYTES)
_READ_BYTES: Final = MIB


def open_member(
    disk: Disk, node_id: NodeId, *, program: str, joins: bool, had_metadata: bool, report: Report
) -> OpenedGroup:
    """The member of the metadata group in a data directory, which is made or migrated where there is none.

    `program` is its name and version, which the error of an older program names. `joins`: a new member belongs to no
    group until a leader adds it; otherwise it is the only voter of a new one. `had_metadata`: whether the directory has
    ever had metadata, so that they are lost where there are none. Waits for the disk. Raises StorageError
    where the disk fails or something is damaged or missing, FormatVersionError where a newer version wrote it.
    """
    try:
        is_old = format_of(disk) < GROUP_FORMAT
        has_metadata = has_member(disk)
        if not has_metadata and (had_metadata or (disk.exists(STREAMS_DIR) and disk.list(STREAMS_DIR))):
            raise StorageError(
                f"the metadata is missing from a data directory that has been used: restore {METADATA_DIR}, or remove "
                "this broker from its cluster, empty its data directory, and let it join again"
            )
        if is_old:
            _migrate(disk, node_id, program, report)
        if has_metadata:
            _remove_old(disk)
    except OSError as error:
        raise retriable_error_for(error, METADATA_DIR) or StorageError(
            f"the metadata in {METADATA_DIR} cannot be opened: {error}"
        ) from error
    return OpenedGroup.open(disk, GROUP_DIR, node_id, joins=joins, report=report)


def has_member(disk: Disk) -> bool:
    """Whether there is any metadata in a data directory. Waits for the disk. Raises OSError."""
    return is_log(disk, METADATA_DIR) if format_of(disk) < GROUP_FORMAT else RaftFiles.exist(disk, GROUP_DIR)


def read_old_log(log: PartitionLog) -> list[MetadataRecord]:
    """The records from the last snapshot on. Those before it may be incomplete: segments are deleted one by one.

    Raises StorageError where one cannot be read.
    """
    records: list[MetadataRecord] = []
    offset, end = log.log_start_offset, log.durable_end
    while offset < end:
        data = log.reader.read(offset, _READ_BYTES, ceiling=end)
        assert data is not None
        assert len(data) > 0, "whole batches up to the end"
        for position, header in iter_batches(data):
            for record in iter_records(data, position, header, _OLD_SEGMENT_BYTES):
                assert record.value is not None, "a metadata record has a value"
                decoded = decode(record.value)
                if isinstance(decoded, SnapshotBegun):
                    records.clear()
                records.append(decoded)
            offset = Offset(header.next_offset)
    return records


def _migrate(disk: Disk, node_id: NodeId, program: str, report: Report) -> None:
    if disk.exists(GROUP_DIR):
        disk.remove_tree(GROUP_DIR)
        disk.sync_dir(METADATA_DIR)
    if is_log(disk, METADATA_DIR):
        first = bootstrap((node_id,)).snapshot
        data = encode_all(tuple(_old_image(disk, report).snapshot()))
        RaftFiles.create(disk, GROUP_DIR, Stored(snapshot=msgspec.structs.replace(first, data=data)))
    raise_format(disk, program, GROUP_FORMAT)


def _old_image(disk: Disk, report: Report) -> Image:
    damages: list[Damage] = []

    def take(found: Damage | Notice) -> None:
        if isinstance(found, Damage):
            damages.append(found)
        report(found)

    log = PartitionLog.open(disk, METADATA_DIR, _OLD_CONFIG, now_ms=0, report=take)
    try:
        if damages:
            raise _damaged(damages[0])
        return apply_all(Image(), read_old_log(log))
    except FormatVersionError:
        raise
    except StorageError as error:
        raise _damaged(error) from error
    finally:
        log.abandon()


def _damaged(reason: object) -> StorageError:
    return StorageError(f"the metadata log is damaged: {reason} Restore the data directory from a copy.")


def _remove_old(disk: Disk) -> None:
    """Only the files of a log: what else is in `metadata/` belongs to others."""
    names = [name for name in disk.list(METADATA_DIR) if is_known(name)]
    for name in names:
        disk.unlink(f"{METADATA_DIR}/{name}")
    if names:
        disk.sync_dir(METADATA_DIR)
