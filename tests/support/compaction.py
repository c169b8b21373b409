"""Running a cleaning as a broker does, and reading a log as a table."""

from collections.abc import Sequence

from tests.support.logs import append

from logboom.base.ids import Offset
from logboom.records import Codec, Record, build_batch, iter_batches, iter_records
from logboom.storage import Cleaned, CompactionSettings, PartitionLog

Pair = tuple[str, str | None]
"""A key and its value, None for a tombstone."""

NO_KEY = "-"
"""Stands for a record without a key."""


def pairs_batch(
    pairs: Sequence[Pair],
    *,
    timestamp_ms: int = 1000,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    records = [
        Record(
            Offset(0),
            timestamp_ms + n,
            None if key == NO_KEY else key.encode(),
            None if value is None else value.encode(),
        )
        for n, (key, value) in enumerate(pairs)
    ]
    return build_batch(
        records, codec=codec, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2]
    )


def put(
    log: PartitionLog, *pairs: Pair, timestamp_ms: int = 1000, codec: Codec = Codec.NONE, leader_epoch: int = 0
) -> int:
    """Append one batch and flush; its base offset."""
    placed = append(log, pairs_batch(pairs, timestamp_ms=timestamp_ms, codec=codec), leader_epoch=leader_epoch)
    log.flush(sync=True)
    return placed.base_offset


def clean(
    log: PartitionLog, settings: CompactionSettings | None = None, *, now_ms: int = 2000, stable_end: int | None = None
) -> Cleaned:
    """One whole run, every step on this thread."""
    cleaning = log.compaction.begin(
        settings or CompactionSettings(),
        now_ms=now_ms,
        stable_end=log.durable_end if stable_end is None else Offset(stable_end),
    )
    try:
        while (swap := cleaning.write_next(lambda size_bytes: None, lambda: False)) is not None:
            swap()
        return cleaning.finish()
    finally:
        cleaning.abandon()


def records_of(log: PartitionLog, start: int | None = None) -> list[Record]:
    """Every record, as a consumer that reads on and on gets them."""
    offset: int = log.log_start_offset if start is None else start
    found: list[Record] = []
    while offset < log.written_end:
        data = log.reader.read(Offset(offset), 1 << 20, ceiling=log.written_end)
        assert data
        for at, header in iter_batches(data):
            assert header.base_offset <= offset < header.next_offset
            records = iter_records(data, at, header, 1 << 24)
            found += [record for record in records if record.offset >= max(offset, log.log_start_offset)]
            offset = header.next_offset
    return found


def pairs_of(log: PartitionLog) -> list[tuple[int, str, str | None]]:
    """Offset, key and value of every record."""
    return [
        (
            record.offset,
            NO_KEY if record.key is None else record.key.decode(),
            None if record.value is None else record.value.decode(),
        )
        for record in records_of(log)
    ]


class Table:
    """What was appended to a log of keys, and what of it must be found whatever was cleaned."""

    def __init__(self) -> None:
        self.appended: dict[int, Pair] = {}

    def put(self, base: int, pairs: Sequence[Pair]) -> None:
        self.appended.update(enumerate(pairs, base))

    def truncate(self, end: int) -> None:
        self.appended = {offset: pair for offset, pair in self.appended.items() if offset < end}

    def hold(self, log: PartitionLog) -> None:
        """Hold the log against it: every record that is found was appended there, and the latest of each key is."""
        start, end = log.log_start_offset, log.log_end_offset
        appended = {offset: pair for offset, pair in self.appended.items() if start <= offset < end}
        assert not any(offset >= end for offset in self.appended), "records at the end are missing"
        found = {offset: (key, value) for offset, key, value in pairs_of(log)}
        assert found.items() <= appended.items()
        assert list(found) == sorted(found)
        latest = {key: offset for offset, (key, _) in sorted(appended.items())}
        latest.pop(NO_KEY, None)
        for key, offset in latest.items():
            if appended[offset][1] is not None:
                assert offset in found, f"the latest record of {key}, at {offset}, is missing"
            elif offset not in found:
                older = [at for at, (other, _) in found.items() if other == key]
                assert not older, f"{key} was deleted at {offset} and is back at {older}"

    def found_in(self, log: PartitionLog) -> list[tuple[int, str, str | None]]:
        """Offset, key and value of each record of the log that was appended to it."""
        return [found for found in pairs_of(log) if found[0] in self.appended]

    def latest_with_value(self) -> list[tuple[int, Pair]]:
        """Offset and pair of each key that has a value."""
        latest = {
            key: (offset, (key, value)) for offset, (key, value) in sorted(self.appended.items()) if key != NO_KEY
        }
        return [found for found in latest.values() if found[1][1] is not None]
