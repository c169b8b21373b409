"""Runs the steps of a layout over Arrow batches on an executor: kernels, layers, and at the end the emitter.

Knows Arrow and the interface of kernels, but no particular transform. Must not know Spark. Rows keep their order, which
the deliveries rely on. Counts leave a stage as a row of their own among the records, so that the counts of a failed
Spark attempt are discarded with it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.errors import placed, working_on
from logboom.pipeline.event.record_batch import whole_batch
from logboom.pipeline.event.schema import ARROW_TYPES
from logboom.pipeline.event.utf8 import decode_utf8
from logboom.pipeline.plan.layout import KernelNode, KernelPass, Layer, StatefulStep, Step
from logboom.pipeline.plan.nodes import (
    DEAD_COLUMNS,
    DROPPED,
    EVENT_COLUMNS,
    SPLIT_FROM,
    WHEN_COLUMNS,
    failed_column,
    mask_column,
    missed_column,
)
from logboom.pipeline.route.conditions import simple_condition
from logboom.pipeline.route.routing import needs_spark, route_rows
from logboom.pipeline.route.rows import AT, Rows, rows_of

REPORT_AT: Final = -1_000_000
"""The place of the row of counts; no record has this place."""
REPORT: Final = "report"
IN, BYTES_IN, BYTES_OUT, COPIES, MASKED, PLACE = "in", "bytes_in", "bytes_out", "copies", "masked", "place"
MISSED, FAILURES = "missed", "failed"
MADE, HELD_BEFORE, HELD_AFTER, ABANDONED, NOTED = "made", "held_before", "held_after", "abandoned", "noted"
REMEMBERED: Final = "remembered"

_COUNT_COLUMNS: Final = (mask_column(""), missed_column(""), failed_column(""))
_SPLIT_PIECE_BYTES: Final = 4 << 20

Counts = dict[str, int]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, int]).decode


def flat_columns(counts: tuple[str, ...] = ()) -> tuple[tuple[str, str], ...]:
    """Columns and SQL types of rows between two stages; `attributes` is JSON text here. `counts`: columns of counts."""
    event = [(name, "string" if kind == "variant" else kind) for name, kind in (*EVENT_COLUMNS, *DEAD_COLUMNS)]
    return (*event, (AT, "int"), *((name, "int") for name in counts))


def _schema(counts: tuple[str, ...]) -> pa.Schema:
    return pa.schema([(name, ARROW_TYPES[kind]) for name, kind in flat_columns(counts)])


def _count_columns(step: KernelPass) -> dict[str, str]:
    """The name of each count, by the column in which a transform of a pass counts."""
    masked = {mask_column(label): f"{MASKED}:{label}" for label in step.labels}
    missed = {missed_column(label): f"{MISSED}:{label}" for label in step.misses}
    return {**masked, **missed, **{failed_column(label): f"{FAILURES}:{label}" for label in step.failures}}


_FLAT: Final = _schema(())


def flat_schema() -> pa.Schema:
    """Rows between two stages, in Arrow."""
    return _FLAT


@dataclass(frozen=True, slots=True)
class ExecutionStage:
    """Consecutive steps that do not need Spark."""

    spark_layer: Layer | None
    """The layer before them whose conditions Spark evaluates; None for the first stage."""
    steps: tuple[Layer | KernelPass, ...]
    values_of: KernelNode | None = None
    """The transform that begins it and for whose rows Spark computes values (`KernelTransform.event_values`)."""
    behind: StatefulStep | None = None
    """The transforms with a state before this stage."""


def execution_stages(steps: Iterable[Step]) -> tuple[ExecutionStage, ...]:
    """The steps of a layout, cut before each layer whose conditions Spark has to evaluate, before each pass that begins
    with values that Spark has to compute, and after each step with a state."""
    found = [ExecutionStage(None, ())]
    for step in steps:
        if isinstance(step, StatefulStep):
            found.append(ExecutionStage(None, (), behind=step))
            continue
        if isinstance(step, Layer) and needs_spark(step):
            found.append(ExecutionStage(step, ()))
            continue
        if isinstance(step, KernelPass) and step.values:
            found.append(ExecutionStage(None, (), step.nodes[0]))
        found[-1] = replace(found[-1], steps=(*found[-1].steps, step))
    return tuple(found)


def record_conditions(stage: ExecutionStage) -> dict[str, str]:
    """The boolean columns that the stage needs beside raw records and that Spark has to fill, by the SQL of each."""
    asked = _all_record_conditions(stage)
    return {column: sql for column, sql in asked.items() if simple_condition(sql, WHEN_COLUMNS) is None}


def _all_record_conditions(stage: ExecutionStage) -> dict[str, str]:
    passes = (step for step in stage.steps if isinstance(step, KernelPass))
    return {column: sql for step in passes for node in step.nodes for column, sql in node.transform.record_conditions}


def _with_record_conditions(stage: ExecutionStage, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Raw records with the values of the conditions on them that do not need Spark."""
    asked = _all_record_conditions(stage)
    simple = {column: simple_condition(sql, WHEN_COLUMNS) for column, sql in asked.items()}
    if not any(simple.values()):
        return batch
    seen = batch.append_column("line", decode_utf8(batch.column("value").cast(pa.binary())))
    for column, answer in simple.items():
        if answer is not None:
            batch = batch.append_column(column, answer(seen))
    return batch


