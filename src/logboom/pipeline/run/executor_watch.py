"""Reports that a cluster has given a run no executor: Spark then waits without a word, for as long as it takes.

Knows the session's count of executors and a clock. Must not know why there are none: only the cluster's logs say that.
"""

import time
from collections.abc import Callable
from typing import Final

from pyspark.sql import SparkSession

WAIT_S: Final = 30.0
"""Executors take seconds to start, some more to unpack an environment."""


def executors_of(spark: SparkSession) -> int:
    """How many executors of a cluster are registered with the driver. Spark counts the driver's own blocks as one."""
    known = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()  # noqa: SLF001 - PySpark does not have it
    return int(known.size()) - 1


class ExecutorWatch:
    """Looks at the executors of one session, about once a second."""

    def __init__(
        self, count: Callable[[], int], notify: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        """`count`: how many there are now."""
        self._count = count
        self._notify = notify
        self._now = now
        self._none_since: float | None = None
        self._has_told = False

    def look(self) -> None:
        """Report once that there has been no executor for `WAIT_S`, and once that there is one again."""
        if self._count() > 0:
            if self._has_told:
                self._notify("executors of the cluster are running now")
            self._none_since, self._has_told = None, False
            return
        now = self._now()
        self._none_since = now if self._none_since is None else self._none_since
        if now - self._none_since >= WAIT_S and not self._has_told:
            self._has_told = True
            self._notify(
                f"the cluster has had no executor for this run for {WAIT_S:.0f} s: the run waits for one; the pages of "
                "the cluster and the logs of its workers say why (no free core, a full disk, too little memory)"
            )
