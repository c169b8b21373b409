"""Spark's settings with the reason for each, and the options that the user has.

Knows Spark's names. Must not import pyspark: the JVM is started with these while the rest is being imported.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from logboom.base.units import MIB

QUIET: Final = "OFF"
LOG_LEVELS: Final = ("ALL", "DEBUG", "ERROR", "FATAL", "INFO", QUIET, "TRACE", "WARN")
"""The values of `SparkContext.setLogLevel`."""
LOCAL_MASTER: Final = "local[*]"
_MEMORY_SHARE: Final = 4
_MEMORY_MIB_MIN, _MEMORY_MIB_MAX = 1024, 4096

ARROW_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
ARROW_BYTES_MAX: Final = 64 * MIB
"""Limit of the memory of the JVM and of a worker for one Arrow batch, if it is limited in bytes. The limit in rows
alone allows 16,384 events of up to 32 MiB each: more than Arrow or any machine can hold."""
ARROW_ROWS: Final = 16_384
"""Large enough for columns to be efficient, small enough for four tasks on a small machine."""

ANSI: Final = "spark.sql.ansi.enabled"

SQL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    # An error inside an expression is null, which `coalesce` and `IS NULL` can test. If a condition is null because of
    # an error, it is evaluated again in ANSI mode (`execute.verdicts`).
    ANSI: "false",
    # This rule moves the guard around a condition into its branches, after the condition that it must guard.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushFoldableIntoBranches",
    # The common part of two conditions would be evaluated before both, outside their guards.
    "spark.sql.subexpressionElimination.enabled": "false",
}
"""These change the meaning of a condition, so a bare JVM that checks conditions uses them, too."""

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
CLASS_PATH: Final = "spark.driver.extraClassPath"

_CHECKPOINTING: Final = "org.apache.spark.sql.execution.streaming.checkpointing"

SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    **SQL_SETTINGS,
    # Each sink's delivery has its own pool, so that a slow one does not use the others' share.
    "spark.scheduler.mode": "FAIR",
    # Sources are identified by name, not by their position in the file, from the first checkpoint on.
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
    # Use the second version of Kafka's source API for writing, too.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    # Nothing here shuffles; if a batch falls back to a shuffle, it must not start 200 tasks.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    # A limit in bytes is computed after every row, which costs more than the rest of a batch: `arrow_batches` sets one
    # for the queries and batches that need it.
    ARROW_BYTES: "2147483647",
    # Spark caches the last poll of each partition for five minutes, without a limit in bytes, and again each time a
    # batch is reread. Events of 10 MB in many partitions, or before a failing sink, filled the heap. Without the cache,
    # a batch that continues where the last one ended fetches that data again: 2 MiB, or one event.
    "spark.kafka.consumer.fetchedData.cache.timeout": "1s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "500ms",
    # With it each function of a column asks the JVM a dozen things, so that an error can name a line of this program.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.python.daemon.module": "logboom.pipeline.run.daemon",
    # The JVM's second compiler is for what is called for every record. By its own thresholds it also compiles what a
    # batch calls a few times, which is a quarter of all the CPU time of a run over in seconds. What every record calls
    # reaches these after some 200,000 records.
    JAVA_OPTIONS: "-XX:+UseParallelGC -XX:Tier4InvocationThreshold=200000 -XX:Tier4MinInvocationThreshold=24000"
    " -XX:Tier4CompileThreshold=600000 -XX:Tier4BackEdgeThreshold=400000"
    # Each thread keeps a direct buffer as large as the largest that it has sent from the heap, or read: 10 MB for one
    # record. One that it may not keep is made and zeroed anew for each piece of 64 KB that it reads of a fetch of
    # 2 MiB, which is four times the CPU time of reading it.
    " -Djdk.nio.maxCachedBufferSize=4194304"
    # At once: by itself Spark ends in order, and tasks fail meanwhile as if it were for the records that they have.
    " -XX:+ExitOnOutOfMemoryError",
    # What plans and Spark's pages show of a writer's options: no password of brokers, and no key.
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|token|access[.]?key|jaas|keystore[.]key",
    # A checkpoint is on a local disk. By what Spark takes itself, Hadoop starts `readlink` eight times for each file of
    # it, and a batch of a query writes two: nearly half of the CPU time of a small batch.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.minBatchesToRetain": "100",
    "spark.sql.streaming.stopTimeout": "20s",
}

CLUSTER_SETTINGS: Final[Mapping[str, str]] = {
    # A Spark that pip installed has no file that says which Scala it is for. A worker that was not started by Spark's
    # own scripts then finds no jars for an executor. From version 4 on there is only one.
    "spark.executorEnv.SPARK_SCALA_VERSION": "2.13",
}
"""What a master other than `local` needs besides."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What the user may choose about the session."""

    master: str = LOCAL_MASTER
    extra_slots: int = 0
    """Task slots beyond the cores on a local master: a stuck sink must not keep the others from running."""
    ui: bool = False
    log_level: str = QUIET
    """How much Spark says on standard error."""
    environment: str | None = None
    """Path or URL of an archive with the Python environment of executors (see `environment`)."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark settings of the user's own; they win."""

    @property
    def is_local(self) -> bool:
        """Whether the JVM of the driver is that of all tasks too."""
        return self.master.startswith("local")


def master_with_slots(master: str, extra_slots: int) -> str:
    """A local master with more task slots than cores; any other as it is.

    >>> master_with_slots("local[2]", 3)
    'local[5]'
    >>> master_with_slots("spark://host:7077", 3)
    'spark://host:7077'
    """
    if not master.startswith("local"):
        return master
    inner = master.removeprefix("local").strip("[]")
    cores = (os.cpu_count() or 1) if inner == "*" else int(inner or "1")
    return f"local[{cores + extra_slots}]"


def memory_settings() -> dict[str, str]:
    """A quarter of the machine for the JVM, within bounds; the Python workers live beside it."""
    total_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB
    heap_mib = min(max(total_mib // _MEMORY_SHARE, _MEMORY_MIB_MIN), _MEMORY_MIB_MAX)
    return {"spark.driver.memory": f"{heap_mib}m"}