class TaskEmitter(Protocol):
    """Writes rows at their final place out of the pipeline."""

    def send(self, rows: Rows, counts: Counts) -> None:
        """Sends and counts the rows; may return before they have arrived."""
        ...

    def finish(self, counts: Counts) -> bytes:
        """Returns the task's report for the driver when everything has arrived; raises if that is impossible. `counts`
        are the task's, those of `send` among them."""
        ...


class OpenTaskEmitter(Protocol):
    """Creates an emitter on an executor; this object is pickled and sent there."""

    def __call__(self) -> TaskEmitter: ...


@dataclass(frozen=True, slots=True)
class StageRunner:
    """A stage as executors call it: an iterator of batches to an iterator of batches.

    With an emitter, rows leave through it, and one row with its report comes out. Without one, the rows come out with
    `flat_columns`, followed by the counts of the task at REPORT_AT.
    """

    stage: ExecutionStage
    keys: Mapping[str, bytes]
    entries: Mapping[str, int] | None
    """For the first stage: the start place of each source's records."""
    emitter: OpenTaskEmitter | None
    file: str = ""
    """The pipeline's file, for messages."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = _Task(self)
        emitter = None if self.emitter is None else self.emitter()
        for batch in self._pieces(batches):
            rows = task.enter(batch)
            if not len(rows):  # an empty partition, or a batch with only counts
                continue
            try:
                rows = task.run(rows)
            except Exception as error:  # raised again as one sentence with the place in the file
                raise placed(error, self.file) from error
            if emitter is None:
                yield conform(rows.flat(), _FLAT)
            else:
                emitter.send(rows, task.counts)
        if emitter is None:
            yield _report_row(task.counts)
        else:
            yield pa.RecordBatch.from_pydict({REPORT: pa.array([emitter.finish(task.counts)], pa.binary())})

    def _pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches; before a transform that makes several events of one, in pieces of a few MiB."""
        passes = [step for step in self.stage.steps if isinstance(step, KernelPass)]
        if not any(node.transform.splits for step in passes for node in step.nodes):
            yield from batches
            return
        for batch in batches:
            rows = max(1, batch.num_rows * _SPLIT_PIECE_BYTES // max(1, batch.nbytes))
            yield from (batch.slice(first, rows) for first in range(0, max(1, batch.num_rows), rows))


@dataclass(slots=True)
class _Task:
    runner: StageRunner
    counts: Counts = field(default_factory=dict)

    def enter(self, batch: pa.RecordBatch) -> Rows:
        """The batch as rows: new records are counted; rows of an earlier stage keep its counts."""
        entries = self.runner.entries
        if entries is not None:
            return self._enter_records(batch, entries)
        rows = rows_of(batch)
        reports = rows.at == REPORT_AT
        if not reports.any():
            return rows
        for report in batch.column("value").filter(pa.array(reports)).to_pylist():
            add_counts(self.counts, _decode(report))
        return rows_of(batch.filter(pa.array(~reports)))

    def _enter_records(self, batch: pa.RecordBatch, entries: Mapping[str, int]) -> Rows:
        at = np.zeros(batch.num_rows, np.int32)
        sizes = pc.fill_null(pc.binary_length(batch.column("value")), 0).to_numpy(zero_copy_only=False)
        coded = batch.column("source").dictionary_encode()
        index = coded.indices.to_numpy(zero_copy_only=False)
        for number, source in enumerate(coded.dictionary.to_pylist()):
            here = index == number
            at[here] = entries[source]
            count(self.counts, f"{IN}:{source}", int(here.sum()))
            count(self.counts, f"{BYTES_IN}:{source}", int(sizes[here].sum(dtype=np.int64)))
        return Rows(_with_record_conditions(self.runner.stage, batch), at)

    def run(self, rows: Rows) -> Rows:
        """The rows behind all steps of the stage."""
        layer = self.runner.stage.spark_layer
        if layer is not None:
            rows = self._route(rows, layer, answered=True)
        for step in self.runner.stage.steps:
            rows = self._route(rows, step, answered=False) if isinstance(step, Layer) else self._run_pass(rows, step)
        return rows

    def _route(self, rows: Rows, layer: Layer, *, answered: bool) -> Rows:
        after, failures = route_rows(rows, layer, answered=answered)
        for rule, failed in failures.items():
            count(self.counts, f"{FAILURES}:{rule}", failed)
        count(self.counts, COPIES, len(after) - len(rows))
        return after

    def _run_pass(self, rows: Rows, step: KernelPass) -> Rows:
        batch = run_pass(step, self.runner.keys, rows.flat())
        if batch.num_rows > len(rows):
            count(self.counts, COPIES, batch.num_rows - len(rows))
        columns = _count_columns(step)
        for column, name in columns.items():
            count(self.counts, name, pc.sum(batch.column(column)).as_py() or 0)
        return rows_of(batch.drop_columns(list(columns)))


def count(counts: Counts, name: str, more: int) -> None:
    """Raises one count."""
    counts[name] = counts.get(name, 0) + more


def add_counts(counts: Counts, others: Mapping[str, int]) -> None:
    """Raises many."""
    for name, more in others.items():
        count(counts, name, more)


def counts_report(counts: Counts) -> bytes:
    """The report of an emitter that reports only the counts of its task."""
    return _encode(counts)


def sum_reports(reports: Sequence[bytes]) -> Counts:
    """The sum of the counts that tasks gave as `counts_report`."""
    total: Counts = {}
    for report in reports:
        add_counts(total, _decode(report))
    return total


def _report_row(counts: Counts) -> pa.RecordBatch:
    row = {AT: pa.array([REPORT_AT], pa.int32()), "value": pa.array([_encode(counts)], pa.binary())}
    return conform(pa.RecordBatch.from_pydict(row), _FLAT)


def run_pass(kernel_pass: KernelPass, keys: Mapping[str, bytes], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Runs the kernels of each row's place. Rows that a kernel makes of one row are consecutive."""
    schema = _schema(tuple(_count_columns(kernel_pass)))
    if kernel_pass.reads_records:
        batch = _from_records(kernel_pass, keys, batch, schema)
    for node in kernel_pass.nodes:
        if not node.transform.reads_records:
            batch = _on_events(node, keys, batch, schema)
    return conform(batch, schema)


def _from_records(
    kernel_pass: KernelPass, keys: Mapping[str, bytes], batch: pa.RecordBatch, schema: pa.Schema
) -> pa.RecordBatch:
    """The events of a batch of records. Every row waits for one of the transforms that read records, since nothing else
    reads them."""
    pieces: list[tuple[pa.Array, pa.RecordBatch]] = []
    for node in kernel_pass.nodes:
        if node.transform.reads_records:
            rows = _rows_at(batch, node.arrivals)
            if len(rows):
                part = batch if len(rows) == batch.num_rows else batch.take(rows)
                pieces.append((rows, conform(_run(node, keys, part), schema)))
    return _in_order(pieces)


def _on_events(node: KernelNode, keys: Mapping[str, bytes], batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch after a transform that reads events. Rows at other places are unchanged."""
    rows = _rows_at(batch, node.arrivals)
    if not len(rows):
        return batch
    whole = len(rows) == batch.num_rows
    done = _run(node, keys, batch if whole else batch.take(rows))
    if node.transform.splits:
        origin, done = done.column(SPLIT_FROM), _counted_once(done)
        rows = rows.take(origin)
    if whole:
        return done
    others = pc.indices_nonzero(pc.invert(pc.is_in(batch.column(AT), value_set=_codes(node.arrivals))))
    done = conform(done, schema)
    return _in_order([(rows, done), (others, conform(batch.take(others), schema))])


def _counted_once(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows after a kernel that splits rows; counts by row stay with the first row of each split."""
    origin = batch.column(SPLIT_FROM).to_numpy()
    is_first = pa.array(np.append(True, origin[1:] != origin[:-1]))
    for name in batch.schema.names:
        if name.startswith(_COUNT_COLUMNS):
            once = pc.if_else(is_first, batch.column(name), pa.scalar(0, batch.column(name).type))
            batch = batch.set_column(batch.schema.get_field_index(name), name, once)
    return batch.drop_columns([SPLIT_FROM])


def _run(node: KernelNode, keys: Mapping[str, bytes], batch: pa.RecordBatch) -> pa.RecordBatch:
    with working_on(f"transform {node.transform.name}", node.transform.place):
        return _placed(node, node.transform.run(batch, keys))


def _codes(codes: tuple[int, ...]) -> pa.Array:
    return pa.array(codes, pa.int32())


def _rows_at(batch: pa.RecordBatch, codes: tuple[int, ...]) -> pa.Array:
    return pc.indices_nonzero(pc.is_in(batch.column(AT), value_set=_codes(codes)))


def _placed(node: KernelNode, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows at the place after the kernel; dead rows at the place of dead letters."""
    reasons = batch.column("dead_reason")
    if reasons.null_count == len(reasons):
        at: pa.Array = pa.repeat(pa.scalar(node.leaves, pa.int32()), batch.num_rows)
    else:
        at = pc.if_else(pc.is_valid(reasons), pa.scalar(node.dead, pa.int32()), pa.scalar(node.leaves, pa.int32()))
    if node.dropped:
        rules = batch.column(DROPPED)
        at = pc.if_else(pc.equal(rules, 0), at, pa.array((0, *node.dropped), pa.int32()).take(rules))
    return batch.set_column(batch.schema.get_field_index(AT), AT, at)


def _in_order(pieces: list[tuple[pa.Array, pa.RecordBatch]]) -> pa.RecordBatch:
    """The rows of all pieces, in their order before the split."""
    if len(pieces) == 1:
        return pieces[0][1]
    rows = pa.concat_arrays([rows for rows, _ in pieces])
    whole = whole_batch(pa.Table.from_batches([piece for _, piece in pieces]))
    return whole.take(pc.sort_indices(rows))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the columns and types of a schema; columns it lacks are null, counts it lacks are 0."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for wanted in schema:
        index = batch.schema.get_field_index(wanted.name)
        column = batch.column(index) if index >= 0 else _absent(wanted, batch)
        columns.append(column if column.type.equals(wanted.type) else column.cast(wanted.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _absent(wanted: pa.Field, batch: pa.RecordBatch) -> pa.Array:
    assert wanted.name not in batch.schema.names, f"a kernel has added a second column {wanted.name}"
    rows = batch.num_rows
    if wanted.name.startswith(_COUNT_COLUMNS):
        return pa.repeat(pa.scalar(0, wanted.type), rows)
    return pa.nulls(rows, wanted.type)
