"""Whether a NATS server still answers: what is done each time the interval of pings is over.

Knows how much waits to be sent; no connection and no clock.
"""

from enum import Enum, auto
from typing import Final

_PINGS_UNANSWERED_MAX: Final = 2


class Verdict(Enum):
    """What to do."""

    PING = auto()
    """Send one more ping."""
    IT_READS = auto()
    """Nothing: the server reads, and its answers are not read here meanwhile."""
    GIVE_UP = auto()
    """It has answered nothing for too long."""


class KeepAlive:
    """See the module. Life: that of a connection."""

    def __init__(self) -> None:
        self._unanswered = 0
        self._unsent_bytes = 0

    def answered(self) -> None:
        """The server has answered a ping."""
        self._unanswered = 0

    def tick(self, unsent_bytes: int) -> Verdict:
        """The interval is over. `unsent_bytes`: what waits to be sent where nothing is read until less does; else 0."""
        before, self._unsent_bytes = self._unsent_bytes, unsent_bytes
        if 0 < unsent_bytes < before:
            self._unanswered = 0
            return Verdict.IT_READS
        if self._unanswered >= _PINGS_UNANSWERED_MAX:
            return Verdict.GIVE_UP
        self._unanswered += 1
        return Verdict.PING
