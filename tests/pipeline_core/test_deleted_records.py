"""Records that retention has deleted unread are named and counted."""

import json
from pathlib import Path
from unittest.mock import Mock

from logboom.pipeline.plan.nodes import StreamSource
from logboom.pipeline.run.deleted_records import DeletedRecords

SOURCES = (
    StreamSource(name="web", line=1, streams=("web",), on_data_loss="continue"),
    StreamSource(name="apps", line=2, pattern="app-.*", on_data_loss="continue"),
    StreamSource(name="bills", line=3, streams=("bills",)),
)


THERE = {"web": 2, "app-1": 1, "bills": 1}


def plan_batch(query: Path, batch: int, **ends: dict[int, int]) -> None:
    """As Spark writes where a batch ends."""
    (query / "offsets").mkdir(exist_ok=True)
    lines = ["v2", "{}", *(f"{name}{json.dumps({name.replace('_', '-'): ends[name]})}" for name in ends)]
    (query / "offsets" / str(batch)).write_text("\n".join(lines))


def test_what_was_deleted_is_told_once_and_counted_in_its_batches(tmp_path: Path) -> None:
    plan_batch(tmp_path, 1, web={0: 10, 1: 10}, app_1={0: 5}, app_2={0: 1}, bills={0: 0})
    plan_batch(tmp_path, 2, web={0: 20, 1: 20}, app_1={0: 9}, bills={0: 7})
    plan_batch(tmp_path, 3, web={0: 30, 1: 20}, app_1={0: 9}, bills={0: 7})
    starts = {"web": {"0": 25, "1": 0}, "app-1": {"0": 7}, "bills": {"0": 3}}
    admin, told = Mock(**{"starts.return_value": starts, "partitions.return_value": THERE}), Mock()
    deleted = DeletedRecords(tmp_path, admin, SOURCES, told)
    assert deleted.before(2) == {"web": 10, "apps": 2}
    assert deleted.before(2) == {"web": 10, "apps": 2}, "the batch is done again"
    assert deleted.before(3) == {"web": 5}
    assert [call.args[0].partition(" before")[0] for call in told.call_args_list] == [
        "the stream app-2 was deleted: it was read up to offset 1 of partition 0, and later records are lost",
        "web/0: the log has deleted 15 records, from offset 10 to 24,",
        "app-1/0: the log has deleted 2 records, from offset 5 to 6,",
    ]


def test_nothing_is_asked_where_all_sources_end_for_lost_records(tmp_path: Path) -> None:
    admin = Mock()
    assert not DeletedRecords(tmp_path, admin, SOURCES[2:], Mock()).before(2)
    assert not admin.mock_calls
