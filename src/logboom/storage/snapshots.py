"""Producer snapshots: files that hold the producer table as of one log end offset each.

There are two kinds, alike in their bytes:

- One at the base of every segment, made durable when the segment is begun and kept as long as the segment is. Recovery
  and truncation fill the table from it and from the batches of that one segment. It is the only memory of producers
  whose records were deleted: without it a truncation into this segment would forget them, and their retries would be
  appended twice (Kafka keeps one per segment for the same reason, ProducerStateManager).
- Recovery points between two segments, unsynced, the newest few. They only make the next recovery shorter.

Any of them may be missing or garbled; the one before it serves then, or the whole log.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from logboom.base.ids import Offset
from logboom.base.ports import Disk
from logboom.storage.files import offset_in
from logboom.storage.producers import ProducerTable
from logboom.storage.small_files import ReportNotice, read_auxiliary, remove_auxiliary, replace_whole

SUFFIX: Final = ".producers"
RECOVERY_POINTS: Final = 2
"""Snapshots that are kept beside those at the bases of segments: two, since the newest may be torn by a crash."""


def snapshot_offsets(disk: Disk, directory: str, names: Sequence[str] | None = None) -> list[Offset]:
    """Offsets of the snapshots there are, rising."""
    names = disk.list(directory) if names is None else names
    return [offset for name in names if (offset := offset_in(name, SUFFIX)) is not None]


def _name(offset: Offset) -> str:
    return f"{offset:020d}{SUFFIX}"


def save_snapshot(
    disk: Disk, directory: str, end: Offset, producers: ProducerTable, *, bases: Collection[Offset], sync: bool = False
) -> None:
    """Write the table as of the log end `end`, and drop the snapshots that nothing needs any more.

    `bases` are those of all segments of the log, also of one that begins at `end`.
    """
    name, is_base = _name(end), end in bases
    if is_base and not sync and disk.exists(f"{directory}/{name}"):
        return  # it has the same content and is durable, which its replacement would not be at once
    if not len(producers) and end == min(bases):
        return  # the log begins here, and without a snapshot with no producer
    replace_whole(disk, directory, name, producers.to_bytes(end), sync=sync or is_base)
    points = [offset for offset in snapshot_offsets(disk, directory) if offset not in bases]
    for offset in points[:-RECOVERY_POINTS]:
        remove_auxiliary(disk, f"{directory}/{_name(offset)}")


def drop_snapshots(disk: Disk, directory: str, above: Offset, names: Sequence[str] | None = None) -> None:
    """Remove snapshots of offsets that the log no longer reaches, durably: other batches will take those offsets, and
    one that came back after a power failure would describe batches that do not exist. `names`: those in the directory.
    """
    beyond = [offset for offset in snapshot_offsets(disk, directory, names) if offset > above]
    for offset in beyond:
        remove_auxiliary(disk, f"{directory}/{_name(offset)}")
    if beyond:
        disk.sync_dir(directory)


def load_snapshot(
    disk: Disk,
    directory: str,
    table: ProducerTable,
    end: Offset,
    report: ReportNotice,
    names: Sequence[str] | None = None,
) -> Offset | None:
    """Fill the table from the newest good snapshot at or below `end`. Returns its offset, or None if there is none.
    Newer snapshots that cannot be used are reported and removed."""
    for offset in reversed(snapshot_offsets(disk, directory, names)):
        if offset <= end:
            path = f"{directory}/{_name(offset)}"
            if read_auxiliary(disk, path, partial(_loaded, table, offset), report):
                return offset
            if disk.exists(path):
                disk.unlink(path)
    return None


def snapshot_is_good(disk: Disk, path: str, offset: Offset) -> bool:
    """Whether it can be used, or has been removed meanwhile."""
    return bool(read_auxiliary(disk, path, partial(_loaded, ProducerTable(1, 1), offset), None)) or not disk.exists(
        path
    )


def _loaded(table: ProducerTable, offset: Offset, data: bytes) -> bool | None:
    return table.load(data, offset) or None
