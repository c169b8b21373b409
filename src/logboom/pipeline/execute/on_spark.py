"""Examples through a Spark session: for `pipeline test --master`, and for the test that compares both.

Knows Spark and flows. Must not know expectations.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from logboom.pipeline.execute.examples import Collect, Collected, Row, dropped_without_rows, example_batches
from logboom.pipeline.execute.flow import Flow, guarded_condition
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.plan.nodes import DEAD_COLUMNS, EVENT_COLUMNS, RAW_COLUMNS
from logboom.pipeline.plan.outcomes import TRUE
from logboom.pipeline.route.rows import AT
from logboom.pipeline.sql.memory import variant_of

_NAMES: Final = [name for name, kind in (*EVENT_COLUMNS, *DEAD_COLUMNS) if kind != "variant"]


def collect_on(spark: SparkSession) -> Collect:
    """Processes records in one job of a session."""

    def collect(layout: Layout, keys: Mapping[str, bytes], raw: pa.RecordBatch, conditions: Sequence[str]) -> Collected:
        found, dropped = [], Counter[int]()
        for records, batch in example_batches(layout, raw):
            found += _rows(spark, Flow(spark, layout, keys, batch), records, conditions)
            dropped += dropped_without_rows(batch)
        columns: list[Row] = [
            {**{name: row[name] for name in (AT, *_NAMES)}, "attributes": row["attributes_text"]} for row in found
        ]
        met = [[bool(row[f"met_{number}"]) for row in found] for number in range(len(conditions))]
        return Collected(columns, met, dropped)

    return collect


def _rows(spark: SparkSession, flow: Flow, records: pa.RecordBatch, conditions: Sequence[str]) -> list[Any]:
    """The final places of the records of one batch."""
    schema = ", ".join(f"`{name}` {kind}" for name, kind in RAW_COLUMNS)
    given = spark.createDataFrame([tuple(row[name] for name, _ in RAW_COLUMNS) for row in records.to_pylist()], schema)
    rows = flow.rows(given.coalesce(1)).withColumn("attributes_text", F.col("attributes"))
    seen = rows.withColumn("attributes", F.expr(variant_of("attributes")))
    verdicts = [
        (guarded_condition(spark, sql, (*EVENT_COLUMNS, *DEAD_COLUMNS)) == TRUE).alias(f"met_{number}")
        for number, sql in enumerate(conditions)
    ]
    return list(seen.select(AT, *_NAMES, "attributes_text", *verdicts).collect())
