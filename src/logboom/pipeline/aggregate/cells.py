"""Cells: a number by window, group, metric and slot. A table of them is all that an aggregate sends and remembers.

A group is known by the fingerprint of its labels; a cell of the metric GROUP carries the labels themselves, once for
each window and group, and the number of events. Cells are merged without threads and in order, so that sums of
fractions come out the same whenever a batch is done again.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logboom.pipeline.aggregate.measures import Metric, Touched

GROUP: Final = -1
"""In place of the position of a metric: the cell that says which labels a group has."""
WINDOW, FIRST, SECOND, METRIC, SLOT, NUMBER, LABELS = "window", "first", "second", "metric", "slot", "number", "labels"
SCHEMA: Final = pa.schema(
    {
        WINDOW: pa.int64(),
        FIRST: pa.uint64(),
        SECOND: pa.uint64(),
        METRIC: pa.int16(),
        SLOT: pa.int32(),
        NUMBER: pa.float64(),
        LABELS: pa.string(),
    }
)
_KEY: Final = [WINDOW, FIRST, SECOND, METRIC, SLOT]


def group_cells(
    windows: npt.NDArray[np.int64],
    groups: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]],
    labels: pa.Array,
    weights: npt.NDArray[np.float64],
) -> pa.Table:
    """The cells of the groups of some events, by row of them."""
    return _cells(windows, groups, GROUP, Touched(np.zeros(len(windows), np.int32), weights), labels)


def metric_cells(
    windows: npt.NDArray[np.int64],
    groups: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]],
    metric: int,
    brought: Touched,
) -> pa.Table:
    """The cells of one metric of some events, by row of them."""
    return _cells(windows, groups, metric, brought, pa.nulls(len(windows), pa.string()))


def _cells(
    windows: npt.NDArray[np.int64],
    groups: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]],
    metric: int,
    brought: Touched,
    labels: pa.Array,
) -> pa.Table:
    position = np.full(len(windows), metric, np.int16)
    columns = [windows, *groups, position, brought.slots, brought.numbers, labels]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=SCHEMA)


def merged(tables: Sequence[pa.Table], metrics: Sequence[Metric]) -> pa.Table:
    """One cell for each window, group, metric and slot, those that came first in front."""
    whole = pa.concat_tables([SCHEMA.empty_table(), *tables])
    of_operation = np.array([metric.operation for metric in metrics] + ["sum"])  # GROUP is the last by its number, -1
    operations = of_operation[whole.column(METRIC).to_numpy()] if whole.num_rows else np.zeros(0, of_operation.dtype)
    found = []
    for operation in ("sum", "min", "max"):
        mine = whole if (operations == operation).all() else whole.filter(pa.array(operations == operation))
        if mine.num_rows:
            some = mine.group_by(_KEY, use_threads=False).aggregate([(NUMBER, operation), (LABELS, "first")])
            renamed = some.rename_columns({f"{NUMBER}_{operation}": NUMBER, f"{LABELS}_first": LABELS})
            found.append(renamed.select(SCHEMA.names).cast(SCHEMA))
    return pa.concat_tables([SCHEMA.empty_table(), *found]).combine_chunks()
