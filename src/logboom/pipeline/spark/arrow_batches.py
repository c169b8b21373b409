"""How large the Arrow batches are that a query's JVM hands to Python: a number of rows, or also a number of bytes.

Knows Spark's settings, and the memory and task slots of a session. Must not know what is in the rows.
"""

from typing import Final

from pyspark.sql import SparkSession

from logboom.base.units import MIB
from logboom.pipeline.spark.settings import ARROW_BYTES, ARROW_BYTES_MAX, SETTINGS

_MIN: Final = 1 * MIB
_SHARES: Final = 16
"""A batch is in the JVM's direct memory up to six times: buffers double as it is put together, the old beside the new,
and again as it is sent, and it may be one record larger than its limit. The heap has its records meanwhile."""


def limit_bytes(session: SparkSession, *, parts: int = 1) -> None:
    """Limits the batches of a session of one's own: those of all tasks at once take a share of the JVM's memory.
    `parts`: so much smaller yet, where that was too much."""
    session.conf.set(ARROW_BYTES, str(max(_MIN, _bytes_max(session) // parts)))


def lift_limit(session: SparkSession) -> None:
    """Goes back to a number of rows alone."""
    session.conf.set(ARROW_BYTES, SETTINGS[ARROW_BYTES])


def _bytes_max(session: SparkSession) -> int:
    """On a cluster each executor has memory for its own cores, which is for who runs it to choose."""
    context = session.sparkContext
    if not str(context.master).startswith("local"):
        return ARROW_BYTES_MAX
    heap = int(context._jvm.java.lang.Runtime.getRuntime().maxMemory())  # type: ignore[union-attr]  # noqa: SLF001
    return min(ARROW_BYTES_MAX, max(_MIN, heap // (_SHARES * context.defaultParallelism)))
