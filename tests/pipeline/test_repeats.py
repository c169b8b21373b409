"""Lines that the collector sent twice are told in the archive by what the docs say."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.support import needs_java
from tests.pipeline_core.batches import parser, raw

pytestmark = [pytest.mark.spark, needs_java]

PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"


def _collected(content: bytes, position: int) -> list[tuple[str, bytes]]:
    return [("host.name", b"h"), ("log.file.id", content), ("log.file.position", b"%d" % position)]


def test_the_query_of_the_docs_leaves_each_line_once(spark: Any) -> None:
    (query,) = (block for block in PAGE.read_text().split("```sql\n")[1:] if "row_number()" in block)
    lines = [(b"a", 0), (b"a", 7), (b"b", 0), (b"a", 7), (b"a", 0)]
    batch = raw([b'{"msg":"x"}'] * 7)
    headers = [*(_collected(*line) for line in lines), None, None]
    index = batch.schema.get_field_index("headers")
    batch = batch.set_column(index, "headers", pa.array(headers, batch.schema.field(index).type))
    rows = parser({"format": "json"}).run(batch, {}).to_pylist()
    columns = ("host", "attributes", "observed_time", "event_id")
    frame = spark.createDataFrame(
        [tuple(row[name] for name in columns) for row in rows],
        "host string, attributes string, observed_time timestamp, event_id string",
    )
    frame.createOrReplaceTempView("events")
    found = spark.sql(query.partition("```")[0]).collect()
    kept = sorted(row["event_id"] for row in found)
    assert kept == [f"web:3:{offset}" for offset in (100, 101, 102, 105, 106)], [json.loads(row[1]) for row in found]
