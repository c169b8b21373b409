"""The steps of a layout as one lazy DataFrame: raw records in, rows at their last place out.

Knows Spark's columns and how conditions are kept from stopping a batch. Must not know streams, sinks, checkpoints or
where the rows go; production, tests and benchmarks all build their rows here.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from logboom.pipeline.envelope import EVENT, open_event
from logboom.pipeline.kernels import AT, PassRunner, pass_columns
from logboom.pipeline.layout import FAILED, FALSE, TRUE, Condition, KernelPass, Layer, Layout, Step
from logboom.pipeline.plan import RAW_COLUMNS, ParseTransform, mask_column

Watch = Callable[[str, DataFrame, Mapping[str, Column]], DataFrame]
"""Given a name and aggregates, a DataFrame that lets them be known once it has run; see `logboom.pipeline.counting`."""

IN, BYTES_IN, COPIES, MASKED = "in", "bytes_in", "copies", "masked"
_NEXT: Final = "next"
_TEXT: Final = "attributes_text"
_ATTRIBUTES: Final = re.compile(r"\battributes\b", re.IGNORECASE)


class Flow:
    """Moves rows through the steps of one layout."""

    def __init__(self, spark: SparkSession, layout: Layout, keys: Mapping[str, bytes], watch: Watch) -> None:
        self._spark = spark
        self._layout = layout
        self._keys = keys
        self._watch = watch

    def rows(self, raw: DataFrame) -> DataFrame:
        """Rows with EVENT_COLUMNS, DEAD_COLUMNS, EVENT and `at`, from rows with RAW_COLUMNS."""
        entries = self._layout.entries
        start = " ".join(f"WHEN '{name}' THEN {code}" for name, code in entries.items())
        rows = raw.select(*(name for name, _ in RAW_COLUMNS), F.expr(f"CASE source {start} END").alias(AT))
        counts = {f"{IN}:{name}": F.count_if(F.col("source") == name) for name in entries}
        rows = self._watch(IN, rows, {**counts, BYTES_IN: F.sum(F.length("value"))})
        written_at = _written_at(self._layout.steps)
        for number, step in enumerate(self._layout.steps):
            if number == written_at:
                rows = rows.withColumn(EVENT, open_event())
            rows = self._passed(rows, step, number) if isinstance(step, KernelPass) else self._moved(rows, step, number)
        return rows if EVENT in rows.columns else rows.withColumn(EVENT, open_event())

    def _passed(self, rows: DataFrame, step: KernelPass, number: int) -> DataFrame:
        if step.parses:
            raw = (*(name for name, _ in RAW_COLUMNS), AT)
            rows = rows.withColumn("line", F.col("value").cast("string")).select(*raw, *self._when_columns(step))
        schema = ", ".join(f"`{name}` {kind}" for name, kind in pass_columns(step.labels))
        rows = rows.mapInArrow(PassRunner(step, self._keys), schema)
        if not step.labels:
            return rows
        counts = {f"{MASKED}:{label}": F.sum(mask_column(label)) for label in step.labels}
        return self._watch(f"{MASKED}:{number}", rows, counts).select(*(name for name, _ in pass_columns(())))

    def _when_columns(self, step: KernelPass) -> list[Column]:
        parses = [node.transform for node in step.nodes if isinstance(node.transform, ParseTransform)]
        rules = [rule for parse in parses for rule in parse.rules if rule.when is not None and rule.when_column]
        return [(tried(self._spark, rule.when or "") == TRUE).alias(str(rule.when_column)) for rule in rules]

    def _moved(self, rows: DataFrame, layer: Layer, number: int) -> DataFrame:
        columns = rows.columns
        rows = self._judged(rows, layer)
        if layer.weights:
            cases = " ".join(
                f"WHEN at = {code} AND {column} = {TRUE} THEN {sql}\n" for code, column, sql in layer.weights
            )
            rows = rows.withColumn("weight", F.expr(f"CASE {cases} ELSE weight END"))
        rows = rows.withColumn(_NEXT, F.expr(layer.next_sql))
        if _TEXT in rows.columns:
            rows = rows.withColumn("attributes", F.col(_TEXT))
        kept = [name for name in columns if name != AT]
        if not layer.copies:
            return rows.select(*kept, F.col(_NEXT).alias(AT))
        rows = self._watch(f"{COPIES}:{number}", rows, {COPIES: F.sum(F.size(_NEXT) - 1)})
        return rows.select(*kept, F.explode(_NEXT).alias(AT))

    def _judged(self, rows: DataFrame, layer: Layer) -> DataFrame:
        """The rows with one column per condition, and `attributes` as a variant where anything asks for it."""
        asked = [condition.sql for condition in layer.conditions] + [sql for _, _, sql in layer.weights]
        if any(_ATTRIBUTES.search(sql) for sql in asked):
            rows = rows.withColumn(_TEXT, F.col("attributes"))
            rows = rows.withColumn("attributes", F.try_parse_json("attributes"))
        return rows.withColumns({condition.column: self._verdict(condition) for condition in layer.conditions})

    def _verdict(self, condition: Condition) -> Column:
        here = F.col(AT).isin(*condition.at)
        return F.when(here, tried(self._spark, condition.sql)).otherwise(FALSE)


def tried(spark: SparkSession, sql: str) -> Column:
    """1 where true, 0 where false or null, FAILED where evaluating raises: one record must not stop a batch."""
    verdict = F.expr(f"CASE WHEN (\n{sql}\n) THEN {TRUE} ELSE {FALSE} END")
    jvm = spark._jvm  # noqa: SLF001 - what the `try_` functions of SQL are made of has no name in Python
    assert jvm is not None
    bridge = jvm.org.apache.spark.sql.classic.ExpressionUtils
    caught = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(bridge.expression(verdict._jc))  # noqa: SLF001
    return F.coalesce(Column(bridge.column(caught)), F.lit(FAILED))


def _written_at(steps: tuple[Step, ...]) -> int | None:
    """The step before which events are written as JSON: once each, before copies, when no kernel changes them more."""
    last_pass = max((number for number, step in enumerate(steps) if isinstance(step, KernelPass)), default=-1)
    copying = (number for number, step in enumerate(steps) if isinstance(step, Layer) and step.copies)
    return next((number for number in copying if number > last_pass), None)


def unwatched(_name: str, rows: DataFrame, _counts: Mapping[str, Column]) -> DataFrame:
    """For rows whose counts nobody asks for."""
    return rows
