"""Turns a NATS message into the content of a record.

    payload               the value; for an envelope of Liftbridge, the value in it
    headers               the record's headers, repeated names kept; those of an envelope follow
    reply, subject        record headers `logboom-reply` and `logboom-subject`, behind all others
    key                   by the stream's setting `logboom.nats.key`; for `header`, the header `Logboom-Key`

What the publisher asks for is in headers too: `Nats-Msg-Id`, `Nats-Expected-Stream`, `Nats-Expected-Last-Sequence`,
`Nats-Expected-Last-Msg-Id` with JetStream's meaning, `Logboom-Ack` with the values of the setting `logboom.nats.ack`.
As in nats-server, the names of headers are case-sensitive, and the first of several headers with one name counts.
What belongs to the request and not to the message is not stored: expectations, `Logboom-Ack`, `Logboom-Key`. Headers
that ask JetStream for something that is not supported here are refused, as by a JetStream stream that forbids it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Final, NamedTuple, Self

from logboom.base.ids import Offset
from logboom.broker.partition.publications import Terms
from logboom.metadata import Stream, StreamConfig
from logboom.metadata.attachment import KeySource, PartitionerKind, read_key, read_partitioner
from logboom.nats.wire.acks import answerable
from logboom.nats.wire.envelope import MAGIC, AckPolicy, Envelope, read_envelope
from logboom.nats.wire.errors import MessageRefusedError, UnsupportedTermError, WrongStreamError
from logboom.nats.wire.headers import Fields, read_fields, shown
from logboom.nats.wire.partitioning import Partitioner
from logboom.records import EXPECTED_OFFSET, MESSAGE_ID, AlikeContents, record_content, varint

SUBJECT: Final = b"logboom-subject"
REPLY: Final = b"logboom-reply"
KEY: Final = b"Logboom-Key"
ACK: Final = b"Logboom-Ack"
EXPECTED_STREAM: Final = b"Nats-Expected-Stream"
EXPECTED_SEQUENCE: Final = b"Nats-Expected-Last-Sequence"
EXPECTED_ID: Final = b"Nats-Expected-Last-Msg-Id"
ACKS: Final = {"commit": -1, "leader": 1, "none": 0}
_ACKS_OF_POLICY: Final = {AckPolicy.LEADER: 1, AckPolicy.ALL: -1, AckPolicy.NONE: 0}
_OF_THE_REQUEST: Final = frozenset({KEY, ACK, EXPECTED_STREAM, EXPECTED_SEQUENCE, EXPECTED_ID})
_NOT_DONE: Final = {
    b"Nats-Expected-Last-Subject-Sequence": (400, 10003, "bad request: sequences of single subjects are not kept"),
    b"Nats-Expected-Last-Subject-Sequence-Subject": (
        400,
        10193,
        "missing sequence for expected last sequence per subject",
    ),
    b"Nats-Rollup": (500, 10111, "rollup not permitted"),
    b"Nats-TTL": (400, 10166, "per-message TTL is disabled"),
    b"Nats-Incr": (400, 10168, "message counters is disabled"),
    b"Nats-Batch-Id": (400, 10174, "atomic publish is disabled"),
    b"Nats-Schedule": (400, 10188, "message schedules is disabled"),
    EXPECTED_OFFSET: (400, 10003, f"bad request: header {EXPECTED_OFFSET.decode()} is for producers of Kafka"),
}
"""Headers that ask for what is not done, and JetStream's answer where a stream does not allow it."""
_OF_A_BATCH: Final = b".$FI"
"""How reply subjects of JetStream's batches end (fast ingest, 2.14), whose publisher waits for acks of another kind and
counts on what is not done: gaps are found, and some of its messages are none to be stored."""
_DEFAULTS: Final = StreamConfig()
"""A broker has none of its own for what is asked here, since all have to agree."""
_SEQUENCE_DIGITS_MAX: Final = 19
_SUBJECTS_KNOWN_MAX: Final = 4_096
"""Subjects of which the packed header is remembered; most publishers use few."""
_KNOWN_BYTES_MAX: Final = 256
"""Of a subject that is remembered, up to four times: some 8 MB for a stream at most. nats-server takes up to 4 KiB."""
_NO_KEY: Final = varint(-1)
_PACKED_SUBJECT: Final = varint(len(SUBJECT)) + SUBJECT
_PACKED_REPLY: Final = varint(len(REPLY)) + REPLY
_ONE, _TWO = varint(1), varint(2)


