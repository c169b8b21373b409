"""What a connection keeps of a request that is under way, and the bytes its reply leaves as.

Knows routes and correlation ids; not where bytes come from and go to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from logboom.base.ports import Bytes
from logboom.kafka.handlers.handler import Later
from logboom.kafka.handlers.route import Route

_JOIN_BYTES_MAX: Final = 16 * 1024
"""Replies up to this size are joined into one piece; larger pieces are handed to the socket as they are."""

_REPLY_HEADER: Final = Struct(">ii")
_REPLY_HEADER_TAGS: Final = Struct(">iiB")


class Slot:
    """A request, or a run of them, in the line of its connection, until its reply has left."""

    __slots__ = (
        "charged_ns",
        "correlation_id",
        "done",
        "held_bytes",
        "later",
        "pieces",
        "reply_bytes",
        "requests",
        "route",
        "size_bytes",
        "started_ns",
        "throttle_ms",
    )

    charged_ns: int
    """Set for a client with quotas: up to when its time is on its account."""

    def __init__(
        self, route: Route, correlation_id: int, size_bytes: int, held_bytes: int, requests: int, started_ns: int
    ) -> None:
        self.route = route
        self.size_bytes = size_bytes
        self.correlation_id = correlation_id
        self.held_bytes = held_bytes
        self.requests = requests
        self.started_ns = started_ns
        self.done = False
        self.later: Later | None = None
        self.pieces: Sequence[Bytes] = ()
        self.reply_bytes = 0
        self.throttle_ms = 0
        """What the client is told to wait, for a quota of its own."""


def expire(slots: Iterable[Slot], now_s: float) -> None:
    """Tell the requests whose time is over."""
    for slot in tuple(slots):
        later = slot.later
        if later is not None and later.expires_at_s <= now_s and later.on_expired is not None and not slot.done:
            later.on_expired()


def abandon(slots: deque[Slot]) -> int:
    """Nobody takes these replies any more; how many requests had none yet."""
    requests = sum(slot.requests for slot in slots if not slot.done)
    for slot in slots:
        if slot.later is not None and slot.later.on_abandoned is not None and not slot.done:
            slot.later.on_abandoned()
    slots.clear()
    return requests


def with_head(slot: Slot, pieces: Sequence[Bytes]) -> Sequence[Bytes]:
    """The body of a reply behind its head, in one piece where it is short."""
    if not slot.route.response_tags:
        return with_plain_head(slot.correlation_id, pieces)
    size = length(pieces)
    return _joined(_REPLY_HEADER_TAGS.pack(size + 5, slot.correlation_id, 0), pieces, size)


def with_plain_head(correlation_id: int, pieces: Sequence[Bytes]) -> Sequence[Bytes]:
    """The same with the oldest head, which clients of every age read."""
    size = length(pieces)
    return _joined(_REPLY_HEADER.pack(size + 4, correlation_id), pieces, size)


def _joined(head: bytes, pieces: Sequence[Bytes], size: int) -> Sequence[Bytes]:
    return (b"".join((head, *pieces)),) if size <= _JOIN_BYTES_MAX else (head, *pieces)


def length(pieces: Sequence[Bytes]) -> int:
    """Bytes of all pieces together."""
    if len(pieces) == 1:
        return len(pieces[0])
    return sum(len(piece) for piece in pieces)
