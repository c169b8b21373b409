"""A thread that asks every few seconds what a table's stream is, where it starts and ends, and tells the reader.

It finds streams that were recreated, and it is what shows for a silent stream that nothing was missed.
"""

import random
import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException

from logboom.table.errors import TableError, error_text
from logboom.table.reader import Reader
from logboom.table.stream import Ends, TableStream
from logboom.table.trouble import CONNECTION, Trouble

_INTERVAL_MIN_S: Final = 0.1
_SPREAD: Final = (0.75, 1.25)
"""Of the interval: thousands of tables that were opened at once do not go on asking at once."""


class Checker:
    """See the module. Life: made, `start`, `close`."""

    def __init__(
        self, stream: TableStream, ask: Callable[[], Ends], reader: Reader, trouble: Trouble, interval_s: float
    ) -> None:
        self._stream, self._ask, self._reader, self._trouble = stream, ask, reader, trouble
        self._interval_max_s = interval_s
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"table-check-{stream.name}", daemon=True)

    def start(self, delete_retention_s: float) -> None:
        """Begin to ask, first after one interval."""
        self.keep_within(delete_retention_s)
        self._thread.start()

    def keep_within(self, delete_retention_s: float) -> None:
        """Ask several times in the time after which a silent stream would have to be read again."""
        self._interval_s = min(self._interval_max_s, max(_INTERVAL_MIN_S, delete_retention_s / 4))

    def close(self) -> None:
        """End the thread, without waiting for an answer that is under way."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s * random.uniform(*_SPREAD)):  # noqa: S311  # spreads load only
            try:
                info = self._stream.describe()
                self.keep_within(info.delete_retention_s)
                ends = self._ask()
                self._reader.tell(ends, self._stream.starts(ends.offsets), info)
            except (KafkaException, TableError) as error:
                self._trouble.note(CONNECTION, error_text(error))
            else:
                self._trouble.clear(CONNECTION)
