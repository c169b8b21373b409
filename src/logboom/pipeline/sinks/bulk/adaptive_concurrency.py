"""Limits the number of concurrent requests: fewer when the server is overloaded, slowly more when it is not.

Additive increase, multiplicative decrease, as in TCP. Pure: the caller passes the time. Must not know requests.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class AdaptiveConcurrency:
    """Concurrency limit of the requests of one task."""

    concurrency: int
    """The highest number of concurrent requests."""
    per_second: float | None = None
    """The highest number of requests that begin in a second; None: no limit."""
    _allowed: float = field(default=0.0, init=False)
    _opens_at: float = field(default=0.0, init=False)
    _next_at: float = field(default=0.0, init=False)
    _slowed_at: float = field(default=-1.0, init=False)

    def __post_init__(self) -> None:
        self._allowed = float(self.concurrency)

    @property
    def allowed(self) -> int:
        """The current limit of concurrent requests."""
        return max(int(self._allowed), 1)

    def opens_at(self) -> float:
        """The earliest time for the next request, on the same clock as in `begun`."""
        return max(self._opens_at, self._next_at)

    def begun(self, now: float) -> None:
        """Record that a request begins."""
        if self.per_second is not None:
            self._next_at = max(now, self._next_at) + 1 / self.per_second

    def succeeded(self) -> None:
        """Record a successful request: the limit rises by one after as many of them as the limit."""
        self._allowed = min(self._allowed + 1 / self._allowed, float(self.concurrency))

    def slowed(self, begun_at: float, now: float, pause_s: float | None) -> None:
        """Record that the server is overloaded. Requests that began before the last such answer lower the limit only
        once."""
        if begun_at >= self._slowed_at:
            self._allowed = max(self._allowed / 2, 1.0)
            self._slowed_at = now
        if pause_s is not None:
            self._opens_at = max(self._opens_at, now + pause_s)
