"""Producer snapshots: one file per offset at which one was taken.

They spare recovery the log before them. Any of them may be missing or garbled; the one before it serves then, or the
whole log.
"""

from functools import partial
from typing import Final

from logboom.base.ids import Offset
from logboom.base.ports import Disk
from logboom.storage.files import offset_in
from logboom.storage.producers import ProducerTable
from logboom.storage.small_files import Tell, read_auxiliary, remove_auxiliary, replace_whole

SUFFIX: Final = ".producers"
KEPT: Final = 2


def snapshot_offsets(disk: Disk, directory: str) -> list[Offset]:
    """Offsets of the snapshots there are, rising."""
    return [offset for name in disk.list(directory) if (offset := offset_in(name, SUFFIX)) is not None]


def _name(offset: Offset) -> str:
    return f"{offset:020d}{SUFFIX}"


def save_snapshot(
    disk: Disk, directory: str, end: Offset, producers: ProducerTable, *, segment: Offset, sync: bool = False
) -> None:
    """Write the table as of the log end `end`, and drop all snapshots but the newest few.

    The newest that is not above `segment`, the base of the segment written to, stays too: it is durable.
    """
    replace_whole(disk, directory, _name(end), producers.to_bytes(end), sync=sync)
    offsets = snapshot_offsets(disk, directory)
    durable = max((offset for offset in offsets if offset <= segment), default=None)
    for offset in offsets[:-KEPT]:
        if offset != durable:
            remove_auxiliary(disk, f"{directory}/{_name(offset)}")


def drop_snapshots(disk: Disk, directory: str, above: Offset) -> None:
    """Remove snapshots of offsets that the log no longer reaches, durably: other batches will take those offsets, and
    one that came back would speak of batches that are not there."""
    beyond = [offset for offset in snapshot_offsets(disk, directory) if offset > above]
    for offset in beyond:
        remove_auxiliary(disk, f"{directory}/{_name(offset)}")
    if beyond:
        disk.sync_dir(directory)


def load_snapshot(disk: Disk, directory: str, table: ProducerTable, end: Offset, tell: Tell) -> Offset | None:
    """Fill the table from the newest good snapshot at or below `end`; its offset, None where there is none.

    Newer ones that cannot be used are told of and removed.
    """
    for offset in reversed(snapshot_offsets(disk, directory)):
        if offset <= end:
            path = f"{directory}/{_name(offset)}"
            if read_auxiliary(disk, path, partial(_loaded, table, offset), tell):
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