class Message(NamedTuple):
    """A message, ready to be published."""

    content: bytes
    """Of its record."""
    partition: int
    terms: Terms | None
    """None where its publisher asks for nothing but that it be stored."""
    reply: bytes
    """Where the outcome goes; empty where nobody wants it."""
    acks: int
    """When the outcome is known: -1 at commit, 1 once the leader's disk has it, 0 at once."""
    envelope: Envelope | None = None
    """Where the outcome is to be told in its words (`envelope.Sealed`)."""


class MessagesAlike(NamedTuple):
    """Messages of one subject, ready to be published, none with terms or in an envelope."""

    contents: Sequence[bytes]
    """Of their records."""
    partition: int
    replies: Sequence[bytes]
    """Where the outcomes go; empty where nobody wants one."""
    acks: int
    """As of a single message."""


class _Heads(dict[int, bytes]):
    """Bytes that are the same in all records, and the size of what stands behind them, by that size."""

    def __init__(self, before: bytes) -> None:
        super().__init__()
        self._before = before

    def __missing__(self, size: int) -> bytes:
        head = self[size] = self._before + varint(size)
        return head


class _Subject(NamedTuple):
    """What is known of a message from its subject alone."""

    packed: bytes
    """Its header in a record."""
    key: bytes | None
    packed_key: bytes
    partition: int
    """That of a message which has no key but this."""


class _Raw(NamedTuple):
    """A message as it came."""

    subject: bytes
    reply: bytes
    block: bytes
    payload: bytes


