"""The two buffers of one end of a connection: what it has written, and what has arrived and was not read.

Bytes of one direction keep their order, and its end (an empty piece) travels behind all of them. Both are plain queues:
they know neither loop nor protocol.
"""

from collections import deque
from random import Random
from typing import Final

from logboom.base.ports import Bytes
from logboom.sim.link_config import LinkConfig

EOF: Final = b""
"""The end of a direction, as a piece."""


class SendBuffer:
    """What one end has written and its peer has not read: first here, then on the way or in the peer's socket."""

    __slots__ = (
        "_chance",
        "_config",
        "_eof_sent",
        "_first_sent_bytes",
        "_last_arrival_s",
        "_pieces",
        "_under_way_bytes",
        "eof_written",
        "size_bytes",
    )

    def __init__(self, config: LinkConfig, chance: Random) -> None:
        self._config = config
        self._chance = chance
        self._pieces: deque[bytes] = deque()
        self._first_sent_bytes = 0
        """How much of the first of them was sent."""
        self._under_way_bytes = 0
        self._last_arrival_s = 0.0
        self._eof_sent = False
        self.eof_written = False
        """Whether the end is to follow what was written."""
        self.size_bytes = 0
        """What waits here."""

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def write(self, data: Bytes) -> None:
        """Add bytes; the caller may use its buffer again as soon as this returns."""
        copy = bytes(data)
        self._pieces.append(copy)
        self.size_bytes += len(copy)

    def drop(self) -> None:
        """Forget what waits here."""
        self._pieces.clear()
        self._first_sent_bytes = self.size_bytes = 0

    def send(self, now_s: float) -> list[tuple[float, bytes]]:
        """Send as much as the peer's socket has room for: pieces, each with the time at which it arrives there."""
        sent: list[tuple[float, bytes]] = []
        config, chance = self._config, self._chance
        while self._pieces and self._under_way_bytes < config.socket_bytes:
            room = config.socket_bytes - self._under_way_bytes
            piece = self._take(min(room, config.piece_bytes(chance)))
            self._under_way_bytes += len(piece)
            sent.append((self._arrival_s(now_s), piece))
        if self.eof_written and not self._pieces and not self._eof_sent:
            self._eof_sent = True
            sent.append((self._arrival_s(now_s), EOF))
        return sent

    def _take(self, size_bytes: int) -> bytes:
        first, begin = self._pieces[0], self._first_sent_bytes
        piece = first[begin : begin + size_bytes]  # the same object where it is all of it
        self.size_bytes -= len(piece)
        self._first_sent_bytes += len(piece)
        if self._first_sent_bytes == len(first):
            self._pieces.popleft()
            self._first_sent_bytes = 0
        return piece

    def _arrival_s(self, now_s: float) -> float:
        """Bytes of one direction never overtake each other."""
        arrival_s = now_s + self._config.latency_s(self._chance)
        if arrival_s > self._last_arrival_s:
            self._last_arrival_s = arrival_s
        return self._last_arrival_s

    def was_read(self, size_bytes: int) -> None:
        """The peer has read so much: its socket has room for more."""
        self._under_way_bytes -= size_bytes


class ReceiveBuffer:
    """What has arrived at one end and its protocol has not read."""

    __slots__ = ("_kept", "_pieces")

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._kept: deque[bytes] = deque()

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def at_end(self) -> bool:
        """Whether the end of the direction is what comes next."""
        return bool(self._pieces) and self._pieces[0] == EOF

    def arrive(self, piece: bytes) -> None:
        """Add a piece, or the end."""
        self._pieces.append(piece)

    def drop(self) -> None:
        """Forget what was not read."""
        self._pieces.clear()

    def pass_end(self) -> None:
        """The end has been seen."""
        self._pieces.popleft()

    def read(self, size_bytes: int) -> bytes:
        """All that has arrived, up to so many bytes or the end of the direction."""
        if len(self._pieces) == 1 and 0 < len(self._pieces[0]) <= size_bytes:
            return self._pieces.popleft()
        pieces: list[bytes] = []
        while size_bytes and self._pieces and self._pieces[0]:
            piece = self._pieces[0]
            if len(piece) <= size_bytes:
                self._pieces.popleft()
            else:
                self._pieces[0] = piece[size_bytes:]
                piece = piece[:size_bytes]
            pieces.append(piece)
            size_bytes -= len(piece)
        return b"".join(pieces)

    # --- what would have arrived while the network blocked the way ----------------------------------------------

    @property
    def has_kept(self) -> bool:
        """Whether pieces wait until the way is open again."""
        return bool(self._kept)

    def keep(self, piece: bytes) -> None:
        """Keep a piece until `take_kept`, since the way is blocked."""
        self._kept.append(piece)

    def take_kept(self) -> deque[bytes]:
        """What was kept, in its order; nothing is kept any more."""
        kept, self._kept = self._kept, deque()
        return kept
