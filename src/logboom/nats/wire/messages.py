"""A message of NATS becomes the content of a record.

    payload               the value
    headers               the record's headers, repeated names kept
    subject, reply        record headers `logboom-subject` and `logboom-reply`, behind all others
    key                   by the stream's setting `logboom.nats.key`; the header `Logboom-Key` where that says so

What the publisher asks for is in headers too: `Nats-Msg-Id`, `Nats-Expected-Stream`, `Nats-Expected-Last-Sequence`,
`Nats-Expected-Last-Msg-Id` as JetStream has them, `Logboom-Ack` with the words of the setting `logboom.nats.ack`.
"""

from typing import Final, NamedTuple

from logboom.base.ids import Offset
from logboom.broker.partition.publications import Terms
from logboom.nats.wire.acks import UnsupportedTermError, WrongStreamError
from logboom.nats.wire.headers import read_fields
from logboom.records import record_content

SUBJECT: Final = b"logboom-subject"
REPLY: Final = b"logboom-reply"
KEY: Final = b"logboom-key"
ACK: Final = b"logboom-ack"
ACKS: Final = {"commit": -1, "leader": 1, "none": 0}
_MESSAGE_ID: Final = b"nats-msg-id"
_EXPECTED_STREAM: Final = b"nats-expected-stream"
_EXPECTED_SEQUENCE: Final = b"nats-expected-last-sequence"
_EXPECTED_ID: Final = b"nats-expected-last-msg-id"
_NOT_DONE: Final = frozenset({b"nats-expected-last-subject-sequence", b"nats-rollup"})
_SEQUENCE_DIGITS_MAX: Final = 19


class Message(NamedTuple):
    """A message, ready to be published."""

    content: bytes
    """Of its record."""
    key: bytes | None
    terms: Terms | None
    """None where its publisher asks for nothing but that it be stored."""
    reply: bytes
    """Where the outcome goes; empty where nobody wants it."""
    acks: int
    """When the outcome is known: -1 at commit, 1 once the leader's disk has it, 0 at once."""


class Reader:
    """Reads the messages of one stream."""

    def __init__(self, stream: str, *, key: str, ack: str) -> None:
        """`key` and `ack`: the stream's settings of these names."""
        self._stream = stream.encode()
        self._acks = ACKS[ack]
        self._key_header = key in ("header", "envelope")
        kind, _, number = key.partition(":")
        self._key_token = int(number) - 1 if kind == "token" else None

    def read(self, subject: bytes, reply: bytes, block: bytes, payload: bytes) -> Message:
        """A message. Raises LogboomError for one that is refused."""
        key, terms, acks = None, None, self._acks
        fields: list[tuple[bytes, bytes | None]] = []
        if block:
            fields += read_fields(block)
            key, terms, acks = self._asked(fields)
        if self._key_token is not None:
            tokens = subject.split(b".")
            key = tokens[self._key_token] if self._key_token < len(tokens) else None
        fields.append((SUBJECT, subject))
        if reply:
            fields.append((REPLY, reply))
        return Message(record_content(key, payload, fields), key, terms, reply if acks else b"", acks)

    def _asked(self, fields: list[tuple[bytes, bytes | None]]) -> tuple[bytes | None, Terms | None, int]:
        """Key, terms and acks, as headers have them; of a name that is repeated the first."""
        found: dict[bytes, bytes] = {}
        for name, value in fields:
            found.setdefault(name.lower(), value or b"")
        for name in _NOT_DONE & found.keys():
            raise UnsupportedTermError(f"the header {name.decode()} is not supported")
        if found.get(_EXPECTED_STREAM, self._stream) != self._stream:
            raise WrongStreamError(f"the message is meant for {found[_EXPECTED_STREAM][:255]!r}")
        sequence, last_id = found.get(_EXPECTED_SEQUENCE), found.get(_EXPECTED_ID)
        expected_end = None if sequence is None else _sequence(sequence)
        message_id = found.get(_MESSAGE_ID) or None
        terms = None
        if message_id is not None or expected_end is not None or last_id:
            terms = Terms(message_id, expected_end, last_id or None)
        acks = self._acks
        if (word := found.get(ACK)) is not None:
            acks = _acks(word)
        return found.get(KEY) if self._key_header else None, terms, acks


def _sequence(text: bytes) -> Offset:
    """The end of the log that a publisher expects: sequence n is offset n - 1, behind which is n."""
    if not text.isdigit() or len(text) > _SEQUENCE_DIGITS_MAX:
        raise UnsupportedTermError(f"{text[:40]!r} is no sequence")
    return Offset(int(text))


def _acks(word: bytes) -> int:
    try:
        return ACKS[word.decode().lower()]
    except (KeyError, UnicodeDecodeError):
        raise UnsupportedTermError(f"{word[:40]!r} is no way to ack: commit, leader, none") from None
