"""Computes the directory of each row of a table.

Knows the columns of events and how Hive names directories (`name=value`). Must not know files or batches.
"""

import hashlib
import urllib.parse
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.sinks.repeats.grouping import grouped

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Directory value of rows without a value: Spark and pyarrow read it as null."""
_VALUE_MAX_BYTES: Final = 200
_HOUR_US: Final = 3_600_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_TIME: Final = np.iinfo(np.int64).min
_NO_HOUR: Final = _NO_TIME // _HOUR_US
_RUN_ROWS_MIN: Final = 256
"""If runs of rows with the same directory have at least this average length, they are sliced, which copies nothing."""


def by_directory(table: pa.Table, partition_by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each directory, in order, without the columns that its name contains."""
    by_time = [name for name in partition_by if name in ("date", "hour")]
    others = [name for name in partition_by if name not in by_time]
    grouped_by = [table.column(name) for name in others]
    if by_time:
        grouped_by.append(_hours(table))
    groups, keys = grouped(grouped_by)
    directories = []
    for values in keys:
        value_of = dict(zip(others, values, strict=False)) | {name: _hour(values[-1]) for name in by_time}
        directories.append("/".join(f"{name}={directory_value(name, value_of[name])}" for name in partition_by))
    body = table.drop_columns([name for name in others if name in LIVE_SCHEMA.names])
    bounds = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
    if len(bounds) * _RUN_ROWS_MIN <= len(groups) or len(keys) == 1:
        for start, stop in pairwise(bounds):
            yield directories[groups[start]], body.slice(start, stop - start)
        return
    for directory in dict.fromkeys(directories):
        here = np.isin(groups, [group for group, name in enumerate(directories) if name == directory])
        yield directory, body.filter(pa.array(here))


def _hours(table: pa.Table) -> pa.Array:
    """Hours since 1970 of each event's time, or of its observed time if it has none."""
    when = pc.coalesce(table.column("time"), table.column("observed_time")).cast(pa.int64())
    micros = pc.fill_null(when, _NO_TIME).to_numpy()
    return pa.array(micros // _HOUR_US)


def _hour(number: int) -> datetime | None:
    """The hour with that number, counted from 1970. None for None, and for an hour out of the calendar's range."""
    try:
        return None if number == _NO_HOUR else _EPOCH + timedelta(hours=number)
    except OverflowError:
        return None


def directory_value(name: str, value: Any) -> str:
    """The text after `name=` for a value. Hours and dates are those of a UTC time.

    >>> directory_value("service", "a/b"), directory_value("hour", datetime(1, 1, 1, 7, tzinfo=UTC))
    ('a%2Fb', '07')
    """
    if value is None:
        return NO_VALUE
    if name == "date":
        return str(value.date().isoformat())  # strftime does not pad year 1 with zeros
    if name == "hour":
        return str(value.strftime("%H"))
    text = urllib.parse.quote(str(value), safe="") or NO_VALUE
    if len(text) > _VALUE_MAX_BYTES:  # no file system would accept the name, and the whole batch would fail
        text = f"{text[:_VALUE_MAX_BYTES]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return text
