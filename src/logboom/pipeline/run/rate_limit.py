"""Limits the rate of a query. Knows time and the stop event."""

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Limit of records per second."""

    records_per_s: int | None
    """None: no limit."""
    stop: threading.Event
    """Ends every wait when it is set."""

    def after(self, records: int, took_s: float) -> None:
        """Wait until the next batch may begin, after one with this many records and duration."""
        if self.records_per_s is not None:
            self.stop.wait(max(0.0, records / self.records_per_s - took_s))
