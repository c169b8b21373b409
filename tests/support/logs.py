"""Batches and logs for tests of storage."""

from dataclasses import dataclass, field

from logboom.base.errors import StorageError
from logboom.base.ids import Epoch, Offset
from logboom.base.ports import Disk
from logboom.records import Codec, Record, RecordLimits, build_batch, iter_batches, validate_produced
from logboom.sim.disk import SimDisk
from logboom.storage import Appended, Damage, LogConfig, Notice, PartitionLog

LIMITS = RecordLimits(max_batch_bytes=1 << 20, max_decompressed_bytes=4 << 20, max_records=100_000)
DIRECTORY = "streams/web-0"
SMALL = LogConfig(segment_bytes=4000, index_interval_bytes=300, recovery_point_bytes=1000, preallocate_bytes=0)
PLAIN = LogConfig(preallocate_bytes=0)


def batch(
    count: int = 1,
    size_bytes: int = 50,
    *,
    timestamp_ms: int = 1000,
    producer: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    codec: Codec = Codec.NONE,
) -> bytearray:
    records = [Record(Offset(0), timestamp_ms + n, b"k", bytes([n % 256]) * size_bytes) for n in range(count)]
    return build_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, codec=codec)


def append(log: PartitionLog, buffer: bytearray, *, leader_epoch: int = 0, now_ms: int = 1000) -> Appended:
    header, _ = validate_produced(buffer, LIMITS)
    return log.append(buffer, ((0, header),), leader_epoch=Epoch(leader_epoch), now_ms=now_ms)


@dataclass
class Reports:
    """Collects what a log reports."""

    seen: list[Damage | Notice] = field(default_factory=list)

    def __call__(self, report: Damage | Notice) -> None:
        self.seen.append(report)

    @property
    def damage(self) -> list[Damage]:
        return [report for report in self.seen if isinstance(report, Damage)]

    @property
    def notices(self) -> list[Notice]:
        return [report for report in self.seen if isinstance(report, Notice)]


def open_log(
    disk: Disk, config: LogConfig = SMALL, *, now_ms: int = 1000, reports: Reports | None = None
) -> PartitionLog:
    return PartitionLog.open(disk, DIRECTORY, config, now_ms=now_ms, report=reports or Reports())


def read_batches(log: PartitionLog, offset: int, max_bytes: int = 1 << 20) -> list[bytes]:
    """The batches that one read gives."""
    data = log.reader.read(Offset(offset), max_bytes, ceiling=log.written_end)
    assert data is not None
    found = [bytes(data[at : at + header.size_bytes]) for at, header in iter_batches(data)]
    assert sum(map(len, found)) == len(data)
    return found


def read_one(log: PartitionLog, offset: int) -> bytes | None:
    """The batch at an offset, None where it is damaged."""
    try:
        return read_batches(log, offset, 1)[0]
    except StorageError:
        return None


def filled(disk: SimDisk, count: int = 100, config: LogConfig = SMALL) -> tuple[PartitionLog, list[bytearray]]:
    """A log of batches of three records, offsets 3n, times 1000 + 10n."""
    log = open_log(disk, config)
    batches = [batch(3, 40, timestamp_ms=1000 + 10 * n) for n in range(count)]
    for buffer in batches:
        append(log, buffer)
        log.flush(sync=True)
    return log, batches
