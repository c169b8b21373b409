"""Spark's own progress of the queries, for what only Spark knows: how far each is behind.

Knows Spark's listener interface, as py4j implements it in Python. Must not know what is done with the figures.

PySpark's own listener copies an event whole before it calls anybody: 150 to 200 calls into the JVM, which take some
50 ms of CPU time on both sides together, after each batch of each query. Two figures of it are needed. So the interface
of the JVM is implemented here, and asks for these.
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
    """Meanwhile `on_lag` is told after each batch of each query, by the query's name, how many records of its sources
    it has not read yet. It is called in another thread."""
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
    """What the JVM calls. The events, and what they lead to, are objects of the JVM: each call of theirs goes there."""

    def __init__(self, on_lag: OnLag) -> None:
        self._on_lag = on_lag

    def onQueryStarted(self, event: "JavaObject") -> None:  # noqa: N802 - Spark's name
        """Nothing is known yet."""

    def onQueryProgress(self, event: "JavaObject") -> None:  # noqa: N802 - Spark's name
        """A batch was committed."""
        progress = event.progress()
        self._on_lag(progress.name() or "", sum(_records_behind(source) for source in progress.sources()))

    def onQueryIdle(self, event: "JavaObject") -> None:  # noqa: N802 - Spark's name
        """Nothing new came."""

    def onQueryTerminated(self, event: "JavaObject") -> None:  # noqa: N802 - Spark's name
        """The runner sees this by itself."""

    class Java:  # where py4j looks
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def _records_behind(source: "JavaObject") -> int:
    """Of all partitions of one source. Sources that do not tell it are at their end."""
    average = source.metrics().get(_BEHIND)
    return round(float(average) * _partitions(source.endOffset())) if average else 0


def _partitions(offsets: str | None) -> int:
    """How many partitions stand in Spark's JSON of offsets."""
    if not offsets:
        return 0
    return sum(len(partitions) for partitions in json.loads(offsets).values())
