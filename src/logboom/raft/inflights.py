"""The window of append messages that one follower has not acknowledged yet, limited in messages and bytes."""

from collections import deque

from logboom.raft.messages import Index


class Inflights:
    """The window of one follower. `max_bytes` 0: no limit in bytes.

    The limit in bytes is soft: the message that crosses it is still sent.
    """

    __slots__ = ("_bytes", "_max_bytes", "_max_messages", "_window")

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        self._window: deque[tuple[Index, int]] = deque()

    def __len__(self) -> int:
        return len(self._window)

    @property
    def is_full(self) -> bool:
        """Whether no more messages may be sent until one is acknowledged."""
        return len(self._window) == self._max_messages or (self._max_bytes != 0 and self._bytes >= self._max_bytes)

    def add(self, last_index: Index, size_bytes: int) -> None:
        """Add a sent message, by the index of its last entry. Indexes must increase."""
        assert not self.is_full, "nothing may be sent into a full window"
        self._window.append((last_index, size_bytes))
        self._bytes += size_bytes

    def free_up_to(self, index: Index) -> None:
        """Remove the messages up to `index`, which are acknowledged."""
        while self._window and self._window[0][0] <= index:
            self._bytes -= self._window.popleft()[1]

    def clear(self) -> None:
        """Remove all messages."""
        self._window.clear()
        self._bytes = 0
