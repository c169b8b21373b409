import pytest
from tests.support.logs import append, batch, open_log
from tests.support.memdisk import MemDisk

from logboom.base.ids import Offset
from logboom.storage import Retention, SegmentFacts, retained_from

# Four segments of 100 bytes and ten records, newest times 100, 200, 300 and 400.
SEGMENTS = [SegmentFacts(Offset(10 * n), Offset(10 * n + 10) if n < 3 else None, 100, 100 * (n + 1)) for n in range(4)]


def start_for(retention: Retention, *, now_ms: int = 1000, start: int = 0, high_watermark: int = 40) -> int:
    return retained_from(SEGMENTS, retention, now_ms=now_ms, start=Offset(start), high_watermark=Offset(high_watermark))


@pytest.mark.parametrize(("ms", "expected"), [(900, 0), (899, 10), (800, 10), (750, 20), (0, 30)])
def test_by_time(ms: int, expected: int) -> None:
    assert start_for(Retention(ms=ms)) == expected


@pytest.mark.parametrize(("size", "expected"), [(400, 0), (301, 0), (300, 10), (150, 20), (0, 30)])
def test_by_bytes(size: int, expected: int) -> None:
    assert start_for(Retention(bytes=size)) == expected


def test_nothing_is_asked_or_more_than_may_go() -> None:
    assert start_for(Retention()) == 0
    assert start_for(Retention(), start=7) == 7
    assert start_for(Retention(ms=0), high_watermark=19) == 10
    assert start_for(Retention(ms=750, bytes=0)) == 30
    assert retained_from([], Retention(ms=0), now_ms=0, start=Offset(3), high_watermark=Offset(3)) == 3


def test_a_log_gives_the_facts_and_follows() -> None:
    log = open_log(MemDisk())
    for n in range(100):
        append(log, batch(3, 40, timestamp_ms=1000 + 10 * n))
    log.flush(sync=True)
    facts = log.segment_facts()
    assert sum(f.size_bytes for f in facts) == log.size_bytes
    assert facts[-1].max_timestamp == 1992
    start = retained_from(
        facts, Retention(ms=500), now_ms=2000, start=log.log_start_offset, high_watermark=log.durable_end
    )
    assert 0 < start <= 150
    log.delete_before(start)
    assert log.log_start_offset == log.segments[0].base == start
