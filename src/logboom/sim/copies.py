"""What one copy of a partition holds, read from the simulated disk below it: no broker is asked, nothing changes."""

from collections.abc import Iterator

from logboom.base.errors import CorruptBatchError
from logboom.broker.disk.ownership import directory_of
from logboom.records import Record, iter_batches, iter_records
from logboom.sim.client import TopicPartition
from logboom.sim.disk import SimDisk

_RECORDS_BYTES_MAX = 1 << 26


def records_on(disk: SimDisk, where: TopicPartition) -> Iterator[Record]:
    """The records of a partition as its files are now, synced or not, oldest first."""
    prefix = f"{directory_of(where.stream, where.partition)}/"
    for path in sorted(path for path in disk.nodes if path.startswith(prefix) and path.endswith(".log")):
        data = bytes(disk.nodes[path].data)
        try:
            for position, header in iter_batches(data):
                yield from iter_records(data, position, header, _RECORDS_BYTES_MAX)
        except CorruptBatchError:
            continue  # the room that is reserved behind the last batch
