"""The size limits of the Arrow batches that a query's JVM passes to Python: in rows, or also in bytes.

Knows Spark's settings, and the memory and task slots of a session. Must not know what is in the rows.
"""

from typing import Final

from pyspark.sql import SparkSession

from logboom.base.units import MIB
from logboom.pipeline.spark.settings import ARROW_BYTES, ARROW_BYTES_MAX, SETTINGS

_MIN: Final = 1 * MIB
_SHARES: Final = 16
"""A batch may be in the JVM's direct memory up to six times: buffers double as it is built, with the old one beside the
new, and again as it is sent, and it may exceed its limit by one record. The heap contains its records at the same
time."""


def limit_bytes(session: SparkSession, *, parts: int = 1) -> None:
    """Limit the batches of a private session: those of all concurrent tasks together may use a share of the JVM's
    memory. `parts`: divide the limit by this, if it was too much."""
    session.conf.set(ARROW_BYTES, str(max(_MIN, _bytes_max(session) // parts)))


def lift_limit(session: SparkSession) -> None:
    """Use only the limit in rows again."""
    session.conf.set(ARROW_BYTES, SETTINGS[ARROW_BYTES])


def _bytes_max(session: SparkSession) -> int:
    """On a cluster, each executor has memory for its own cores, configured by the user."""
    context = session.sparkContext
    if not str(context.master).startswith("local"):
        return ARROW_BYTES_MAX
    heap = int(context._jvm.java.lang.Runtime.getRuntime().maxMemory())  # type: ignore[union-attr]  # noqa: SLF001
    return min(ARROW_BYTES_MAX, max(_MIN, heap // (_SHARES * context.defaultParallelism)))
