"""The transform `aggregate`: metrics of events in windows, by groups. The work is `logboom.pipeline.aggregate`."""

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from logboom.base.settings import DurationMs, Settings, Texts, format_duration_ms
from logboom.pipeline.aggregate.cells import ASKED, FIRST, Brought, Groups, cells_of_events, column_of
from logboom.pipeline.aggregate.measures import Kind, Metric, Touched, touched, touched_by_hash
from logboom.pipeline.aggregate.open_windows import Limit, OpenWindows
from logboom.pipeline.aggregate.window_results import result_events
from logboom.pipeline.findings import Part
from logboom.pipeline.plan.dials import Dial, DialValues
from logboom.pipeline.plan.stateful import Advanced, Asked, BatchContext, State, StatefulTransform, dropped_by
from logboom.pipeline.route.values import attribute_name, simple_numbers, simple_texts
from logboom.pipeline.state.keys import fingerprints
from logboom.pipeline.state.memory import SHARDS
from logboom.pipeline.transforms.base import CommonFields, TransformModel, TransformType
from logboom.pipeline.transforms.dialled import Dialled, DialParts, fields_of, time_dial
from logboom.pipeline.transforms.stateful_parts import texts_of

_US_IN_MS: Final = 1_000
_DAY_MS: Final = 86_400_000
_GROUPS_MAX: Final = 10_000_000
_TEXT_FIELDS: Final = ("service", "host", "severity_text", "source", "stream", "trace_id", "body")
_QUANTILES: Final = (0.5, 0.9, 0.99)
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_:]")
_SERIES: Final = {"histogram": ("_bucket", "_sum", "_count"), "quantiles": ("", "_sum", "_count")}
"""What Prometheus's names of series end with."""
_encode = msgspec.json.Encoder().encode


