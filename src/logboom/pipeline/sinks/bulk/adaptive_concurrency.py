"""How many requests may be under way at once: fewer where the server has too much to do, slowly more where it copes.

Additive increase, multiplicative decrease, as TCP has it. Pure: the caller brings the time. Knows nothing of requests.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class AdaptiveConcurrency:
    """Lets requests of one task through."""

    concurrency: int
    """The most at once."""
    per_second: float | None = None
    """The most that may begin in a second; None for any number."""
    _allowed: float = field(default=0.0, init=False)
    _opens_at: float = field(default=0.0, init=False)
    _next_at: float = field(default=0.0, init=False)
    _slowed_at: float = field(default=-1.0, init=False)

    def __post_init__(self) -> None:
        self._allowed = float(self.concurrency)

    @property
    def allowed(self) -> int:
        """How many may be under way now."""
        return max(int(self._allowed), 1)

    def opens_at(self) -> float:
        """The time from which the next request may begin, on the clock of `begun`."""
        return max(self._opens_at, self._next_at)

    def begun(self, now: float) -> None:
        """A request begins."""
        if self.per_second is not None:
            self._next_at = max(now, self._next_at) + 1 / self.per_second

    def succeeded(self) -> None:
        """A request was taken: one more at once for as many as may be under way."""
        self._allowed = min(self._allowed + 1 / self._allowed, float(self.concurrency))

    def slowed(self, begun_at: float, now: float, pause_s: float | None) -> None:
        """The server has too much to do. Requests that began before the last such answer count once."""
        if begun_at >= self._slowed_at:
            self._allowed = max(self._allowed / 2, 1.0)
            self._slowed_at = now
        if pause_s is not None:
            self._opens_at = max(self._opens_at, now + pause_s)