class Reader:
    """Reads the messages of one stream."""

    def __init__(self, stream: str, *, key: str, ack: str, partitioner: str = "key", partitions: int = 1) -> None:
        """`key`, `ack`, `partitioner`: the stream's settings of these names."""
        self._stream = stream.encode()
        self._acks = ACKS[ack]
        self._key = read_key(key)
        choice = read_partitioner(partitioner)
        chosen_here = partitions > 1 and choice.kind is not PartitionerKind.ROUND_ROBIN
        self._partitioner = Partitioner(choice, partitions) if chosen_here else None
        self._subjects: dict[bytes, _Subject] = {}

    @classmethod
    def of(cls, stream: Stream) -> Self:
        """That of a stream, by its settings."""
        config = stream.config_over(_DEFAULTS)
        return cls(
            stream.name,
            key=config.nats_key,
            ack=config.nats_ack,
            partitioner=config.nats_partitioner,
            partitions=stream.partitions,
        )

    def read(
        self,
        subject: bytes,
        reply: bytes,
        block: bytes,
        payload: bytes,
        *,
        partition: int | None = None,
        takes: Callable[[int], bool] | None = None,
    ) -> Message | None:
        """A message, for this partition where the subscription says which. None where `takes` does not want it: it is
        another broker's, which looks at it too.

        Raises MessageRefusedError for one that is refused, to the broker that takes it alone.
        """
        known = self._subjects.get(subject) or self._learn(subject)
        if block or payload.startswith(MAGIC):
            return self._read_whole(known, _Raw(subject, reply, block, payload), partition, takes)
        to = known.partition if partition is None else partition
        if takes is not None and not takes(to):
            return None
        # As `record_content` does it, with what the messages of a subject have in common packed once.
        if reply.endswith(_OF_A_BATCH):
            raise _batch_refused()
        replied = (_TWO, _PACKED_REPLY, varint(len(reply)), reply) if reply else (_ONE,)
        content = b"".join((known.packed_key, varint(len(payload)), payload, *replied, known.packed))
        return Message(content, to, None, answerable(reply) if self._acks else b"", self._acks)

    def read_alike(
        self,
        subject: bytes,
        replies: Sequence[bytes],
        payloads: Sequence[bytes],
        *,
        of_one_size: bool = False,
        partition: int | None = None,
        takes: Callable[[int], bool],
    ) -> MessagesAlike | None:
        """Messages of one subject without headers, as `read` would read each; none where `takes` does not want their
        partition. `of_one_size`: whether all replies are, and all payloads. None: they have to be read one by one,
        because some are in envelopes or of a batch."""
        if MAGIC in b"".join(payloads) and any(map(bytes.startswith, payloads, repeat(MAGIC))):
            return None  # the first takes a third of the time of the second, and mostly says that none is
        known = self._subjects.get(subject) or self._learn(subject)
        to = known.partition if partition is None else partition
        if not takes(to):
            return MessagesAlike([], to, (), self._acks)
        together = b" ".join((b"", *replies)) if any(replies) else b""
        if _OF_A_BATCH in together:
            return None
        contents = _packed_alike(known, replies, payloads, of_one_size=of_one_size)
        if b" $" in together:
            replies = list(map(answerable, replies))
        return MessagesAlike(contents, to, replies if self._acks else [b""] * len(replies), self._acks)

    def refusal_reply(self, reply: bytes, block: bytes, payload: bytes) -> tuple[bytes, Envelope | None]:
        """Where a message is refused that was not read to its end; empty where it is to have no answer. And the
        envelope in whose words that is told, if it came in one."""
        with suppress(MessageRefusedError):
            envelope = read_envelope(payload)
            if envelope is not None:
                return envelope.ack_inbox if _ACKS_OF_POLICY[envelope.ack_policy] else b"", envelope
        acks = self._acks
        with suppress(MessageRefusedError):  # what cannot be read chooses nothing
            word = dict(reversed(read_fields(block))).get(ACK) if block else None
            acks = acks if word is None else _acks(word)
        return reply if acks else b"", None

    def _learn(self, subject: bytes) -> _Subject:
        key = _key_of(self._key, subject)
        known = _Subject(
            _PACKED_SUBJECT + varint(len(subject)) + subject,
            key,
            _NO_KEY if key is None else varint(len(key)) + key,
            0 if self._partitioner is None else self._partitioner.choose(key, subject),
        )
        if len(subject) <= _KNOWN_BYTES_MAX:
            if len(self._subjects) >= _SUBJECTS_KNOWN_MAX:
                self._subjects.clear()
            self._subjects[subject] = known
        return known

    def _read_whole(
        self,
        known: _Subject,
        message: _Raw,
        partition: int | None,
        takes: Callable[[int], bool] | None,
    ) -> Message | None:
        """A message with headers, or in an envelope."""
        fields, envelope, fault = _taken_apart(message)
        first = dict(reversed(fields))
        key = known.key
        if self._key.kind == "header":
            key = first.get(KEY)
        if envelope is not None and key is None and self._key.kind in ("header", "envelope"):
            key = envelope.key
        to = partition
        if to is None:
            to = known.partition if self._partitioner is None else self._partitioner.choose(key, message.subject)
        if takes is not None and not takes(to):
            return None
        if fault is not None:
            raise fault
        if message.reply.endswith(_OF_A_BATCH):
            raise _batch_refused()
        return self._packed(message, fields, first, key, to, envelope)

    def _packed(
        self,
        message: _Raw,
        fields: Fields,
        first: Mapping[bytes, bytes],
        key: bytes | None,
        to: int,
        envelope: Envelope | None,
    ) -> Message:
        terms, acks = self._asked(first)
        reply, value = message.reply, message.payload
        kept: list[tuple[bytes, bytes | None]] = [each for each in fields if each[0] not in _OF_THE_REQUEST]
        if envelope is not None:
            acks, reply, value = _ACKS_OF_POLICY[envelope.ack_policy], envelope.ack_inbox, envelope.value
        if message.reply:
            kept.append((REPLY, message.reply))
        kept.append((SUBJECT, message.subject))
        content = record_content(key, value, kept)
        return Message(content, to, terms, answerable(reply) if acks else b"", acks, envelope)

    def _asked(self, first: Mapping[bytes, bytes]) -> tuple[Terms | None, int]:
        """The terms of a message, and when it is acked. Raises MessageRefusedError where they cannot be had."""
        if not _NOT_DONE.keys().isdisjoint(first):
            code, err_code, why = next(answer for name, answer in _NOT_DONE.items() if name in first)
            raise UnsupportedTermError(why, code=code, err_code=err_code)
        if (first.get(EXPECTED_STREAM) or self._stream) != self._stream:
            raise WrongStreamError("expected stream does not match")
        word = first.get(ACK)
        return _terms(first), self._acks if word is None else _acks(word)


