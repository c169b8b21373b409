"""The answer to one request of a follower: sent in parts while the request waits, or whole.

Answers to standing fetches are sent before anything is awaited, be it the disk or another turn of the loop. Otherwise
another request of the session might be looked at meanwhile, and send later records of the same partition first; the
follower drops records that do not begin where its log ends.

Answers to all other fetches are bounded, over all parts, by what the follower asked for: they wait in memory until it
reads them.
"""

from collections.abc import Sequence
from typing import Final

from logboom.base.ports import Bytes
from logboom.broker.peers import SendPart
from logboom.broker.replication import wire
from logboom.broker.replication.fetch_session import FetchSession

_MAX_BYTES: Final = 64 << 20
_PART_BYTES_MAX: Final = 1 << 20
"""Bytes of records in one part, which the follower processes in one go."""
_PART_ITEMS_MAX: Final = 200
"""Partitions in one part."""


class FetchResponse:
    """See the module. Life: that of one request at the leader."""

    def __init__(self, request: wire.FetchRequest, session: FetchSession, send_part: SendPart) -> None:
        self.request = request
        self.session = session
        self.has_expired = False
        """Whether the request has waited as long as it may."""
        self._send_part = send_part
        self._left_bytes = min(request.max_bytes, _MAX_BYTES)
        self._items: list[wire.AnswerItem] = []
        self._records: list[Bytes] = []
        self._part_bytes = 0

    @property
    def left_bytes(self) -> int:
        """Bytes of records that may be added now: 0 once a part is full, or the request has got all it may."""
        if not self.request.takes_parts:
            return self._left_bytes
        full = len(self._items) >= _PART_ITEMS_MAX
        return 0 if full else min(self._left_bytes, _PART_BYTES_MAX - self._part_bytes)

    @property
    def is_over(self) -> bool:
        """Whether nothing more may be added to this answer."""
        return self._left_bytes <= 0 or bool(self._items)

    def add(self, item: wire.AnswerItem, records: Bytes) -> None:
        """A fetch was answered."""
        self._items.append(item)
        if records:
            self._records.append(records)
            self._part_bytes += len(records)
        if not item.stands:  # what stands has a bound of its own, in its session
            self._left_bytes -= len(records)

    def send(self) -> bool:
        """Send what was added, if the request takes parts; returns whether there was anything."""
        if not self._items or not self.request.takes_parts:
            return False
        self._send_part(self.whole())
        self._items, self._records, self._part_bytes = [], [], 0
        return True

    def whole(self) -> Sequence[Bytes]:
        """What was added and not sent."""
        return wire.encode_answer(wire.AnswerHeader(self._items, self.session.left), self._records)
