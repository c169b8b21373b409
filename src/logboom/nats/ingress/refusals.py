"""What publishers were told lately not to be stored. Pure.

A broker that was replaced by choice refuses messages until it hears of that, and the next leader may have heard the
same ones. Publishers rely on an error, so that one is told which messages were refused (`handover`), and does not store
them. Of each there is a digest alone, for as long as a leader may lead without knowing of the next one, and no longer:
without an answer from this broker the next leader goes on before.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

from logboom.nats.link.frames import Delivery

REFUSALS_MAX: Final = 10_000
"""Of a broker, the newest ones; some 2 MB."""
REMEMBERED_S: Final = 5.0
"""As long as messages are held for the next leader."""
DIGEST_BYTES: Final = 16


class Refusals:
    """See the module. Life: that of the front end."""

    def __init__(self) -> None:
        self._by_partition: dict[tuple[str, int], deque[tuple[float, bytes]]] = {}
        """When each was refused, and its digest."""
        self._order: deque[tuple[str, int]] = deque()
        """The partition of each, the oldest first."""

    def note(self, stream: str, index: int, messages: Iterable[Delivery], now_s: float) -> None:
        """Publishers of a partition are told that these are not stored."""
        key = stream, index
        for message in messages:
            self._order.append(key)
            self._by_partition.setdefault(key, deque()).append((now_s, digest(message[1:])))
            if len(self._order) > REFUSALS_MAX:
                self._forget_oldest()

    def of(self, stream: str, index: int, now_s: float) -> Sequence[bytes]:
        """The digests of those of a partition, one for each message, also where messages are equal."""
        while self._order and self._by_partition[self._order[0]][0][0] < now_s - REMEMBERED_S:
            self._forget_oldest()
        return [each for _, each in self._by_partition.get((stream, index), ())]

    def _forget_oldest(self) -> None:
        key = self._order.popleft()
        known = self._by_partition[key]
        known.popleft()
        if not known:
            del self._by_partition[key]


def digest(words: Iterable[bytes]) -> bytes:
    """What stands for a message: for its subject, reply, header and payload.

    >>> digest((b"a", b"bc")) == digest((b"ab", b"c"))
    False
    """
    made = blake2b(digest_size=DIGEST_BYTES)
    for word in words:
        made.update(b"%d " % len(word))
        made.update(word)
    return made.digest()
