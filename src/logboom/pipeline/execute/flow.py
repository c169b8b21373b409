"""The steps of a layout as one lazy DataFrame: its input is raw records; its output is rows at their final place, or
counts of the outcomes.

Knows Spark's columns and how an error in a condition is prevented from stopping a batch. Must not know streams, sinks
or checkpoints; production, tests and benchmarks all build their rows here. Spark evaluates only the conditions that the
kernels cannot evaluate; the stages between do everything else (see `logboom.pipeline.execute.stages`).
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from logboom.pipeline.execute.stages import (
    REPORT,
    REPORT_AT,
    Counts,
    ExecutionStage,
    OpenTaskEmitter,
    StageRunner,
    TaskEmitter,
    add_counts,
    execution_stages,
    flat_columns,
    record_conditions,
    sum_reports,
)
from logboom.pipeline.execute.stateful import OpenPart, ResumedTask, ShardTask, StatefulBatch
from logboom.pipeline.execute.verdicts import Verdicts
from logboom.pipeline.plan.layout import Condition, KernelNode, Layer, Layout, StatefulStep
from logboom.pipeline.plan.nodes import EVENT_COLUMNS, RAW_COLUMNS, WHEN_COLUMNS
from logboom.pipeline.plan.outcomes import FAILED, FALSE, TRUE
from logboom.pipeline.route.rows import AT
from logboom.pipeline.spark.catalyst import Catalyst
from logboom.pipeline.spark.jvm_classes import JvmClasses
from logboom.pipeline.sql.expression import record_expression
from logboom.pipeline.sql.memory import variant_of
from logboom.pipeline.sql.tree import Tree

_CONDITIONS_MAX: Final = 1024
_SESSION: Final = "org.apache.spark.sql.classic.SparkSession"
_TEXT: Final = "attributes_text"
_ATTRIBUTES: Final = re.compile(r"\battributes\b", re.IGNORECASE)


class Flow:
    """Moves rows through the steps of one layout."""

    def __init__(
        self, spark: SparkSession, layout: Layout, keys: Mapping[str, bytes], stateful: StatefulBatch | None = None
    ) -> None:
        """`stateful`: required if transforms of the layout have a state."""
        self._spark = spark
        self._layout = layout
        self._keys = keys
        self._stateful = stateful

    def rows(self, raw: DataFrame) -> DataFrame:
        """Rows with `flat_columns`, from rows with RAW_COLUMNS."""
        return self._through(raw, None).where(F.col(AT) != REPORT_AT)

    def sent(self, raw: DataFrame, emitter: OpenTaskEmitter) -> Counts:
        """The counts of the batch, once the emitter has written all of it."""
        counts = sum_reports(_reports(self._through(raw, emitter)))
        if self._stateful is not None:
            add_counts(counts, self._stateful.counts)
        return counts

    def _through(self, raw: DataFrame, emitter: OpenTaskEmitter | None) -> DataFrame:
        found = execution_stages(self._layout.steps)
        rows = raw.select(*(name for name, _ in RAW_COLUMNS))
        tasks: Sequence[ResumedTask] = ()
        for number, stage in enumerate(found):
            step = found[number + 1].behind if number + 1 < len(found) else None
            last = number + 1 == len(found)
            runner = StageRunner(
                stage=stage,
                keys=self._keys,
                entries=self._layout.entries if number == 0 else None,
                emitter=emitter if last else None if step is None else _OpenPart(self._batch.open_part(step)),
                file=self._layout.plan.file,
            )
            columns = flat_columns() if runner.emitter is None else ((REPORT, "binary"),)
            types = ", ".join(f"`{name}` {kind}" for name, kind in columns)
            if stage.behind is None:
                rows = self._with_answers(rows, stage).mapInArrow(runner, types)
            else:
                rows = self._numbers(len(tasks)).mapInArrow(_Resumed(runner, tuple(tasks)), types)
            if step is not None:
                tasks = self._through_shards(step, _reports(rows))
        return rows

    @property
    def _batch(self) -> StatefulBatch:
        assert self._stateful is not None, "whoever runs a layout with a state gives it"
        return self._stateful

    def _through_shards(self, step: StatefulStep, parts: Sequence[bytes]) -> Sequence[ResumedTask]:
        """Runs the shards of a step; returns the tasks that give the rows after it."""
        slots = self._spark.sparkContext.defaultParallelism
        tasks = self._batch.shard_tasks(step, parts, slots)
        runner = _Shards(tuple(tasks))
        answers = _reports(self._numbers(len(tasks)).mapInArrow(runner, f"`{REPORT}` binary"))
        return self._batch.resumed_tasks(step, parts, answers, slots)

    def _numbers(self, count: int) -> DataFrame:
        """A DataFrame with one task for each number from 0; with one empty task if there are none."""
        return self._spark.range(0, max(1, count), 1, max(1, count))

    def _with_answers(self, rows: DataFrame, stage: ExecutionStage) -> DataFrame:
        """The rows with the values of the conditions that Spark evaluates before a stage."""
        if stage.spark_layer is not None:
            return self._with_conditions(rows, stage.spark_layer)
        if stage.values_of is not None:
            return self._with_values(rows, stage.values_of)
        conditions = self._when_columns(stage)
        if not conditions:
            return rows
        return rows.withColumn("line", F.col("value").cast("string")).withColumns(conditions).drop("line")

    def _when_columns(self, stage: ExecutionStage) -> dict[str, Column]:
        return {
            column: F.nullif(guarded_condition(self._spark, sql, WHEN_COLUMNS), F.lit(FAILED)).cast("boolean")
            for column, sql in record_conditions(stage).items()
        }

    def _with_conditions(self, rows: DataFrame, layer: Layer) -> DataFrame:
        """The rows with a column per condition and their new weights. `attributes` is a variant meanwhile."""
        asked = [condition.sql for condition in layer.conditions] + [weight.sql for weight in layer.weights]
        as_variant = any(_ATTRIBUTES.search(sql) for sql in asked)
        # Spark analyses the whole plan at every step of a DataFrame: so independent columns are added in one step.
        if as_variant:
            rows = rows.withColumns({_TEXT: F.col("attributes"), "attributes": F.expr(variant_of("attributes"))})
        rows = rows.withColumns({condition.column: self._verdict(condition) for condition in layer.conditions})
        changed: dict[str, Column] = {"attributes": F.col(_TEXT)} if as_variant else {}
        if layer.weights:
            cases = " ".join(
                f"WHEN at = {weight.at} AND {weight.column} = {TRUE} THEN {weight.sql}\n" for weight in layer.weights
            )
            changed["weight"] = _unguarded(self._spark, f"CASE {cases} ELSE weight END")
        if not changed:
            return rows
        names = [*(name for name, _ in flat_columns()), *(condition.column for condition in layer.conditions)]
        return rows.select(*(changed[name].alias(name) if name in changed else F.col(name) for name in names))

    def _with_values(self, rows: DataFrame, node: KernelNode) -> DataFrame:
        """The rows with the values that one transform needs, for rows that wait for it."""
        here = F.col(AT).isin(*node.arrivals)
        seen = rows.withColumns({_TEXT: F.col("attributes"), "attributes": F.expr(variant_of("attributes"))})
        values = {column: F.when(here, guarded_value(self._spark, sql)) for column, sql in node.transform.event_values}
        names = [name for name, _ in flat_columns()]
        kept = [F.col(_TEXT).alias(name) if name == "attributes" else F.col(name) for name in names]
        return seen.withColumns(values).select(*kept, *values)

    def _verdict(self, condition: Condition) -> Column:
        here = F.col(AT).isin(*condition.at)
        return F.when(here, guarded_condition(self._spark, condition.sql)).otherwise(FALSE)


@dataclass(frozen=True, slots=True)
class _OpenPart:
    """Opens the writer of a Spark task's part."""

    open_part: OpenPart

    def __call__(self) -> TaskEmitter:
        context = TaskContext.get()
        assert context is not None, "runs only on executors"
        return self.open_part(context.partitionId())


