"""Receives Spark's progress of the queries, for what only Spark knows: the lag of each.

Knows Spark's listener interface, implemented in Python through py4j. Must not know how the numbers are used.

PySpark's own listener copies an event completely before it calls anybody: 150 to 200 calls of the JVM, some 50 ms of
CPU time on both sides together, after each batch of each query. Only two numbers are needed. So the JVM's interface is
implemented here, and reads only these.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_BEHIND: Final = "avgOffsetsBehindLatest"

OnLag = Callable[[str, int], None]


@contextmanager
def lags_reported(spark: SparkSession, on_lag: OnLag) -> Iterator[None]:
    """While the context is open, `on_lag` is called after each batch of each query, in another thread, with the query's
    name and the number of source records that it has not read yet."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - PySpark's own listener goes this way
    queries: JavaObject = spark.streams._jsqm  # noqa: SLF001 - as above
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    made = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(_LagListener(on_lag))
    queries.addListener(made)
    try:
        yield
    finally:
        queries.removeListener(made)


class _LagListener:
    """Implements the interface that the JVM calls. Events and their parts are JVM objects: each access is a call."""

    def __init__(self, on_lag: OnLag) -> None:
        self._on_lag = on_lag

    def onQueryStarted(self, event: "JavaObject") -> None:  # noqa: N802 - Spark's name
        """A query has started: nothing is known yet."""

    def onQueryProgress(self, event: "JavaObject") -> None:  # noqa: N802 - Spark's name
        """A batch was committed."""
        progress = event.progress()
        self._on_lag(progress.name() or "", sum(_records_behind(source) for source in progress.sources()))

    def onQueryIdle(self, event: "JavaObject") -> None:  # noqa: N802 - Spark's name
        """There was nothing new."""

    def onQueryTerminated(self, event: "JavaObject") -> None:  # noqa: N802 - Spark's name
        """A query has ended: the runner notices this by itself."""

    class Java:  # py4j's way to declare the interface
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def _records_behind(source: "JavaObject") -> int:
    """Lag of all partitions of one source. A source that does not report it is at its end."""
    average = source.metrics().get(_BEHIND)
    return round(float(average) * _partitions(source.endOffset())) if average else 0


def _partitions(offsets: str | None) -> int:
    """Number of partitions in Spark's JSON of offsets."""
    if not offsets:
        return 0
    return sum(len(partitions) for partitions in json.loads(offsets).values())
