"""Spark's own Kafka connector against a broker, in batch.

Each line of standard input is a command, `produce TOPIC FIRST COUNT CODEC` or `consume TOPIC COUNT`, and is answered by
a line that begins with "ok". It ends with its input, or dies.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def session(class_path: str, java_options: str) -> SparkSession:
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.extraClassPath", class_path)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )


def produce(spark: SparkSession, bootstrap: str, topic: str, first: int, count: int, codec: str) -> None:
    numbers = spark.range(first, first + count, 1, 1)
    n = f.col("id").cast("string")
    header = f.struct(f.lit("n").alias("key"), n.cast("binary").alias("value"))
    rows = numbers.select(
        f.concat(f.lit("key-"), (f.col("id") % 7).cast("string")).alias("key"),
        f.concat(f.lit("value-"), n).alias("value"),
        f.array(header).alias("headers"),
    )
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "includeHeaders": "true"}
    rows.write.format("kafka").options(**options).option("kafka.compression.type", codec).save()
    print(f"ok produced {count}", flush=True)


def consume(spark: SparkSession, bootstrap: str, topic: str, count: int) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    read = spark.read.format("kafka").options(**options).load().orderBy("partition", "offset")
    rows = read.select("key", "value", f.col("headers")[0]["value"].alias("header")).toArrow().to_pylist()
    last: dict[bytes, int] = {}
    for row in rows:
        key, n = row["key"], int(row["value"].removeprefix(b"value-"))
        assert row["header"] == str(n).encode()
        assert n > last.get(key, -1), f"{key}: {n} after {last[key]}"
        last[key] = n
    assert len(rows) == count, f"saw {len(rows)} of {count}"
    print(f"ok consumed {len(rows)}", flush=True)


if __name__ == "__main__":
    class_path, java_options, bootstrap = sys.argv[1:]
    spark = session(class_path, java_options)
    for line in sys.stdin:
        verb, topic, *rest = line.split()
        if verb == "produce":
            produce(spark, bootstrap, topic, int(rest[0]), int(rest[1]), rest[2])
        else:
            consume(spark, bootstrap, topic, int(rest[0]))
    spark.stop()