@dataclass(frozen=True, slots=True)
class _Shards:
    """Runs the shards with the given numbers."""

    tasks: tuple[ShardTask, ...]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _given(numbers):
            yield pa.RecordBatch.from_pydict({REPORT: pa.array([self.tasks[number]()], pa.binary())})


@dataclass(frozen=True, slots=True)
class _Resumed:
    """A stage over the rows after a step with a state, by the numbers of the tasks that give them."""

    runner: StageRunner
    tasks: tuple[ResumedTask, ...]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = [number for number in _given(numbers) if number < len(self.tasks)]
        return self.runner(batch for number in given for batch in self.tasks[number]())


def _given(numbers: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in numbers:
        yield from batch.column(0).to_pylist()


def _reports(rows: DataFrame) -> list[bytes]:
    return [bytes(row[REPORT]) for row in rows.collect()]


def guarded_condition(spark: SparkSession, sql: str, columns: Sequence[tuple[str, str]] = EVENT_COLUMNS) -> Column:
    """TRUE, FALSE (also for null), or FAILED if evaluating raises or if a failed part leaves no answer: one record must
    not stop a batch. `columns`: what the SQL may name."""
    return _column(spark, _verdict(_session_verdicts(spark.sparkContext), sql, tuple(columns)))


def guarded_value(spark: SparkSession, sql: str, columns: Sequence[tuple[str, str]] = EVENT_COLUMNS) -> Column:
    """The value of SQL as JSON (`KernelTransform.event_values`), null if it fails."""
    return _column(spark, _value(_session_verdicts(spark.sparkContext), sql, tuple(columns)))


@lru_cache(maxsize=_CONDITIONS_MAX)
def _verdict(verdicts: "_SessionVerdicts", sql: str, columns: tuple[tuple[str, str], ...]) -> Any:
    return verdicts.verdict(sql, columns)


@lru_cache(maxsize=_CONDITIONS_MAX)
def _value(verdicts: "_SessionVerdicts", sql: str, columns: tuple[tuple[str, str], ...]) -> Any:
    return verdicts.value(sql, columns)


@lru_cache(maxsize=1)
def _session_verdicts(context: SparkContext) -> "_SessionVerdicts":
    return _SessionVerdicts(context)


class _SessionVerdicts:
    """Verdicts in the JVM of a session. Catalyst takes its settings from the active session of the calling thread. The
    settings are changed here, so it gets a session of its own."""

    def __init__(self, context: SparkContext) -> None:
        gateway = context._gateway  # noqa: SLF001 - as below
        assert gateway is not None
        self._sessions = JvmClasses(gateway.jvm).module(_SESSION)
        self._own = self._sessions.getDefaultSession().get().newSession()
        with self._active():
            self._catalyst = Catalyst(gateway)

    def verdict(self, sql: str, columns: tuple[tuple[str, str], ...]) -> Any:
        """The expression for a condition over these columns."""
        with self._active():
            return self._verdicts().verdict(sql, columns)

    def value(self, sql: str, columns: tuple[tuple[str, str], ...]) -> Any:
        """The expression for a value over these columns."""
        with self._active():
            return self._verdicts().value(sql, columns)

    def _verdicts(self) -> Verdicts:
        """For one expression: its objects are released before the session ends."""
        return Verdicts(self._catalyst, (Py4JJavaError, PySparkException))

    @contextlib.contextmanager
    def _active(self) -> Iterator[None]:
        before = self._sessions.getActiveSession()
        self._sessions.setActiveSession(self._own)
        try:
            yield
        finally:
            if before.isDefined():
                self._sessions.setActiveSession(before.get())
            else:
                self._sessions.clearActiveSession()


def _unguarded(spark: SparkSession, sql: str) -> Column:
    """The value of SQL that cannot raise on the rows that it is evaluated for."""
    classes = JvmClasses(spark._jvm)  # noqa: SLF001 - Catalyst's expressions have no other way in
    return _column(spark, record_expression(Tree(classes), sql))


def _column(spark: SparkSession, expression: Any) -> Column:
    """One of Spark's columns for an expression of Catalyst's."""
    return Column(_bridge(spark._jvm)(expression))  # noqa: SLF001 - as above


@lru_cache(maxsize=1)
def _bridge(jvm: Any) -> Any:
    """Spark's conversion of Catalyst's expressions to its columns."""
    return JvmClasses(jvm).static("org.apache.spark.sql.classic.ExpressionUtils", "column")
