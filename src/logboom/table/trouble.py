"""What keeps a table from being up to date, for the log and for the error of whoever waits in vain."""

import logging
import threading


class Trouble:
    """The newest trouble of each partition, and of the connection as a whole (None). Thread-safe."""

    def __init__(self, stream: str, log: logging.Logger) -> None:
        self._stream, self._log = stream, log
        self._lock = threading.Lock()
        self._texts: dict[int | None, str] = {}

    def note(self, partition: int | None, text: str) -> None:
        """Something is wrong; it is logged when it is new."""
        where = partition if partition is not None and partition >= 0 else None
        with self._lock:
            known, self._texts[where] = self._texts.get(where), text
        if known != text:
            place = "" if where is None else f", partition {where}"
            self._log.warning("table %s%s is not up to date: %s", self._stream, place, text)

    def clear(self, partition: int | None) -> None:
        """It is over."""
        with self._lock:
            known = self._texts.pop(partition, None)
        if known is not None:
            self._log.info("table %s goes on", self._stream)

    def __str__(self) -> str:
        """All of it in one clause; empty without any."""
        with self._lock:
            return "; ".join(dict.fromkeys(self._texts.values()))
