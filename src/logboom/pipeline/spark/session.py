"""One Spark session for a pipeline, sensible on a small machine.

Knows Spark's settings and why each is set. Must not know plans or batches.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from logboom.base.settings import split_address
from logboom.base.units import MIB
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.spark.causes import cause_of
from logboom.pipeline.spark.gateway import start_jvm
from logboom.pipeline.spark.jars import PACKAGES, spark_settings
from logboom.pipeline.spark.jvm import java_command
from logboom.pipeline.spark.settings import SQL_SETTINGS

QUIET: Final = "OFF"
LOCAL_MASTER: Final = "local[*]"
_STANDALONE: Final = "spark://"
_MASTER_CONNECT_S: Final = 5.0
_MEMORY_SHARE: Final = 4
_MEMORY_MIB_MIN, _MEMORY_MIB_MAX = 1024, 4096

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    **SQL_SETTINGS,
    # Each sink's delivery has a pool of its own, so that a slow one leaves the others their share.
    "spark.scheduler.mode": "FAIR",
    # Sources are known by name, not by their place in the file, from the first checkpoint on.
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
    # Kafka through the second version of the source API, for writing as well as for reading.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    # Nothing here shuffles; a batch that falls back to one must not start 200 tasks.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
    # Rows per Arrow batch: large enough for columns to pay, small enough for four tasks on a small machine.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    # A limit in bytes is worked out after every row, which costs more than all the rest of a batch.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.python.daemon.module": "logboom.pipeline.spark.daemon",
    # Throughput is what counts here, on few cores. What is called for every row is soon called often enough for the
    # JVM's second compiler; by its own thresholds that also spends seconds on what runs a few times a batch.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:Tier4InvocationThreshold=50000"
    " -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000",
    "spark.sql.streaming.minBatchesToRetain": "100",
    "spark.sql.streaming.stopTimeout": "20s",
}


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What a person may choose about the session."""

    master: str = LOCAL_MASTER
    extra_slots: int = 0
    """Task slots beyond the cores on a local master: a stuck sink must not keep the others from running."""
    ui: bool = False
    log_level: str = QUIET
    """How much Spark says on standard error."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark settings of the user's own; they win."""


def start_session(name: str, options: SessionOptions) -> SparkSession:
    """The session. JavaMissingError, JarsError or PipelineError say in one sentence why there is none."""
    java_command()
    _check_master(options.master)
    # Executors must run this very interpreter: the kernels are imported there.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1" if options.master.startswith("local") else "")
    master = master_with_slots(options.master, options.extra_slots)
    settings = {
        **_SETTINGS,
        **_memory(),
        **spark_settings(),
        "spark.ui.enabled": str(options.ui).lower(),
        "spark.master": master,
        "spark.app.name": name,
        **options.settings,
    }
    start_jvm(settings, silent=options.log_level == QUIET)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        if PACKAGES in settings:
            raise PipelineError(
                "Spark cannot fetch its Kafka connector, and there is no Maven to do it; "
                "install it with: apt-get install -y maven, then run: python -m logboom.pipeline.spark.jars"
            ) from error
        cause = cause_of(error)
        raise PipelineError(
            f"Spark does not start on the master {options.master}: {cause}; --spark-log WARN shows what it says"
        ) from error
    if threading.current_thread() is threading.main_thread():
        # A new SparkContext cancels all jobs on SIGINT; what a signal means is the caller's choice.
        signal.signal(signal.SIGINT, interrupted)
    # Spark does nothing where the level is the root logger's already, and its shell's filter then keeps hiding INFO.
    session.sparkContext.setLogLevel(QUIET)
    session.sparkContext.setLogLevel(options.log_level)
    return session


def _check_master(master: str) -> None:
    """PipelineError where a standalone master cannot be connected to: Spark itself takes a minute to say less."""
    if not master.startswith(_STANDALONE):
        return
    faults = []
    for address in master.removeprefix(_STANDALONE).split(","):
        try:
            host, port = split_address(address)
            socket.create_connection((host, port), _MASTER_CONNECT_S).close()
        except ValueError as error:
            raise PipelineError(f"--master {master}: {error}") from error
        except OSError as error:
            faults.append(error.strerror or str(error))
        else:
            return
    raise PipelineError(f"no Spark master answers at {master} ({', '.join(dict.fromkeys(faults))})")


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


def _memory() -> dict[str, str]:
    """A quarter of the machine for the JVM, within bounds; the rest is for the Python workers and the system."""
    total_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB
    heap_mib = min(max(total_mib // _MEMORY_SHARE, _MEMORY_MIB_MIN), _MEMORY_MIB_MAX)
    return {"spark.driver.memory": f"{heap_mib}m"}
