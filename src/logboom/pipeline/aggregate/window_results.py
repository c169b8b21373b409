"""The events of windows that have ended: one for each group and metric, in the order of labels and metrics."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from logboom.pipeline.aggregate.cells import (
    LABELS,
    METRIC,
    NUMBER,
    SLOT,
    column_of,
    groups_of,
)
from logboom.pipeline.aggregate.made_events import MadeEvent, made_events
from logboom.pipeline.aggregate.measures import Metric, result


def result_events(
    groups: pa.Table, cells: pa.Table, metrics: Sequence[Metric], length_us: int, wall_ms: int
) -> pa.RecordBatch:
    """The events of windows that have ended, in the form of `Advanced.made`, from the result of
    `OpenWindows.ending`."""
    events = []
    for window, labels_text, number, found in sorted(
        _results(groups, cells, metrics), key=lambda row: (row[0], row[1], row[2])
    ):
        labels, metric = msgspec.json.decode(labels_text), metrics[number]
        attributes = {
            "metric.name": metric.name,
            "metric.type": metric.kind,
            "metric.start": window,
            "metric.end": window + length_us,
            "metric.labels": labels,
            **{f"metric.{name}": value for name, value in found.items()},
        }
        events.append(MadeEvent(window + length_us, labels.get("service"), labels.get("host"), metric.name, attributes))
    return made_events(events, wall_ms, 0)


def _results(groups: pa.Table, cells: pa.Table, metrics: Sequence[Metric]) -> Iterator[tuple[int, str, int, Any]]:
    """Window, labels, position of the metric and its result."""
    if not cells.num_rows:
        return
    named = [column.tolist() for column in groups_of(groups)]
    labels = dict(zip(zip(*named, strict=True), groups.column(LABELS).to_pylist(), strict=True))
    of_cells, metric = groups_of(cells), column_of(cells, METRIC)
    slots, numbers = column_of(cells, SLOT), column_of(cells, NUMBER)
    is_first = np.ones(len(metric), np.bool_)
    is_first[1:] = metric[1:] != metric[:-1]
    for column in of_cells:
        is_first[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(metric)).tolist()
    found = (column[starts].tolist() for column in (*of_cells, metric))
    for window, first, second, number, start, end in zip(*found, starts.tolist(), ends, strict=True):
        yield (
            window,
            labels[window, first, second],
            number,
            result(metrics[number], slots[start:end], numbers[start:end]),
        )