class MetricModel(Settings):
    """One metric."""

    type: Kind
    of: str | None = None
    """The value: an attribute or a field; of all but `count`."""

    bounds: list[Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=list, max_length=200)
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

    lateness: Dialled[Annotated[DurationMs, Field(ge=0, le=_DAY_MS)]] = 10_000
    """How long after its end a window takes events, by the times of events."""

    max_groups: Dialled[Annotated[int, Field(ge=SHARDS, le=_GROUPS_MAX)]] = 10_000
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
    def settings_with_dials(self) -> tuple[Dial, ...]:
        return (
            Dial(setting="max_groups", value=self.max_groups, kind="whole", min=SHARDS, max=_GROUPS_MAX),
            time_dial("lateness", self.lateness_ms, at_least=0, at_most=_DAY_MS),
        )

    def turned(self, values: DialValues) -> Self:
        return msgspec.structs.replace(self, **fields_of(values, {"lateness": "lateness_ms"}))

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
        if not batch.num_rows:
            return Asked(pa.RecordBatch.from_pylist([], ASKED), np.zeros(0, np.uint64), exits)
        cells, without = self._cells(batch, windows)
        (rows,) = cells.to_batches()
        return Asked(rows, rows.column(FIRST).to_numpy(), exits, without)

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

    def _cells(self, batch: pa.RecordBatch, windows: npt.NDArray[np.int64]) -> tuple[pa.Table, dict[str, int]]:
        """What the events bring, and how many have no value of a metric, as `METRIC.without`."""
        columns = [texts_of(sql, batch) for _, sql in self.by]
        names = [label for label, _ in self.by]
        weights = pc.fill_null(batch.column("weight"), 1.0).to_numpy(zero_copy_only=False)

        def labels_of(rows: npt.NDArray[np.int64]) -> list[str]:
            texts = [column.take(pa.array(rows)).to_pylist() for column in columns]
            if not texts:
                return ["{}"] * len(rows)
            return [_encode(dict(zip(names, row, strict=True))).decode() for row in zip(*texts, strict=True)]

        groups = Groups(windows, *fingerprints(columns, batch.num_rows))
        brought: list[Brought] = []
        without: dict[str, int] = {}
        for position, metric in enumerate(self.metrics):
            there, found = _brought(metric, batch, weights)
            brought += [Brought(position, metric.operation, there, some) for some in found]
            if not there.all():
                without[f"{metric.name}.without"] = int((~there).sum())
        return cells_of_events(groups, weights, labels_of, brought), without

    def advance(self, state: State, asked: Sequence[pa.RecordBatch], context: BatchContext) -> Advanced:
        before, older = OpenWindows.of(self.metrics, state)
        batch = pa.concat_tables([ASKED.empty_table(), *older, *(pa.Table.from_batches([rows]) for rows in asked)])
        opened, overflowed = before.with_batch(batch.combine_chunks(), self._limit(batch))
        groups, cells = opened.ending(self._open_from(context))
        made = result_events(groups, cells, self.metrics, self.window_ms * _US_IN_MS, context.wall_ms)
        left = opened.ended(groups)
        return Advanced(
            state=left.state(),
            made=made if made.num_rows else None,
            remembered=left.count(),
            counts={"overflowed": round(overflowed)} if overflowed else {},
        )

    def _limit(self, asked: pa.Table) -> Limit:
        shard = int(column_of(asked, FIRST).max()) % SHARDS if asked.num_rows else 0
        return Limit(-(-self.max_groups // SHARDS), str(shard))

    def _open_from(self, context: BatchContext) -> int:
        """Windows that begin before it, in microseconds, have ended behind the batch."""
        if context.ends:
            return np.iinfo(np.int64).max
        mark = context.watermark_after_us
        if mark is None:
            return np.iinfo(np.int64).min
        return mark - (self.window_ms + self.lateness_ms) * _US_IN_MS + 1


def _brought(
    metric: Metric, batch: pa.RecordBatch, weights: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.bool_], Sequence[Touched]]:
    """Which events have a value of a metric, and what these bring to it."""
    if metric.of is None:
        everything = np.ones(batch.num_rows, np.bool_)
        return everything, touched(metric, weights, weights)
    if metric.kind == "unique":
        texts = texts_of(metric.of, batch)
        there = texts.is_valid().to_numpy(zero_copy_only=False)
        return there, (touched_by_hash(fingerprints([texts], batch.num_rows)[0][there]),)
    numbers = simple_numbers(metric.of)
    assert numbers is not None, "the compiler has looked at it"
    values = pc.fill_null(numbers(batch), np.nan).to_numpy(zero_copy_only=False)
    there = np.isfinite(values)
    return there, touched(metric, values[there], weights[there])


# --- from the file ---------------------------------------------------------------------------------------------------


def _compile(model: AggregateModel, common: CommonFields, part: Part) -> AggregateTransform:
    dials = DialParts(part)
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
    _check_names(model, part)
    metrics = tuple(_metric(name, given, part.at("metrics", name)) for name, given in model.metrics.items())
    return AggregateTransform(
        **common,
        window_ms=model.window,
        by=tuple(labels.items()),
        metrics=metrics,
        time=model.time,
        lateness_ms=dials.milliseconds("lateness", model.lateness, at_least=0, at_most=_DAY_MS),
        max_groups=dials.whole("max_groups", model.max_groups, at_least=SHARDS, at_most=_GROUPS_MAX),
        named_dials=dials.named(),
    )


def _check_names(model: AggregateModel, part: Part) -> None:
    """Every metric needs a name; two that are one series to Prometheus, whose names have fewer characters, are hardly
    meant."""
    taken: dict[str, str] = {}
    for name, metric in model.metrics.items():
        if not name.strip() or not name.isprintable():
            part.problem("metrics", f"{name!r} is not a valid name of a metric")
        plain = _NOT_IN_NAMES.sub("_", name)
        for ending in _SERIES.get(metric.type, ("",)):
            other = taken.setdefault(f"{plain}{ending}", name)
            if other != name:
                part.warning(("metrics", name), f"has the series {plain}{ending} in Prometheus, as {other!r} has")


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
