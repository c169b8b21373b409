"""Examples through a Spark session: for `pipeline test --master`, and for the test that compares both.

Knows Spark and flows. Must not know what is expected of the records.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from logboom.pipeline.execute.examples import Collect, Row
from logboom.pipeline.execute.flow import Flow, guarded_condition
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.plan.nodes import DEAD_COLUMNS, EVENT_COLUMNS, RAW_COLUMNS
from logboom.pipeline.plan.outcomes import TRUE
from logboom.pipeline.route.rows import AT


def collect_on(spark: SparkSession) -> Collect:
    """Takes records through the pipeline in one job of a session."""

    def collect(
        layout: Layout, keys: Mapping[str, bytes], raw: pa.RecordBatch, conditions: Sequence[str]
    ) -> tuple[list[Row], list[list[bool]]]:
        schema = ", ".join(f"`{name}` {kind}" for name, kind in RAW_COLUMNS)
        given = spark.createDataFrame([tuple(row[name] for name, _ in RAW_COLUMNS) for row in raw.to_pylist()], schema)
        rows = Flow(spark, layout, keys).rows(given.coalesce(1))
        seen = rows.withColumn("attributes_text", F.col("attributes"))
        seen = seen.withColumn("attributes", F.try_parse_json("attributes"))
        verdicts = [
            (guarded_condition(spark, sql, (*EVENT_COLUMNS, *DEAD_COLUMNS)) == TRUE).alias(f"met_{number}")
            for number, sql in enumerate(conditions)
        ]
        names = [name for name, kind in (*EVENT_COLUMNS, *DEAD_COLUMNS) if kind != "variant"]
        found = seen.select(AT, *names, "attributes_text", *verdicts).collect()
        columns: list[Row] = [
            {**{name: row[name] for name in (AT, *names)}, "attributes": row["attributes_text"]} for row in found
        ]
        met = [[bool(row[f"met_{number}"]) for row in found] for number in range(len(conditions))]
        return columns, met

    return collect