def _batch_refused() -> MessageRefusedError:
    return UnsupportedTermError("batch publish is disabled", err_code=10205)


def _packed_alike(
    known: _Subject, replies: Sequence[bytes], payloads: Sequence[bytes], *, of_one_size: bool
) -> Sequence[bytes]:
    """The contents of records of one subject, with nothing but payload and reply that differ."""
    heads, answered, alone = _Heads(known.packed_key), _Heads(_TWO + _PACKED_REPLY), _ONE + known.packed
    if of_one_size:
        values = heads[len(payloads[0])], payloads
        if not replies[0]:
            return AlikeContents([values], alone)
        return AlikeContents([values, (answered[len(replies[0])], replies)], known.packed)
    return [
        b"".join((heads[len(payload)], payload, answered[len(reply)], reply, known.packed))
        if reply
        else heads[len(payload)] + payload + alone
        for payload, reply in zip(payloads, replies, strict=True)
    ]


def _taken_apart(message: _Raw) -> tuple[Fields, Envelope | None, MessageRefusedError | None]:
    """Its headers, those in its envelope behind them; its envelope; and what is wrong with either."""
    try:
        fields = read_fields(message.block)
        envelope = read_envelope(message.payload)
    except MessageRefusedError as fault:
        return [], None, fault
    return fields if envelope is None else fields + envelope.headers, envelope, None


def _key_of(source: KeySource, subject: bytes) -> bytes | None:
    """The key, where the subject alone says it."""
    if source.kind == "subject":
        return subject
    if source.kind != "token":
        return None
    tokens = subject.split(b".")
    return tokens[source.token - 1] if source.token <= len(tokens) else None


def _terms(first: Mapping[bytes, bytes]) -> Terms | None:
    """What a message asks for of its partition; an empty header asks for nothing, as with nats-server."""
    message_id, sequence, last_id = first.get(MESSAGE_ID), first.get(EXPECTED_SEQUENCE), first.get(EXPECTED_ID)
    if not (message_id or sequence or last_id):
        return None
    return Terms(message_id or None, _sequence(sequence) if sequence else None, last_id or None)


def _sequence(text: bytes) -> Offset:
    """The end of the log that a publisher expects: sequence n is offset n - 1, behind which is n."""
    if not text.isdigit() or len(text) > _SEQUENCE_DIGITS_MAX:
        raise UnsupportedTermError(f"bad request: {shown(text)} is no sequence")
    return Offset(int(text))


def _acks(word: bytes) -> int:
    try:
        return ACKS[word.decode()]
    except (KeyError, UnicodeDecodeError):
        raise UnsupportedTermError(
            f"bad request: {ACK.decode()} is {shown(word)}, and should be commit, leader or none"
        ) from None
