"""What one copy of a partition holds, read from the simulated disk below it: no broker is asked, nothing changes."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from logboom.base.errors import CorruptBatchError
from logboom.broker.disk.ownership import directory_of
from logboom.records import Record, iter_batches
from logboom.sim.client import TopicPartition, records_of
from logboom.sim.disk import SimDisk


def records_on(disk: SimDisk, where: TopicPartition) -> Iterator[Record]:
    """The records of a partition as its files are now, synced or not, oldest first; none of segments in which bits have
    flipped."""
    for path in _segments(disk, where):
        if disk.nodes[path].has_flipped:
            continue
        data = bytes(disk.nodes[path].data)
        try:
            for position, header in iter_batches(data):
                yield from records_of(data[position : position + header.size_bytes])
        except CorruptBatchError:
            continue  # the room that is reserved behind the last batch


def flipped_on(disk: SimDisk, where: TopicPartition) -> Sequence[range]:
    """The offsets of those segments in which bits have flipped."""
    paths = _segments(disk, where)
    ends = [*(int(PurePosixPath(path).stem) for path in paths), 1 << 63]
    return [range(*both) for path, both in zip(paths, pairwise(ends), strict=True) if disk.nodes[path].has_flipped]


def _segments(disk: SimDisk, where: TopicPartition) -> list[str]:
    prefix = f"{directory_of(where.stream, where.partition)}/"
    return sorted(path for path in disk.nodes if path.startswith(prefix) and path.endswith(".log"))
