"""Runs the steps of a layout in this process, for a few records: used by `pipeline test`.

The kernels are those of production. Conditions that they cannot evaluate are evaluated by Spark's own analyser,
optimiser and expressions in a JVM without a session. It starts in a second, much faster than a session; without such
conditions no JVM is started. With `Flow`, which does the same in a session, it shares the layout, the stages and the
text of every condition.

Knows layouts, stages and Catalyst. Must not know what is expected of the records.
"""

import base64
import contextlib
import re
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from logboom.pipeline.execute.stages import (
    REPORT,
    REPORT_AT,
    ExecutionStage,
    OpenTaskEmitter,
    StageRunner,
    execution_stages,
    flat_schema,
    record_conditions,
)
from logboom.pipeline.execute.stateful import StatefulBatch, run_shards
from logboom.pipeline.execute.verdicts import Verdicts
from logboom.pipeline.plan.layout import Condition, KernelNode, Layer, Layout, StatefulStep, Weight
from logboom.pipeline.plan.nodes import DEAD_COLUMNS, EVENT_COLUMNS, WHEN_COLUMNS, Column
from logboom.pipeline.plan.outcomes import FAILED, FALSE, TRUE
from logboom.pipeline.route.conditions import simple_condition
from logboom.pipeline.route.rows import AT
from logboom.pipeline.route.sample_columns import true_rows
from logboom.pipeline.spark.catalyst import Catalyst, open_catalyst
from logboom.pipeline.sql.memory import variant_of

_TYPED: Final[Mapping[str, str]] = {
    "string": "_text",
    "variant": variant_of("_text"),
    "int": "CAST(_text AS INT)",
    "bigint": "CAST(_text AS BIGINT)",
    "double": "CAST(_text AS DOUBLE)",
    "timestamp": "timestamp_micros(CAST(_text AS BIGINT))",
    "binary": "unhex(_text)",
    "array<struct<key:string,value:binary>>": "from_json(_text, 'array<struct<key:string,value:binary>>')",
}
"""How Spark converts the text that `_text_of` writes to a value of each type."""


_What = Literal["verdict", "value", "caught"]
"""The purpose of an expression: a condition, a value as JSON, or a value that is null if computing it raises."""


