"""The steps of a layout as one lazy DataFrame: raw records in, rows at their last place, or what became of them, out.

Knows Spark's columns and how an error in a condition is kept from stopping a batch. Must not know streams, sinks or
checkpoints; production, tests and benchmarks all build their rows here. Spark evaluates those conditions that the
kernels cannot; all else happens in the stages between (see `logboom.pipeline.execute.stages`).
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from logboom.pipeline.execute.stages import (
    REPORT,
    REPORT_AT,
    ExecutionStage,
    OpenTaskEmitter,
    StageRunner,
    execution_stages,
    flat_columns,
    record_conditions,
    value_as_json,
)
from logboom.pipeline.plan.layout import Condition, KernelNode, Layer, Layout
from logboom.pipeline.plan.nodes import RAW_COLUMNS
from logboom.pipeline.plan.outcomes import FAILED, FALSE, TRUE
from logboom.pipeline.route.rows import AT
from logboom.pipeline.sql.attributes import PlainAttributes
from logboom.pipeline.sql.regex import OnRe2
from logboom.pipeline.sql.tree import Tree

_TEXT: Final = "attributes_text"
_ATTRIBUTES: Final = re.compile(r"\battributes\b", re.IGNORECASE)


class Flow:
    """Moves rows through the steps of one layout."""

    def __init__(self, spark: SparkSession, layout: Layout, keys: Mapping[str, bytes]) -> None:
        self._spark = spark
        self._layout = layout
        self._keys = keys

    def rows(self, raw: DataFrame) -> DataFrame:
        """Rows with `flat_columns`, from rows with RAW_COLUMNS."""
        return self._through(raw, None).where(F.col(AT) != REPORT_AT)

    def sent(self, raw: DataFrame, emitter: OpenTaskEmitter) -> DataFrame:
        """One row per task with its counts in REPORT, once the emitter has written all of them."""
        return self._through(raw, emitter)

    def _through(self, raw: DataFrame, emitter: OpenTaskEmitter | None) -> DataFrame:
        found = execution_stages(self._layout.steps)
        rows = raw.select(*(name for name, _ in RAW_COLUMNS))
        for number, stage in enumerate(found):
            rows = self._with_answers(rows, stage)
            last = number + 1 == len(found)
            runner = StageRunner(
                stage=stage,
                keys=self._keys,
                entries=self._layout.entries if number == 0 else None,
                emitter=emitter if last else None,
                file=self._layout.plan.file,
            )
            columns = ((REPORT, "binary"),) if last and emitter is not None else flat_columns()
            rows = rows.mapInArrow(runner, ", ".join(f"`{name}` {kind}" for name, kind in columns))
        return rows

    def _with_answers(self, rows: DataFrame, stage: ExecutionStage) -> DataFrame:
        """The rows with the values of those conditions that Spark evaluates in front of a stage."""
        if stage.spark_layer is not None:
            return self._with_conditions(rows, stage.spark_layer)
        if stage.values_of is not None:
            return self._with_values(rows, stage.values_of)
        conditions = self._when_columns(stage)
        if not conditions:
            return rows
        return rows.withColumn("line", F.col("value").cast("string")).withColumns(conditions).drop("line")

    def _when_columns(self, stage: ExecutionStage) -> dict[str, Column]:
        return {column: guarded_condition(self._spark, sql) == TRUE for column, sql in record_conditions(stage).items()}

    def _with_conditions(self, rows: DataFrame, layer: Layer) -> DataFrame:
        """The rows with a column per condition and their new weights. `attributes` is a variant meanwhile."""
        asked = [condition.sql for condition in layer.conditions] + [weight.sql for weight in layer.weights]
        as_variant = any(_ATTRIBUTES.search(sql) for sql in asked)
        # Spark analyses the whole plan at every step of a DataFrame: one step for what does not depend on another.
        if as_variant:
            rows = rows.withColumns({_TEXT: F.col("attributes"), "attributes": F.try_parse_json("attributes")})
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
        """The rows with the values that one transform needs, where they wait for it."""
        here = F.col(AT).isin(*node.arrivals)
        seen = rows.withColumns({_TEXT: F.col("attributes"), "attributes": F.try_parse_json("attributes")})
        values = {
            column: F.when(here, _caught(self._spark, value_as_json(sql)))
            for column, sql in node.transform.event_values
        }
        names = [name for name, _ in flat_columns()]
        kept = [F.col(_TEXT).alias(name) if name == "attributes" else F.col(name) for name in names]
        return seen.withColumns(values).select(*kept, *values)

    def _verdict(self, condition: Condition) -> Column:
        here = F.col(AT).isin(*condition.at)
        return F.when(here, guarded_condition(self._spark, condition.sql)).otherwise(FALSE)


def guarded_condition(spark: SparkSession, sql: str) -> Column:
    """TRUE, FALSE (also for null), or FAILED where evaluating raises: one record must not stop a batch."""
    verdict = _caught(spark, f"CASE WHEN (\n{sql}\n) THEN {TRUE} ELSE {FALSE} END")
    return F.coalesce(verdict, F.lit(FAILED))


def _caught(spark: SparkSession, sql: str) -> Column:
    """The value of SQL, null where computing it raises."""
    jvm = spark._jvm  # noqa: SLF001 - what the `try_` functions of SQL are made of has no name in Python
    assert jvm is not None
    caught = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(_expression(spark, sql))
    return Column(_bridge(jvm).column(caught))


def _unguarded(spark: SparkSession, sql: str) -> Column:
    """The value of SQL that cannot raise on the rows that it is evaluated for."""
    return Column(_bridge(spark._jvm).column(_expression(spark, sql)))  # noqa: SLF001


def _expression(spark: SparkSession, sql: str) -> Any:
    """Catalyst's expression of SQL from a file, its regular expressions on RE2."""
    tree = Tree(spark._jvm)  # noqa: SLF001
    return OnRe2(tree).rewrite(PlainAttributes(tree).rewrite(tree.parse(sql)))


def _bridge(jvm: Any) -> Any:
    """Spark's conversion between its columns and Catalyst's expressions."""
    return jvm.org.apache.spark.sql.classic.ExpressionUtils
