"""What a client says to a NATS server. Pure; subjects and queue names are checked by whoever has them from outside."""

import json
from collections.abc import Iterator, Mapping
from typing import Final

PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"
_END: Final = b"\r\n"
_PUBLISH_WORDS: Final = 3
WHITE: Final = (b" ", b"\t", b"\r", b"\n")
"""What separates words for nats-server. Any other byte may be in a subject, VT and FF too, at which `bytes.split()`
would split it."""


def connect(options: Mapping[str, object]) -> bytes:
    """The log-in."""
    return b"CONNECT %b\r\n" % json.dumps(options, separators=(",", ":")).encode()


def subscribe(sid: int, subject: str, queue: str | None) -> bytes:
    """From now on messages of a subject come with this `sid`; of a queue, each goes to one of its members."""
    words = [subject] if queue is None else [subject, queue]
    return f"SUB {' '.join(words)} {sid}\r\n".encode()


def unsubscribe(sid: int) -> bytes:
    """No more messages with this `sid`; those that are on their way still come."""
    return b"UNSUB %d\r\n" % sid


def publish(subject: bytes, payload: bytes) -> bytes:
    """A message."""
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload)


def is_word(subject: bytes) -> bool:
    """Whether a subject from outside can stand in a command: no space and no line break is in it.

    >>> is_word(b"a.b"), is_word(b""), is_word(b"a 0\\r\\n")
    (True, False, False)
    """
    return subject != b"" and not (b" " in subject or b"\t" in subject or b"\r" in subject or b"\n" in subject)


def publishes(said: bytes) -> bool:
    """Whether this is one message as `publish` makes it, and nothing else.

    >>> publishes(publish(b"a", b"x")), publishes(publish(b"a", b"x") + publish(b"b", b"y"))
    (True, False)
    """
    line, _, rest = said.partition(_END)
    words = line.split(b" ")
    return (
        len(words) == _PUBLISH_WORDS
        and words[0] == b"PUB"
        and is_word(words[1])
        and words[2] == b"%d" % (len(rest) - len(_END))
        and rest.endswith(_END)
    )


def messages_of(said: bytes) -> Iterator[tuple[bytes, bytes, bytes, bytes]]:
    """Subject, reply subject, header block and payload of each message in what `publish` and `request` have made.

    >>> list(messages_of(publish(b"a", b"x") + request(b"b", b"r", b"", b"y")))
    [(b'a', b'', b'', b'x'), (b'b', b'r', b'', b'y')]
    """
    at = 0
    while at < len(said):
        line_end = said.index(_END, at)
        words = said[at:line_end].split(b" ")
        size = int(words.pop())
        header_size = int(words.pop()) if words[0] == b"HPUB" else 0
        body = line_end + len(_END)
        split, at = body + header_size, body + size + len(_END)
        yield words[1], words[2] if len(words) == _PUBLISH_WORDS else b"", said[body:split], said[split : body + size]


def request(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> bytes:
    """A message with a header block, where that is not empty, to be answered on `reply`, where that is not."""
    words = b" ".join((subject, reply) if reply else (subject,))
    if not header:
        return b"PUB %b %d\r\n%b\r\n" % (words, len(payload), payload)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (words, len(header), len(header) + len(payload), header, payload)
