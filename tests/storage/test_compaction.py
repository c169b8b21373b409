"""Key compaction of one log: what stays, where it stays, and what survives beside it."""

from tests.support.compaction import clean, pairs_of, put
from tests.support.logs import PLAIN, Reports, open_log

from logboom.sim.disk import SimDisk


def test_the_latest_record_of_each_key_stays_where_it_was() -> None:
    disk = SimDisk()
    log = open_log(disk, PLAIN)
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", "2"), ("c", "1"))
    put(log, ("c", "2"))
    log.roll()
    put(log, ("a", "active"))
    cleaned = clean(log)
    expected = [(1, "b", "1"), (2, "a", "2"), (4, "c", "2"), (5, "a", "active")]
    assert pairs_of(log) == expected
    assert (cleaned.records_removed, cleaned.first_dirty_offset, cleaned.is_complete) == (2, 5, True)
    log.close()
    reports = Reports()
    again = open_log(disk, PLAIN, reports=reports)
    assert not reports.seen, reports.seen
    assert pairs_of(again) == expected
    assert again.compaction.first_dirty_offset == 5
