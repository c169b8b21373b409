"""Rows find the directory that each of them would find alone, in their order, however they are mixed."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.sinks.parquet.partitioning import NO_VALUE, by_directory, directory_value

TIMES = st.none() | st.sampled_from(
    [
        datetime(2026, 11, 20, 12, 59, 59, 999_999, UTC),
        datetime(2026, 11, 20, 13, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, tzinfo=UTC),
    ]
)
ROWS = st.fixed_dictionaries(
    {
        "time": TIMES,
        "observed_time": TIMES,
        "service": st.sampled_from([None, "", "a/b", "a b", "é"]),
        "source": st.sampled_from(["x", "y"]),
    }
)


def _expected(row: dict[str, Any], partition_by: list[str]) -> str:
    when = row["time"] or row["observed_time"]
    values = {**row, "date": when, "hour": when}
    return "/".join(f"{name}={directory_value(name, values[name])}" for name in partition_by)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(ROWS, st.sampled_from([1, 2, 700])), min_size=1, max_size=8),
    st.lists(st.sampled_from(["date", "hour", "service", "source"]), min_size=1, max_size=4, unique=True),
)
def test_each_row_is_in_its_directory(runs: list[tuple[dict[str, Any], int]], partition_by: list[str]) -> None:
    rows = [{**row, "offset": 0} for row, count in runs for _ in range(count)]
    for number, row in enumerate(rows):
        row["offset"] = number
    found: dict[str, list[int]] = {}
    for directory, part in by_directory(pa.Table.from_pylist(rows, schema=LIVE_SCHEMA), partition_by):
        assert not set(part.schema.names) & set(partition_by)
        found.setdefault(directory, []).extend(part.column("offset").to_pylist())
    wanted: dict[str, list[int]] = {}
    for row in rows:
        wanted.setdefault(_expected(row, partition_by), []).append(row["offset"])
    assert found == wanted


def test_a_time_before_the_calendar_has_no_directory_of_its_own() -> None:
    early = pa.array(["0000-01-01T00:00:00Z"]).cast(LIVE_SCHEMA.field("time").type)
    columns = {name: pa.nulls(1, LIVE_SCHEMA.field(name).type) for name in LIVE_SCHEMA.names} | {"time": early}
    table = pa.Table.from_pydict(columns, schema=LIVE_SCHEMA)
    assert [directory for directory, _ in by_directory(table, ["date", "hour"])] == [f"date={NO_VALUE}/hour={NO_VALUE}"]
