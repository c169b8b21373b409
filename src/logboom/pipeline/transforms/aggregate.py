"""The transform `aggregate`: metrics of events in windows, by groups. The work is `logboom.pipeline.aggregate`."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from logboom.base.settings import DurationMs, Settings, Texts, format_duration_ms
from logboom.pipeline.aggregate.cells import FIRST, GROUP, METRIC, WINDOW, group_cells, merged, metric_cells
from logboom.pipeline.aggregate.measures import Kind, Metric, Touched, touched, touched_by_hash
from logboom.pipeline.aggregate.windows import folded, result_events, split
from logboom.pipeline.findings import Part
from logboom.pipeline.plan.stateful import Advanced, Asked, BatchContext, State, StatefulTransform, dropped_by
from logboom.pipeline.route.values import attribute_name, simple_numbers, simple_texts
from logboom.pipeline.state.keys import fingerprints
from logboom.pipeline.state.memory import SHARDS
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType

_US_IN_MS: Final = 1_000
_DAY_MS: Final = 86_400_000
_TEXT_FIELDS: Final = ("service", "host", "severity_text", "source", "stream", "trace_id", "body")
_QUANTILES: Final = (0.5, 0.9, 0.99)
_encode = msgspec.json.Encoder().encode


class MetricModel(Settings):
    """One metric."""

    type: Kind
    of: str | None = None
    """The value: an attribute or a field; of all but `count`."""

    bounds: list[float] = Field(default_factory=list, max_length=200)
    """Of `histogram`: the upper ends of the buckets, rising; one more bucket takes what is above the last."""

    quantiles: list[float] = Field(default_factory=list, max_length=20)
    """Of `quantiles`: which, between 0 and 1 (0.5, 0.9 and 0.99)."""


class AggregateModel(TransformModel):
    """Counts events in windows; what comes out are events, one for each window, group and metric."""

    type: Literal["aggregate"]
    window: DurationMs = Field(ge=1_000, le=_DAY_MS)
    """How long a window is; windows begin at multiples of it since 1970."""

    by: Texts = Field(default_factory=list, max_length=20)
    """What groups events: fields and attributes."""

    metrics: dict[str, MetricModel] = Field(min_length=1, max_length=100)
    """The metrics by their names."""

    time: Literal["event", "arrival"] = "event"
    """Which time puts an event into a window: its `time`, or its `observed_time`."""

    lateness: DurationMs = Field(default=10_000, ge=0, le=_DAY_MS)
    """How long after its end a window takes events, by the times of events."""

    max_groups: int = Field(default=10_000, ge=SHARDS, le=10_000_000)
    """How many groups a window has room for; events of others are counted together."""


class AggregateTransform(StatefulTransform, frozen=True, kw_only=True, tag="aggregate"):
    """Metrics of events in tumbling windows. The events that it has counted are dropped under its name."""

    window_ms: int
    by: tuple[tuple[str, str], ...]
    """Label and SQL."""
    metrics: tuple[Metric, ...]
    time: Literal["event", "arrival"] = "event"
    lateness_ms: int = 10_000
    max_groups: int = 10_000
    condition_line: int = 0

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.name, f"{self.name}.late")

    @property
    def optional_outputs(self) -> tuple[str, ...]:
        return (f"{self.name}.late",)

    @property
    def time_column(self) -> str:
        return "observed_time" if self.time == "arrival" else "time"

    @property
    def leaves_by_time(self) -> bool:
        return True

    @property
    def state_form(self) -> str:
        labels = ", ".join(f"{label}={sql}" for label, sql in self.by) or "nothing"
        metrics = _encode(self.metrics).decode()
        return f"windows of {format_duration_ms(self.window_ms)} by {labels}, {self.time} time, metrics {metrics}"

    def ask(self, batch: pa.RecordBatch, inputs: npt.NDArray[np.int8], context: BatchContext) -> Asked:
        windows = self._windows(batch, context)
        late = self._ended(windows, context.watermark_us)
        exits = np.where(late, 1, dropped_by(0)).astype(np.int8)
        if late.any():
            batch, windows = batch.filter(pa.array(~late)), windows[~late]
        found = merged(list(self._cells(batch, windows)), self.metrics)
        rows = found.to_batches()[0] if found.num_rows else pa.RecordBatch.from_pylist([], found.schema)
        return Asked(rows, rows.column(FIRST).to_numpy(), exits)

    def _windows(self, batch: pa.RecordBatch, context: BatchContext) -> npt.NDArray[np.int64]:
        """The beginning of the window of each event, in microseconds."""
        now_us, length = context.wall_ms * _US_IN_MS, self.window_ms * _US_IN_MS
        given = pc.coalesce(batch.column(self.time_column), batch.column("observed_time")).cast(pa.int64())
        times = np.minimum(pc.fill_null(given, now_us).to_numpy(zero_copy_only=False), now_us)
        windows: npt.NDArray[np.int64] = times // length * length
        return windows

    def _ended(self, windows: npt.NDArray[np.int64], mark_us: int | None) -> npt.NDArray[np.bool_]:
        if mark_us is None:
            return np.zeros(len(windows), np.bool_)
        ended: npt.NDArray[np.bool_] = windows + (self.window_ms + self.lateness_ms) * _US_IN_MS <= mark_us
        return ended

    def _cells(self, batch: pa.RecordBatch, windows: npt.NDArray[np.int64]) -> Sequence[pa.Table]:
        columns = [_texts(sql, batch) for _, sql in self.by]
        groups = fingerprints(columns, batch.num_rows)
        weights = pc.fill_null(batch.column("weight"), 1.0).to_numpy(zero_copy_only=False)
        names = [label for label, _ in self.by]
        table = pa.table([windows, *groups, np.arange(len(windows))], ["window", "first", "second", "row"])
        firsts = table.group_by(["window", "first", "second"], use_threads=False).aggregate([("row", "min")])
        rows = firsts.column("row_min").combine_chunks()
        labels = pa.array(
            [
                _encode(dict(zip(names, texts, strict=True))).decode()
                for texts in zip(*(column.take(rows).to_pylist() for column in columns), strict=True)
            ]
            if columns
            else ["{}"] * len(rows),
            pa.string(),
        )
        ordered = labels.take(_positions(rows, batch.num_rows))
        found = [group_cells(windows, groups, ordered, weights)]
        for position, metric in enumerate(self.metrics):
            there, brought = _brought(metric, batch, weights)
            for some in brought:
                where = (groups[0][there], groups[1][there])
                found.append(metric_cells(windows[there], where, position, some))
        return found

    def advance(self, state: State, asked: Sequence[pa.RecordBatch], context: BatchContext) -> Advanced:
        cells = merged([*state, pa.Table.from_batches(asked)] if asked else list(state), self.metrics)
        cells, overflowed = folded(cells, -(-self.max_groups // SHARDS), SHARDS, self.metrics)
        ends = self._ended(cells.column(WINDOW).to_numpy(), context.watermark_after_us) | context.ends
        if not asked and not ends.any():
            return Advanced(state=state, remembered=_groups(cells))
        ended, left = split(cells, ends)
        made = result_events(ended, self.metrics, self.window_ms * _US_IN_MS, context.wall_ms)
        return Advanced(
            state=(left,) if left.num_rows else (),
            made=made if made.num_rows else None,
            remembered=_groups(left),
            counts={"overflowed": round(overflowed)} if overflowed else {},
        )


def _positions(rows: pa.Array, count: int) -> pa.Array:
    """By row of a batch, its position among `rows`; null for rows that are not."""
    found = np.full(count, -1, np.int64)
    found[rows.to_numpy()] = np.arange(len(rows))
    return pa.array(found, mask=found < 0)


def _brought(
    metric: Metric, batch: pa.RecordBatch, weights: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.bool_], Sequence[Touched]]:
    """Which events have a value of a metric, and what these bring to it."""
    if metric.of is None:
        everything = np.ones(batch.num_rows, np.bool_)
        return everything, touched(metric, weights, weights)
    if metric.kind == "unique":
        texts = _texts(metric.of, batch)
        there = texts.is_valid().to_numpy(zero_copy_only=False)
        return there, (touched_by_hash(fingerprints([texts], batch.num_rows)[0][there]),)
    numbers = simple_numbers(metric.of)
    assert numbers is not None, "the compiler has looked at it"
    values = pc.fill_null(numbers(batch), np.nan).to_numpy(zero_copy_only=False)
    there = np.isfinite(values)
    return there, touched(metric, values[there], weights[there])


def _groups(cells: pa.Table) -> int:
    return int(pc.sum(pc.equal(cells.column(METRIC), GROUP)).as_py() or 0)


def _texts(sql: str, batch: pa.RecordBatch) -> pa.Array:
    texts = simple_texts(sql)
    assert texts is not None, "the compiler has looked at it"
    return texts(batch)


# --- from the file ---------------------------------------------------------------------------------------------------


def _compile(model: AggregateModel, common: CommonFields, part: Part) -> AggregateTransform:
    labels: dict[str, str] = {}
    for sql in model.by:
        part.expression("by", sql, wants="any")
        label = attribute_name(sql) or (sql if sql in _TEXT_FIELDS else None)
        if label is None:
            part.problem("by", f"{sql!r} should be an attribute or one of {', '.join(_TEXT_FIELDS)}")
        elif label in labels:
            part.problem("by", f"two groups have the label {label!r}")
        else:
            labels[label] = sql
    metrics = tuple(_metric(name, given, part.at("metrics", name)) for name, given in model.metrics.items())
    return AggregateTransform(
        **common,
        window_ms=model.window,
        by=tuple(labels.items()),
        metrics=metrics,
        time=model.time,
        lateness_ms=model.lateness,
        max_groups=model.max_groups,
    )


def _metric(name: str, model: MetricModel, part: Part) -> Metric:
    if (model.of is None) != (model.type == "count"):
        part.problem((), "counts events, so it takes no of" if model.type == "count" else "needs of: the value")
    elif model.of is not None:
        part.expression("of", model.of, wants="any")
        if model.type == "unique" and simple_texts(model.of) is None:
            part.problem("of", f"{model.of!r} should be a field or an attribute")
        elif model.type != "unique" and simple_numbers(model.of) is None:
            part.problem("of", f"{model.of!r} should be an attribute, severity_number, offset or partition")
    if bool(model.bounds) != (model.type == "histogram"):
        part.problem(
            "bounds" if model.bounds else (),
            "needs bounds" if model.type == "histogram" else "goes with type histogram",
        )
    if any(low >= high for low, high in zip(model.bounds, model.bounds[1:], strict=False)):
        part.problem("bounds", "should rise")
    if model.quantiles and model.type != "quantiles":
        part.problem("quantiles", "goes with type quantiles")
    if not all(0 <= quantile <= 1 for quantile in model.quantiles):
        part.problem("quantiles", "should be between 0 and 1")
    quantiles = tuple(model.quantiles) or _QUANTILES
    return Metric(
        name=name,
        kind=model.type,
        of=model.of,
        bounds=tuple(model.bounds),
        quantiles=quantiles if model.type == "quantiles" else (),
    )


TRANSFORM: Final = TransformType("aggregate", AggregateModel, AggregateTransform, _compile)
