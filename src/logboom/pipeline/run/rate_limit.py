"""Keeps a query below a rate. Knows time and the event of a stop."""

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most this many records in a second."""

    records_per_s: int | None
    """None: as many as there are."""
    stop: threading.Event
    """Ends every wait."""

    def after(self, records: int, took_s: float) -> None:
        """Waits until the next batch may begin, behind one of this many records that took so long."""
        if self.records_per_s is not None:
            self.stop.wait(max(0.0, records / self.records_per_s - took_s))
