"""Streams of the log as Spark reads and writes them. Knows the options of Spark's Kafka connector and nothing else."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from logboom.base.units import MIB

POLL_RECORDS: Final = 100_000
"""After each poll Spark asks the log where the partition begins and ends, with two requests: not for every 500
records, as Kafka's default would have it. So a poll takes all that a fetch brings, which is limited by bytes as they
are stored: lines of 10 MB that compress well may be hundreds, and all of them are in memory at once."""
_FETCHING: Final[Mapping[str, str]] = {
    "kafka.max.partition.fetch.bytes": str(2 * MIB),
    # Java's clients ask for 64 KiB, which also keeps the system from choosing.
    "kafka.receive.buffer.bytes": "-1",
}


def kafka_reader(spark: SparkSession, bootstrap: str, name: str, poll_records: int = POLL_RECORDS) -> DataStreamReader:
    """A reader of streams under a name that the checkpoint knows it by. `poll_records`: the most that a poll takes."""
    reader = spark.readStream.format("kafka").name(name).option("kafka.bootstrap.servers", bootstrap)
    return reader.option("kafka.max.poll.records", poll_records).options(**_FETCHING)


def spark_name(name: str) -> str:
    """A name as Spark takes it: letters, digits and underscores; different names stay different.

    >>> spark_name("web-1"), spark_name("web_1")
    ('web_2d1', 'web_5f1')
    """
    return "".join(char if char.isascii() and char.isalnum() else f"_{ord(char):x}" for char in name)


def write_records(records: DataFrame, bootstrap: str, settings: Mapping[str, str]) -> None:
    """Writes records (topic, partition, key, value, headers) and waits until all are committed."""
    writer = records.write.format("kafka").mode("append").option("kafka.bootstrap.servers", bootstrap)
    writer.option("includeHeaders", "true").options(**settings).save()
