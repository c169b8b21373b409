"""How far a query is behind, as Spark tells it after each batch."""

from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.support import make_stream, needs_java, publish
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.spark.kafka import kafka_reader
from logboom.pipeline.spark.listening import lags_reported

pytestmark = [pytest.mark.spark, needs_java]

PARTITIONS = 3
PER_BATCH = 4
RECORDS = 10


def test_a_query_tells_after_each_batch_how_many_records_it_has_not_read(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    """As what PySpark itself copies of each batch's progress says: Spark has the average of the partitions there."""
    make_stream(broker.kafka, "lag", PARTITIONS)
    publish(broker.kafka, "lag", [b"x"] * RECORDS, PARTITIONS)
    told: list[tuple[str, int]] = []

    with lags_reported(spark, lambda query, records: told.append((query, records))):
        reader = (
            kafka_reader(spark, broker.kafka, "lag").option("subscribe", "lag").option("startingOffsets", "earliest")
        )
        query = (
            reader.option("maxOffsetsPerTrigger", PER_BATCH)
            .load()
            .writeStream.queryName("lags: router")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .format("noop")
            .start()
        )
        assert query.awaitTermination(WAIT_S)
        until(lambda: ("lags: router", 0) in told, "the last batch's figure")
        progress = query.recentProgress
    averages = [float(each.sources[0].metrics["avgOffsetsBehindLatest"]) for each in progress]
    assert [records for _, records in told] == [round(average * PARTITIONS) for average in averages]
    assert told[0][1] > told[-1][1] == 0
