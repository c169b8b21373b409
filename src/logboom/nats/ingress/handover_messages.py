"""The messages between two leaders of a partition (`handover`), as bytes. Pure.

Both sides are brokers of one cluster. What becomes part of a NATS command is checked all the same: a subject with a
line break in it would be a command of its own, on the connection of a broker and with its permissions.

While a cluster is updated its brokers run two programs. Questions and answers may get further fields, at their end and
with a default: programs that do not know them ignore them.
"""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple
from uuid import UUID

import msgspec

from logboom.base.errors import InvalidRequestError
from logboom.base.ports import Bytes
from logboom.nats.link import commands

EPOCHS_MAX: Final = 1_000
"""Of the newest ones: what is in doubt is at the end of the log."""
_Many = msgspec.Meta(max_length=100_000)


class Wanted(msgspec.Struct, array_like=True, frozen=True):
    """A partition that another broker leads now."""

    stream: UUID
    partition: int
    epoch: int
    """The leader epoch in which it leads."""
    epochs: Annotated[list[tuple[int, int]], msgspec.Meta(max_length=EPOCHS_MAX)]
    """The leader epochs of its log, that one included, and where each began."""


class Question(msgspec.Struct, array_like=True, frozen=True):
    """What the next leader asks."""

    mark: str
    """A subject on which it hears that this broker hears nothing more; empty where it hears nothing itself."""
    wanted: Annotated[list[Wanted], _Many]
    server: str = ""
    """The id of the nats-server that it is connected to; empty if it does not say."""


class Given(NamedTuple):
    """A message that was not stored."""

    by_all: bool
    subject: bytes
    reply: bytes
    header: bytes
    payload: bytes


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """What the leader before tells of one partition."""

    given: list[Given]
    acks: list[bytes]
    """What is said to publishers, by messages of NATS as they are sent, once what the next leader found is
    committed."""
    refused: Annotated[Sequence[bytes], _Many] = ()
    """Digests of what publishers were told not to be stored (`refusals`), while this broker led as far as it knew."""
    is_apart: bool = False
    """Whether the two hear by different servers, as far as this one knows: then there was no mark."""


_QUESTION: Final = msgspec.msgpack.Decoder(Question)
_ANSWERS: Final = msgspec.msgpack.Decoder(list[Answer | None])


def encode_question(question: Question) -> bytes:
    """As it is sent."""
    return msgspec.msgpack.encode(question)


def read_question(body: Bytes) -> Question:
    """Raises InvalidRequestError."""
    try:
        return _QUESTION.decode(body)
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"a question for messages cannot be read: {error}") from None


def encode_answers(answers: Sequence[Answer | None]) -> bytes:
    """As they are sent, one for each partition that was asked for."""
    return msgspec.msgpack.encode(answers)


def read_answers(body: Bytes, count: int) -> Sequence[Answer | None]:
    """The answers for `count` partitions. Raises InvalidRequestError."""
    try:
        answers = _ANSWERS.decode(body)
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"an answer with messages cannot be read: {error}") from None
    if len(answers) != count:
        raise InvalidRequestError(f"an answer for {len(answers)} partitions of {count}")
    for answer in answers:
        if answer is not None and not (
            all(map(_is_message, answer.given)) and all(map(commands.publishes, answer.acks))
        ):
            raise InvalidRequestError("an answer with messages holds one that NATS cannot have brought")
    return answers


def _is_message(given: Given) -> bool:
    subject, reply = given.subject, given.reply
    return commands.is_word(subject) and (not reply or commands.is_word(reply))
