"""Reads and writes streams of the log with Spark. Knows only the options of Spark's Kafka connector."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from logboom.base.units import MIB

POLL_RECORDS: Final = 100_000
"""After each poll Spark queries the start and end of the partition with two requests. With Kafka's default of 500
records per poll, that would be too frequent. So a poll takes everything that a fetch returns. Fetches are limited by
their stored bytes: hundreds of 10 MB lines that compress well may be in memory at once."""
_FETCHING: Final[Mapping[str, str]] = {
    "kafka.max.partition.fetch.bytes": str(2 * MIB),
    # Java's clients request 64 KiB, which also disables the system's automatic choice.
    "kafka.receive.buffer.bytes": "-1",
}


def kafka_reader(spark: SparkSession, bootstrap: str, name: str, poll_records: int = POLL_RECORDS) -> DataStreamReader:
    """A reader of streams, under the name that identifies it in the checkpoint. `poll_records`: limit of records per
    poll."""
    reader = spark.readStream.format("kafka").name(name).option("kafka.bootstrap.servers", bootstrap)
    return reader.option("kafka.max.poll.records", poll_records).options(**_FETCHING)


def spark_name(name: str) -> str:
    """A name in the form that Spark accepts: letters, digits and underscores. Different names stay different.

    >>> spark_name("web-1"), spark_name("web_1")
    ('web_2d1', 'web_5f1')
    """
    return "".join(char if char.isascii() and char.isalnum() else f"_{ord(char):x}" for char in name)


def write_records(records: DataFrame, bootstrap: str, settings: Mapping[str, str]) -> None:
    """Write records (topic, partition, key, value, headers) and wait until all are committed."""
    writer = records.write.format("kafka").mode("append").option("kafka.bootstrap.servers", bootstrap)
    writer.option("includeHeaders", "true").options(**settings).save()
