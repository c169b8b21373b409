"""The memory of messages that have arrived and are not stored yet.

NATS cannot be made to wait, but a server keeps for a while what a client does not read. So at the limit the connection
is not read for a moment, which is enough for a burst; a server that waits longer would disconnect this client and drop
what it keeps for it. After that moment messages are read again, and refused until there is room.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from logboom.nats.metrics import NatsMetrics

HOLD_MAX_S: Final = 0.25
_HOLD: Final = "inflight"


class Budget:
    """See the module. On one loop."""

    def __init__(
        self,
        limit_bytes: int,
        is_backpressured: Callable[[], bool],
        hold: Callable[[str], None],
        release: Callable[[str], None],
        metrics: NatsMetrics,
    ) -> None:
        """`hold` and `release`: do not read the connection, and read it again."""
        self._limit_bytes = limit_bytes
        self._is_backpressured = is_backpressured
        self._hold = hold
        self._release = release
        self._metrics = metrics
        self._timer: asyncio.TimerHandle | None = None
        self._refusing = False

    @property
    def limit_bytes(self) -> int:
        """What may be there at a time."""
        return self._limit_bytes

    @property
    def _is_full(self) -> bool:
        return self._metrics.inflight_bytes >= self._limit_bytes or self._is_backpressured()

    def allows(self) -> bool:
        """Whether what has arrived may be accepted. What was read before the connection was paused always may."""
        if self._refusing and not self._is_full:
            self._refusing = False
        return not self._refusing

    def took(self, size_bytes: int) -> None:
        """These bytes have arrived and wait to be stored."""
        self._metrics.inflight_bytes += size_bytes
        if self._timer is None and not self._refusing and self._is_full:
            self._hold(_HOLD)
            self._timer = asyncio.get_running_loop().call_later(HOLD_MAX_S, self._held_long)

    def gave(self, size_bytes: int) -> None:
        """These bytes are stored, or refused."""
        self._metrics.inflight_bytes -= size_bytes
        if self._timer is not None and self._metrics.inflight_bytes <= self._limit_bytes // 2:
            self._read_on()

    def _held_long(self) -> None:
        self._refusing = self._is_full
        self._read_on()

    def _read_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._release(_HOLD)

    def close(self) -> None:
        """Hold nothing any more."""
        self._read_on()
