"""Which stream a partition's directory belongs to (the mark in it), and whether one without a stream may be removed.

A directory is removed only where the metadata explains it: its stream was deleted, or its creation was never finished
and it is empty. Anything else may be an administrator's only copy, and stays.
"""

import json
import re
import zlib
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final
from uuid import UUID

from logboom.base.ids import PartitionIndex, StreamId, StreamName
from logboom.base.ports import Disk
from logboom.broker.disk.data_dir import STREAMS_DIR
from logboom.metadata import Image, Stream
from logboom.storage import has_records, holds_no_batch, read_owner, write_owner

DELETED_SUFFIX: Final = ".deleted"
_DELETED: Final = re.compile(r"([0-9a-f]{32})-([0-9]+)\.deleted")
_PARTITION: Final = re.compile(r"[a-zA-Z0-9._-]+-[0-9]+")
_NAME_KEPT: Final = 180


def directory_of(name: str, index: int) -> str:
    """Where a partition lies in the data directory."""
    return f"{STREAMS_DIR}/{name}-{index}"


def deleted_directory_of(stream: Stream, index: int) -> str:
    """Where a partition that was deleted, or is held by other brokers now, waits for its removal."""
    return f"{STREAMS_DIR}/{stream.id.hex}-{index}{DELETED_SUFFIX}"


def set_aside_directories_of(stream: Stream, index: int) -> Iterator[str]:
    """Where an unknown directory is moved that is in the place of a new partition: to the first that is free."""
    first = f"{STREAMS_DIR}/{stream.name[:_NAME_KEPT]}-{index}.set-aside-{stream.id.hex}"
    yield first
    yield from (f"{first}-{number}" for number in count(2))


@dataclass(frozen=True, slots=True)
class Mark:
    """The content of the mark file in a partition's directory."""

    stream: StreamName
    id: StreamId
    index: PartitionIndex


def mark_of(stream: Stream, index: PartitionIndex) -> Mark:
    """The mark that a partition's directory must have."""
    return Mark(stream.name, stream.id, index)


def write_mark(disk: Disk, directory: str, mark: Mark) -> None:
    """Write the mark. The first record that the log takes makes it durable."""
    write_owner(disk, directory, _content_of(mark))


def _content_of(mark: Mark) -> bytes:
    content = {"stream": mark.stream, "id": str(mark.id), "partition": mark.index, "crc32": _check_of(mark)}
    return json.dumps(content).encode() + b"\n"


def _check_of(mark: Mark) -> int:
    return zlib.crc32(f"{mark.stream} {mark.id} {mark.index}".encode())


def read_mark(disk: Disk, directory: str, expected: Mark | None = None) -> Mark | None:
    """The mark, None where there is none that can be read or that is damaged. Older ones have no checksum. One that is
    `expected` is not taken apart to see that it is."""
    data = read_owner(disk, directory)
    if expected is not None and data == _content_of(expected):
        return expected
    try:
        content = json.loads(data or b"")
        mark = Mark(
            StreamName(str(content["stream"])),
            StreamId(UUID(content["id"])),
            PartitionIndex(int(content["partition"])),
        )
        return mark if content.get("crc32", _check_of(mark)) == _check_of(mark) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def is_damaged(found: Mark, expected: Mark) -> bool:
    """Whether a mark without a checksum differs by damage, and not because another partition's directory is here.

    No two streams have one id, and a stream keeps its name; ids are random, so that none is a digit away from another.
    A partition number alone tells nothing: the directory of orders-1 may well have been moved to orders-0.
    """
    if found.index != expected.index:
        return False
    digits = sum(mine != theirs for mine, theirs in zip(found.id.hex, expected.id.hex, strict=True))
    return not digits or (digits == 1 and found.stream == expected.stream)


def is_rest(disk: Disk, directory: str) -> bool:
    """Whether a directory is what is left of a copy that was being removed: it has records, and no mark, not even a
    damaged one."""
    return read_owner(disk, directory) is None and not holds_no_batch(disk, directory)


def why_removable(disk: Disk, name: str, image: Image, deleted: Container[StreamId]) -> str | None:
    """Why a directory in the streams directory that no stream owns may be removed; None if it must stay.

    Its name counts as well as its mark: a copy that an administrator made of a stream stays when the stream is deleted.
    """
    directory = f"{STREAMS_DIR}/{name}"
    mark = read_mark(disk, directory)
    renamed = _DELETED.fullmatch(name)
    if mark is None and _PARTITION.fullmatch(name) and holds_no_batch(disk, directory):
        return "it is empty: its creation was never finished"  # and a power failure took what there was
    if renamed is not None:
        id_ = StreamId(UUID(hex=renamed[1]))
        if mark is not None and mark.id != id_:
            return None
    elif mark is not None and directory_of(mark.stream, mark.index) == directory:
        id_ = mark.id
    else:
        return None
    if id_ in deleted:
        return "its stream was deleted"
    if renamed is not None and id_ in image.by_id:
        return "this broker holds that partition no more"
    if mark is not None and id_ not in image.by_id and not has_records(disk, directory):
        return "its stream was never finished, and it is empty"
    return None


def remove_trees(disk: Disk, directories: Sequence[str]) -> None:
    """Remove directories of partitions, durably.

    Each is renamed first, so that what a crash leaves of it is removed by the next start, and never opened: a new
    replica of the partition would begin behind the segments that are gone, and as the leader have the others delete
    theirs.
    """
    if not directories:
        return
    asides = [_renamed(disk, directory) for directory in directories]
    disk.sync_dir(STREAMS_DIR)
    for aside in asides:
        disk.remove_tree(aside)
    disk.sync_dir(STREAMS_DIR)


def _renamed(disk: Disk, directory: str) -> str:
    """What the directory is called from now on; without a mark it has no records, or has that name already."""
    mark = read_mark(disk, directory)
    if mark is None or directory.endswith(DELETED_SUFFIX):
        return directory
    aside = f"{STREAMS_DIR}/{mark.id.hex}-{mark.index}{DELETED_SUFFIX}"
    if disk.exists(aside):
        disk.remove_tree(aside)
    disk.rename(directory, aside)
    return aside


def is_moved_away(disk: Disk, name: str, image: Image) -> bool:
    """Whether a directory that is not assigned to this broker is of a stream that there is, under its right name: other
    brokers hold the partition. Only to be asked with an image that is not older than this process."""
    mark = read_mark(disk, f"{STREAMS_DIR}/{name}")
    if mark is None or directory_of(mark.stream, mark.index) != f"{STREAMS_DIR}/{name}":
        return False
    stream = image.by_id.get(mark.id)
    return stream is not None and 0 <= mark.index < len(stream.assignments)
