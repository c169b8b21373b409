"""What clients and other brokers cause to be logged: at most one of a kind every ten seconds, so that nobody fills the
log.

Knows the clock and the counters of limits; not what is warned about.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from logboom.base.ports import Clock

_INTERVAL_S: Final = 10.0
_KINDS_MAX: Final = 256


class RateLimitedLog:
    """The warnings of one server."""

    def __init__(self, log: FilteringBoundLogger, clock: Clock, limit_hits: Counter[str]) -> None:
        self._clock = clock
        self._limit_hits = limit_hits
        self._log = log
        self._next_s: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def warning(self, kind: str, event: str, **fields: object) -> None:
        """Log a warning, or count it into the next one of its kind (`more_like_this`)."""
        self._log_event(self._log.warning, kind, event, fields)

    def info(self, kind: str, event: str, **fields: object) -> None:
        """As `warning`, of what is nothing unusual."""
        self._log_event(self._log.info, kind, event, fields)

    def failure(self, event: str, error: BaseException, **fields: object) -> None:
        """Log a programming error with its stack, each of them."""
        self._log.error(event, **fields, exc_info=error)

    def limit_reached(self, limit: str, why: str, **fields: object) -> None:
        """Count a limit that was reached, by the name of its setting, and warn."""
        self._limit_hits[limit] += 1
        self.warning(f"limit {limit}", "limit reached", limit=limit, why=why, **fields)

    def _log_event(self, log: Callable[..., object], kind: str, event: str, fields: Mapping[str, object]) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s.get(kind, 0.0):
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return
        if len(self._next_s) >= _KINDS_MAX:
            self._next_s.clear()
            self._suppressed.clear()
        self._next_s[kind] = now_s + _INTERVAL_S
        suppressed = self._suppressed.pop(kind, 0)
        log(event, **fields, **({"more_like_this": suppressed} if suppressed else {}))
