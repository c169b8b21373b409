"""Telling a table's own records among those it reads, to know the outcome of a write whose answer was lost.

Each record carries a random id in the header `logboom-write-id`. Of a write whose answer did not come, or which the
broker refused because its first sending was there already, the record itself is the answer.
"""

import secrets
import threading
from typing import Final, NamedTuple

from confluent_kafka import Message

WRITE_ID_HEADER: Final = "logboom-write-id"
EXPECTED_OFFSET_HEADER: Final = "logboom-expected-offset"
_ID_BYTES: Final = 12


class Seen(NamedTuple):
    """A write's record as it was read."""

    offset: int
    timestamp_ms: int
    has_condition: bool
    """It still carries its condition, which a server that compares versions takes off."""


class OwnWrites:
    """The writes under way, by id. Thread-safe."""

    def __init__(self) -> None:
        self.awaited: dict[bytes, Seen | None] = {}
        """Where each was read; None as long as it was not."""
        self._lock = threading.Lock()

    def begin(self) -> bytes:
        """The id of a new write; it is looked for until `end`."""
        write_id = secrets.token_hex(_ID_BYTES).encode()
        with self._lock:
            self.awaited[write_id] = None
        return write_id

    def end(self, write_id: bytes) -> None:
        """Look for it no longer."""
        with self._lock:
            self.awaited.pop(write_id, None)

    def seen(self, write_id: bytes) -> Seen | None:
        """Where its record was read, if it was."""
        return self.awaited.get(write_id)

    def look_at(self, message: Message) -> None:
        """A record that was read."""
        headers = message.headers() or ()
        named = dict(headers)
        write_id, offset = named.get(WRITE_ID_HEADER), message.offset()
        if isinstance(write_id, bytes) and offset is not None:
            with self._lock:
                if write_id in self.awaited:
                    self.awaited[write_id] = Seen(offset, message.timestamp()[1], EXPECTED_OFFSET_HEADER in named)
