"""What keeps a table from being up to date, for the log and for the error of whoever waits in vain."""

import logging
import threading
from typing import Final

CONNECTION: Final = "connection"
READING: Final = "reading"
Where = int | str
"""A partition, or one of these two: the connection as a whole, reading the table from the start."""


class Trouble:
    """The newest trouble of each place. Thread-safe."""

    def __init__(self, stream: str, log: logging.Logger) -> None:
        self._stream, self._log = stream, log
        self._lock = threading.Lock()
        self._texts: dict[Where, str] = {}

    def note(self, where: Where, text: str) -> None:
        """Something is wrong; it is logged when it is new."""
        with self._lock:
            known, self._texts[where] = self._texts.get(where), text
        if known != text:
            place = f", partition {where}" if isinstance(where, int) else ""
            self._log.warning("table %s%s is not up to date: %s", self._stream, place, text)

    def clear(self, where: Where) -> None:
        """It is over."""
        with self._lock:
            known = self._texts.pop(where, None)
        if known is not None:
            self._log.info("table %s goes on", self._stream)

    def __str__(self) -> str:
        """All of it in one clause; empty without any."""
        with self._lock:
            return "; ".join(dict.fromkeys(self._texts.values()))
