"""Windows: which groups they have room for, when they end, and the events that their results are.

A window ends when the watermark is behind its end by the lateness that is allowed. Its results are one event for each
group and metric, in the order of labels and metrics.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.aggregate.cells import FIRST, GROUP, LABELS, METRIC, NUMBER, SCHEMA, SECOND, SLOT, WINDOW, merged
from logboom.pipeline.aggregate.measures import Metric, result
from logboom.pipeline.event.schema import ARROW_TYPES
from logboom.pipeline.plan.stateful import EXIT

OVERFLOW: Final = "otel.metric.overflow"
"""The label of the group that has the events of all groups beyond the limit, as OpenTelemetry's SDKs call it."""
_MADE: Final = pa.schema(
    {
        "time": ARROW_TYPES["timestamp"],
        "observed_time": ARROW_TYPES["timestamp"],
        "service": pa.string(),
        "host": pa.string(),
        "body": pa.string(),
        "attributes": pa.string(),
        EXIT: pa.int8(),
    }
)
_encode = msgspec.json.Encoder().encode


def folded(cells: pa.Table, groups_max: int, shards: int, metrics: Sequence[Metric]) -> tuple[pa.Table, float]:
    """The cells with the groups of each window beyond the first so many folded into one; how many events that are."""
    groups = cells.filter(pc.equal(cells.column(METRIC), GROUP))
    windows = groups.column(WINDOW).to_numpy()
    order = np.argsort(windows, kind="stable")
    starts = np.searchsorted(windows[order], windows[order], side="left")
    place = np.arange(len(order)) - starts
    over = np.sort(order[(place >= groups_max) & (groups.column(FIRST).to_numpy()[order] != 0)])
    if not len(over):
        return cells, 0.0
    gone = groups.take(pa.array(over))
    keys = [WINDOW, FIRST, SECOND]
    marked = gone.select(keys).append_column("over", pa.repeat(pa.scalar(True), len(over)))
    numbered = cells.append_column("row", pa.array(np.arange(cells.num_rows)))
    rows = numbered.join(marked, keys, join_type="inner", use_threads=False).column("row").to_numpy()
    is_over = np.zeros(cells.num_rows, np.bool_)
    is_over[rows] = True
    shard = int(gone.column(FIRST)[0].as_py()) % shards
    label = _encode({OVERFLOW: "true", "shard": str(shard)}).decode()
    mask = pa.array(is_over)
    is_group = pc.and_(mask, pc.equal(cells.column(METRIC), GROUP))
    changed = {
        FIRST: pc.if_else(mask, pa.scalar(0, pa.uint64()), cells.column(FIRST)),
        SECOND: pc.if_else(mask, pa.scalar(0, pa.uint64()), cells.column(SECOND)),
        LABELS: pc.if_else(is_group, label, cells.column(LABELS)),
    }
    for name, column in changed.items():
        cells = cells.set_column(SCHEMA.get_field_index(name), SCHEMA.field(name), column)
    return merged([cells], metrics), float(pc.sum(gone.column(NUMBER)).as_py() or 0.0)


def split(cells: pa.Table, ends_at: npt.NDArray[np.bool_]) -> tuple[pa.Table, pa.Table]:
    """The cells of windows that end, by cell, and the others."""
    return cells.filter(pa.array(ends_at)), cells.filter(pa.array(~ends_at))


def result_events(cells: pa.Table, metrics: Sequence[Metric], length_us: int, wall_ms: int) -> pa.RecordBatch:
    """The events of windows that have ended, as `Advanced.made` has them."""
    rows = sorted(_results(cells, metrics), key=lambda row: (row[0], row[1], row[2]))
    columns: dict[str, list[Any]] = {name: [] for name in _MADE.names}
    for window, labels_text, number, found in rows:
        labels, metric = msgspec.json.decode(labels_text), metrics[number]
        attributes = {
            "metric.name": metric.name,
            "metric.type": metric.kind,
            "metric.start": window,
            "metric.end": window + length_us,
            "metric.labels": labels,
            **{f"metric.{name}": value for name, value in found.items()},
        }
        for name, value in (
            ("time", window + length_us),
            ("observed_time", wall_ms * 1_000),
            ("service", labels.get("service")),
            ("host", labels.get("host")),
            ("body", metric.name),
            ("attributes", _encode(attributes).decode()),
            (EXIT, 0),
        ):
            columns[name].append(value)
    arrays = [pa.array(columns[field.name], _plain(field.type)).cast(field.type) for field in _MADE]
    return pa.RecordBatch.from_arrays(arrays, schema=_MADE)


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _results(cells: pa.Table, metrics: Sequence[Metric]) -> Iterator[tuple[int, str, int, Any]]:
    """Window, labels, position of the metric and what it came to."""
    if not cells.num_rows:
        return
    columns = {name: cells.column(name).to_numpy() for name in (WINDOW, FIRST, SECOND, METRIC, SLOT, NUMBER)}
    order = np.lexsort(tuple(columns[name] for name in (SLOT, METRIC, SECOND, FIRST, WINDOW)))
    columns = {name: column[order] for name, column in columns.items()}
    keys = np.stack([columns[name].astype(np.uint64) for name in (WINDOW, FIRST, SECOND, METRIC)])
    starts = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)))
    ends = np.append(starts[1:], len(order))
    texts, labels = cells.column(LABELS), ""
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        metric = int(columns[METRIC][start])
        if metric == GROUP:  # the lowest: in front of the group's metrics
            labels = texts[int(order[start])].as_py()
        else:
            window = int(columns[WINDOW][start])
            slots, numbers = columns[SLOT][start:end], columns[NUMBER][start:end]
            yield window, labels, metric, result(metrics[metric], slots, numbers)