class LazyCatalyst(contextlib.AbstractContextManager["LazyCatalyst"]):
    """Catalyst in a JVM that starts on first use and ends with the block."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._opened: Catalyst | None = None

    def __call__(self) -> Catalyst:
        if self._opened is None:
            self._opened = self._stack.enter_context(open_catalyst())
        return self._opened

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)


class LocalFlow:
    """Moves records through the steps of one layout."""

    def __init__(self, layout: Layout, keys: Mapping[str, bytes], spark: LazyCatalyst) -> None:
        """`spark`: evaluates the expressions that the kernels cannot evaluate."""
        self._layout = layout
        self._keys = keys
        self._spark = spark
        self._known: dict[tuple[str, str, Sequence[Column]], Any] = {}
        """Expressions in the JVM, by what they are for, their SQL and its columns."""

    def rows(self, raw: pa.RecordBatch, stateful: StatefulBatch | None = None) -> pa.RecordBatch:
        """Rows with `flat_columns` at their final place, from records with RAW_COLUMNS. `stateful`: given where
        transforms of the layout have a state."""
        moved, found = [raw], execution_stages(self._layout.steps)
        for number, stage in enumerate(found):
            step = found[number + 1].behind if number + 1 < len(found) else None
            runner = StageRunner(
                stage=stage,
                keys=self._keys,
                entries=self._layout.entries if number == 0 else None,
                emitter=None if step is None else self._open_part(stateful, step),
                file=self._layout.plan.file,
            )
            given = moved if stage.behind is not None else [self._with_answers(batch, stage) for batch in moved]
            moved = list(runner(given))
            if step is not None:
                assert stateful is not None, "whoever runs a layout with a state gives it"
                parts = [report.as_py() for batch in moved for report in batch.column(REPORT)]
                answers = run_shards(stateful.shard_tasks(step, parts, 1))
                resumed = stateful.resumed_tasks(step, parts, answers, 1)
                moved = [batch for task in resumed for batch in task()]
        rows = pa.Table.from_batches(moved, flat_schema()).combine_chunks()
        rows = rows.filter(pa.compute.not_equal(rows.column(AT), REPORT_AT)).combine_chunks()
        return rows.to_batches()[0] if rows.num_rows else pa.RecordBatch.from_pylist([], flat_schema())

    @staticmethod
    def _open_part(stateful: StatefulBatch | None, step: StatefulStep) -> OpenTaskEmitter:
        assert stateful is not None, "whoever runs a layout with a state gives it"
        return partial(stateful.open_part(step), 0)

    def conditions(self, rows: pa.RecordBatch, sqls: Sequence[str]) -> list[list[bool]]:
        """By condition and row: whether it is true of the row, dead or alive."""
        return [[answer == TRUE for answer in answers] for answers in self._answers(rows, sqls, _FOUND_COLUMNS)]

    def _with_answers(self, rows: pa.RecordBatch, stage: ExecutionStage) -> pa.RecordBatch:
        """The rows with the values of those conditions that Spark evaluates in front of a stage."""
        if stage.spark_layer is not None:
            return self._with_conditions(rows, stage.spark_layer)
        if stage.values_of is not None:
            return self._with_values(rows, stage.values_of)
        wanted = record_conditions(stage)
        if not wanted:
            return rows
        lines = pa.array([_line(value) for value in rows.column("value").to_pylist()], pa.string())
        answers = self._answers(rows.append_column("line", lines), list(wanted.values()), WHEN_COLUMNS, simple=False)
        for column, found in zip(wanted, answers, strict=True):
            rows = rows.append_column(column, pa.array([_KERNEL_ANSWERS[answer] for answer in found], pa.bool_()))
        return rows

    def _with_conditions(self, rows: pa.RecordBatch, layer: Layer) -> pa.RecordBatch:
        """The rows with a column per condition, and their new weights."""
        at = rows.column(AT).to_pylist()
        answers = self._answers(rows, [condition.sql for condition in layer.conditions], EVENT_COLUMNS, simple=False)
        verdicts = {
            condition.column: _verdicts(condition, at, found)
            for condition, found in zip(layer.conditions, answers, strict=True)
        }
        weights = self._weights(rows, layer.weights, at, verdicts)
        rows = rows.set_column(rows.schema.get_field_index("weight"), "weight", pa.array(weights, pa.float64()))
        for column, found in verdicts.items():
            rows = rows.append_column(column, pa.array(found, pa.int32()))
        return rows

    def _with_values(self, rows: pa.RecordBatch, node: KernelNode) -> pa.RecordBatch:
        """The rows with the values that one transform needs, where they wait for it."""
        wanted = node.transform.event_values
        found: list[list[Any]] = []
        if rows.num_rows:
            found = self._values(rows, "value", [sql for _, sql in wanted], EVENT_COLUMNS)
        at = rows.column(AT).to_pylist()
        for number, (column, _) in enumerate(wanted):
            given = [answers[number] for answers in found]
            texts = [
                None if place not in node.arrivals or value is None else str(value)
                for place, value in zip(at, given, strict=True)
            ]
            rows = rows.append_column(column, pa.array(texts, pa.string()))
        return rows

    def _weights(
        self, rows: pa.RecordBatch, weights: Sequence[Weight], at: Sequence[int], verdicts: Mapping[str, Sequence[int]]
    ) -> list[float | None]:
        found: list[float | None] = rows.column("weight").to_pylist()
        for weight in weights:
            # If it raises, its condition has failed, and the event keeps its weight as a dead letter.
            grown = self._values(rows, "caught", [weight.sql], EVENT_COLUMNS)
            for number, (place, verdict) in enumerate(zip(at, verdicts[weight.column], strict=True)):
                if place == weight.at and verdict == TRUE:
                    found[number] = grown[number][0]
        return found

    # --- conditions in Spark -----------------------------------------------------------------------------------------

    def _answers(
        self, rows: pa.RecordBatch, sqls: Sequence[str], columns: Sequence[Column], *, simple: bool = True
    ) -> list[list[int]]:
        """By condition and row: TRUE, FALSE (also for null), or FAILED where evaluating raises. `simple`: the kernels
        may evaluate what they can."""
        answers: dict[str, list[int]] = {}
        for sql in dict.fromkeys(sqls):
            own = simple_condition(sql) if simple else None
            if own is not None:
                answers[sql] = [TRUE if true else FALSE for true in true_rows(own(rows)).tolist()]
        asked = [sql for sql in dict.fromkeys(sqls) if sql not in answers]
        if asked and rows.num_rows:
            found = self._values(rows, "verdict", asked, columns)
            answers.update({sql: [row[number] for row in found] for number, sql in enumerate(asked)})
        return [answers.get(sql, []) for sql in sqls]

    def _values(
        self, rows: pa.RecordBatch, what: _What, sqls: Sequence[str], columns: Sequence[Column]
    ) -> list[list[Any]]:
        """By row the value of each expression, which may name these columns."""
        # Only columns that the SQL names are sent to the JVM: a text of 10 MB may be in the record's value, its line
        # and the body.
        named = [column for column in columns if any(_names(sql, column[0]) for sql in sqls)] or columns[:1]
        table = [(name, _TYPED[kind]) for name, kind in named]
        texts = [[_text_of(value) for value in _plain(rows.column(name))] for name, _ in named]
        expressions = [self._expression(what, sql, tuple(columns)) for sql in sqls]
        return self._spark().evaluate(table, list(zip(*texts, strict=True)), expressions)

    def _expression(self, what: _What, sql: str, columns: tuple[Column, ...]) -> Any:
        """Built once, since it takes some hundred calls to the JVM."""
        if (what, sql, columns) not in self._known:
            self._known[what, sql, columns] = self._made(what, sql, columns)
        return self._known[what, sql, columns]

    def _made(self, what: _What, sql: str, columns: tuple[Column, ...]) -> Any:
        verdicts = Verdicts(self._spark())
        if what == "verdict":
            return verdicts.verdict(sql, columns)
        return verdicts.value(sql, columns) if what == "value" else verdicts.caught(sql)


def _names(sql: str, column: str) -> bool:
    """Whether SQL may name a column: the word is in it."""
    return re.search(rf"\b{column}\b", sql, re.IGNORECASE) is not None


_KERNEL_ANSWERS: Final = {TRUE: True, FALSE: False, FAILED: None}
_FOUND_COLUMNS: Final = (*EVENT_COLUMNS, *DEAD_COLUMNS)


def _verdicts(condition: Condition, at: Sequence[int], answers: Sequence[int]) -> list[int]:
    return [answer if place in condition.at else FALSE for place, answer in zip(at, answers, strict=True)]


def _line(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _plain(column: pa.Array) -> list[Any]:
    """Values as Python has them; times as microseconds, which is exact."""
    values: list[Any] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return values


def _text_of(value: Any) -> str | None:
    """A value as `_TYPED` reads it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        pairs = [
            {"key": pair["key"], "value": None if pair["value"] is None else base64.b64encode(pair["value"]).decode()}
            for pair in value
        ]
        return msgspec.json.encode(pairs).decode()
    return repr(value)
