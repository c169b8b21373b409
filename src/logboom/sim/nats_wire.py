"""What is said to a simulated nats-server, as words; and which subjects are wanted. Pure.

Written against https://docs.nats.io/reference/reference-protocols/nats-protocol and
https://docs.nats.io/reference/reference-protocols/nats-server-protocol (between servers), with nothing of Logboom's own
reader, so that the broker is not checked with itself.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

END: Final = b"\r\n"
NO_QUEUE: Final = b""
_WITH_BODY: Final = frozenset((b"PUB", b"HPUB", b"RMSG"))
"""Commands whose last word is the size of what follows the line."""
_WITH_JSON: Final = frozenset((b"CONNECT", b"INFO"))
"""Commands that have one word, in which there may be spaces."""


class CommandReader:
    """Cuts what arrives into commands."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Sequence[bytes], bytes]]:
        """Whole commands: their words, and what follows the line."""
        self._received += data
        while (upto := self._received.find(END)) >= 0:
            line = bytes(self._received[:upto])
            command = line.partition(b" ")[0].upper()
            words = line.split(b" ", 1) if command in _WITH_JSON else line.split()
            begin = upto + len(END)
            size = int(words[-1]) if command in _WITH_BODY else 0
            end = begin + size + (len(END) if command in _WITH_BODY else 0)
            if len(self._received) < end:
                return
            body = bytes(self._received[begin : begin + size])
            del self._received[:end]
            yield words, body


class Interest:
    """Subjects, as patterns, that are subscribed to, each in a queue or in none; counted."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[bytes, bytes]] = Counter()

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Pattern and queue of each."""
        return iter(self._counts)

    def add(self, pattern: bytes, queue: bytes) -> bool:
        """One more; whether it is the first."""
        self._counts[pattern, queue] += 1
        return self._counts[pattern, queue] == 1

    def remove(self, pattern: bytes, queue: bytes) -> bool:
        """One less; whether it was the last."""
        self._counts[pattern, queue] -= 1
        if self._counts[pattern, queue] > 0:
            return False
        del self._counts[pattern, queue]
        return True

    def queues(self, tokens: Sequence[bytes]) -> list[bytes]:
        """The queues in which a subject is wanted, NO_QUEUE among them where it is wanted in none."""
        return list(dict.fromkeys(queue for pattern, queue in self if matches(pattern.split(b"."), tokens)))


def matches(pattern: Sequence[bytes], tokens: Sequence[bytes]) -> bool:
    """Whether a subscription to a pattern takes a subject, both as tokens.

    >>> matches([b"orders", b">"], [b"orders", b"eu", b"41"])
    True
    """
    for place, token in enumerate(pattern):
        if token == b">":
            return len(tokens) > place
        if place >= len(tokens) or token not in (b"*", tokens[place]):
            return False
    return len(tokens) == len(pattern)
