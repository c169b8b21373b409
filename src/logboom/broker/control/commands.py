"""What a broker asks of the controller, as messages: one class for each command, and the answer.

Sent in MessagePack between brokers of one cluster; on the controller's own broker the same objects are passed on
directly. A command says what is to be achieved, never which records: those depend on the image, and only the
controller's is certain to be the latest. Every command may be repeated when its answer was lost (`settled_by`): a
second copy finds nothing left to do, or is refused (`ConditionalCommand`).
"""

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Final, TypeAlias
from uuid import UUID

import msgspec

from logboom.base import errors
from logboom.base.errors import InvalidRequestError, LogboomError

Replicas: TypeAlias = tuple[tuple[int, ...], ...]


CREATED_TOGETHER_MAX: Final = 100
"""Streams of one command: each broker makes their directories and opens them before it does anything else of the
metadata."""


class Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="command"):
    """Base of all commands."""


class ConditionalCommand(Command, frozen=True, kw_only=True):
    """Base of commands that are executed only if nobody else has changed the same objects since they were made: a late
    one, or a second copy, would undo later changes. Their request names the last metadata entry that the sender knew
    (`Request.revision`). All other commands are recognised by what they name: ids, epochs, numbers."""


# --- streams -----------------------------------------------------------------------------------------------------


class CreateStream(Command, frozen=True, kw_only=True, tag="create_stream"):
    """A new stream. The sender draws its id, so that a repeated command is recognised."""

    name: str
    id: UUID
    partitions: int | None = None
    replication_factor: int | None = None
    config: dict[str, str | None] = {}
    assignments: Replicas | None = None
    validate_only: bool = False


class CreateStreams(Command, frozen=True, kw_only=True, tag="create_streams"):
    """New streams in one change of the metadata, each created or refused by itself; the answer has a `Refusal` or None
    for each. From metadata level `levels.CREATE_STREAMS_FROM` on."""

    streams: Annotated[tuple[CreateStream, ...], msgspec.Meta(max_length=CREATED_TOGETHER_MAX)]


class EnsureStream(Command, frozen=True, kw_only=True, tag="ensure_stream"):
    """An internal stream: created where there is none, with at most `replication_factor` replicas."""

    name: str
    id: UUID
    partitions: int
    config: dict[str, str]
    replication_factor: int = 1


class AddPartitions(ConditionalCommand, frozen=True, kw_only=True, tag="add_partitions"):
    """A stream gets more partitions."""

    name: str
    total: int
    assignments: Replicas | None = None
    validate_only: bool = False


class ChangeStreamConfig(ConditionalCommand, frozen=True, kw_only=True, tag="change_stream_config"):
    """Settings of a stream; None gives one back to its default."""

    name: str
    changes: dict[str, str | None]
    replace_all: bool = False
    validate_only: bool = False
    internal: bool = False


class DeleteStream(ConditionalCommand, frozen=True, kw_only=True, tag="delete_stream"):
    """A stream is deleted with all its records."""

    name: str
    id: UUID | None = None
    """The id that the sender knows for the name: a stream that was created under this name since is not deleted. None
    if the sender knows none."""


# --- settings, quotas, producers -----------------------------------------------------------------------------------


class ChangeBrokerConfig(ConditionalCommand, frozen=True, kw_only=True, tag="change_broker_config"):
    """Settings of one broker, or under an empty name of all."""

    broker: str
    changes: dict[str, str | None]
    replace_all: bool = False
    validate_only: bool = False


class EntityQuotas(msgspec.Struct, frozen=True, array_like=True):
    """Quotas to set for one entity; None removes a quota."""

    entity: tuple[tuple[str, str | None], ...]
    changes: dict[str, float | None]


class ChangeQuotas(ConditionalCommand, frozen=True, kw_only=True, tag="change_quotas"):
    """Quotas of each entity by itself. Answered by a `Refusal` or None for each."""

    wanted: tuple[EntityQuotas, ...]
    validate_only: bool = False


class AllocateProducerIds(Command, frozen=True, kw_only=True, tag="allocate_producer_ids"):
    """Producer ids that were never given out before. Answered by the first of them."""

    count: int


# --- brokers and partitions ------------------------------------------------------------------------------------------


class Discover(Command, frozen=True, kw_only=True, tag="discover"):
    """Asks for the cluster id; any broker answers. For a broker that is going to join."""


class RegisterBroker(Command, frozen=True, kw_only=True, tag="register_broker"):
    """A process of a broker has started. Answered by `Registered`."""

    id: int
    directory_id: str
    incarnation: str
    listeners: dict[str, tuple[str, int]]
    rack: str | None = None
    failure_domain: str = ""
    software: str = ""
    clean_epoch: int | None = None
    observer: bool = False
    levels: tuple[int, int] = (1, 1)
    """The oldest and the newest metadata level that its program speaks; the default is for programs that say none."""
    returning: bool = False
    """Whether it was registered before with this directory: if it is not any more, it was removed."""
    earlier: tuple[str, ...] = ()
    """The processes that have asked before with this directory (`incarnations`); empty where it says none."""


class Heartbeat(Command, frozen=True, kw_only=True, tag="heartbeat"):
    """A broker is alive. Answered by `Lease`."""

    broker: int
    epoch: int
    applied: int
    """The last entry of the metadata that it has applied."""
    ready: bool
    """Whether it has recovered its logs and may be unfenced."""
    stopping: bool = False
    """Whether it asks others to lead, since it is about to stop."""
    stalled: bool = False
    """Whether its disk hangs: it can neither write nor follow."""
    levels: tuple[int, int] = (1, 1)
    """As in `RegisterBroker`: below level 2 no record says it."""
    ended: bool = False
    """Whether it has stopped and no longer acts under its lease: it is fenced at once. Programs that do not know this
    field wait until the lease is over."""
    number: int = 0
    """The number of the heartbeat among those of its process; they may arrive in another order. 0 from programs that
    wait for each answer before they send the next one."""
    wall_ms: int = 0
    """What its clock shows (`settled_clock`), in milliseconds since 1970; 0 from programs that do not say."""


class ChangeIsr(Command, frozen=True, kw_only=True, tag="change_isr"):
    """A leader proposes ISRs. Answered by a `Refusal` or None for each."""

    broker: int
    epoch: int
    proposals: tuple["Proposal", ...]


class Proposal(msgspec.Struct, frozen=True, array_like=True):
    """The ISR of one partition (`metadata.leadership.IsrProposal`)."""

    stream: UUID
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: dict[int, int]


class ReplicasLost(Command, frozen=True, kw_only=True, tag="replicas_lost"):
    """Replicas of this broker have none of their records any more. Answered by a `Refusal` or None for each."""

    broker: int
    epoch: int
    lost: tuple[tuple[UUID, int], ...]
    partition_epochs: tuple[int, ...] = ()
    """The partition epoch of each that the broker knew when it reported the loss: a report that was processed raises
    it, so that a late copy of the report does not apply to the replica that was made since. Empty from programs that do
    not send it."""


class Reassign(ConditionalCommand, frozen=True, kw_only=True, tag="reassign"):
    """A partition moves to other brokers; without replicas a move that is under way is taken back (KIP-455)."""

    name: str
    index: int
    replicas: tuple[int, ...] | None


class Elect(ConditionalCommand, frozen=True, kw_only=True, tag="elect"):
    """The preferred leader of a partition is to lead, or any replica at all (KIP-460)."""

    name: str
    index: int
    unclean: bool = False


class DrainBroker(ConditionalCommand, frozen=True, kw_only=True, tag="drain_broker"):
    """A broker gets no new partitions and gives away those it has; or takes part again."""

    broker: int
    draining: bool


class DescribeQuorum(Command, frozen=True, kw_only=True, tag="describe_quorum"):
    """The consensus group as its leader sees it (`broker.quorum.QuorumView`); changes nothing."""


class SetMetadataLevel(ConditionalCommand, frozen=True, kw_only=True, tag="set_metadata_level"):
    """The metadata level of the cluster is raised, or lowered where that is allowed (KIP-584)."""

    level: int
    may_lower: bool = False
    validate_only: bool = False


class UnregisterBroker(ConditionalCommand, frozen=True, kw_only=True, tag="unregister_broker"):
    """A broker that will not return is removed from the metadata."""

    broker: int


AnyCommand: TypeAlias = (
    CreateStream
    | CreateStreams
    | EnsureStream
    | AddPartitions
    | ChangeStreamConfig
    | DeleteStream
    | ChangeBrokerConfig
    | ChangeQuotas
    | AllocateProducerIds
    | Discover
    | RegisterBroker
    | Heartbeat
    | ChangeIsr
    | ReplicasLost
    | Reassign
    | Elect
    | DrainBroker
    | DescribeQuorum
    | UnregisterBroker
    | SetMetadataLevel
)


FORWARDED: Final = (RegisterBroker, Heartbeat)
"""Commands that another broker may forward, since the sender knows no controller: one that joins, or one that was
removed and no longer hears of any. Such a request names no controllership and may reach any of them late; the
controller recognises it by the process (epoch, incarnation) and by the number of the heartbeat."""


# --- answers ---------------------------------------------------------------------------------------------------------


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `RegisterBroker`."""

    epoch: int
    cluster_id: str
    members: dict[int, tuple[str, tuple[str, int] | None]]
    """Directory id and peer address of each registered broker, by its id: a new broker has no other source for them."""
    wall_ms: int = 0
    """As in `Lease`."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `Heartbeat`: a lease from the moment at which that was sent, unless the broker is fenced."""

    fenced: bool
    applied: int
    """The last entry of the metadata that the controller has applied."""
    may_stop: bool
    """Whether other brokers lead every partition that another broker can lead."""
    wall_ms: int = 0
    """What the clocks of most brokers show, in milliseconds since 1970; 0 if that is not known."""


class Refusal(msgspec.Struct, frozen=True):
    """An error as a value."""

    name: str
    text: str
    limit: str = ""

    @classmethod
    def of(cls, error: LogboomError) -> "Refusal":
        """Makes the value from an error."""
        return cls(type(error).__name__, str(error), error.limit)

    @property
    def error(self) -> LogboomError:
        """The error as it was raised; InvalidRequestError for a class that this program does not know."""
        return _error_classes().get(self.name, InvalidRequestError)(self.text, limit=self.limit)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a command."""

    index: int
    """The metadata entry that a broker must have applied to see the result."""
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    """Of the type that the command declares, in MessagePack."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A command on its way to the controller."""

    command: AnyCommand
    forward: bool = False
    """Whether a broker that is not the controller forwards it; only for `FORWARDED`."""
    term: int | None = None
    """The controllership that it is meant for, by the term of the consensus group: a connection may deliver it late.
    None from programs that do not send it, and where another broker is to forward it."""
    revision: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """The entry of the metadata log up to which the sender had applied it when it made the command. None from programs
    that do not say it, and of commands that need none."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_REQUESTS: Final = msgspec.msgpack.Decoder(Request)
_ANSWERS: Final = msgspec.msgpack.Decoder(Answer)


def encode(message: Request | Answer) -> bytes:
    """A message for another broker."""
    return _ENCODER.encode(message)


def answer(index: int, value: object = None) -> Answer:
    """An answer with a value."""
    return Answer(index=index, value=msgspec.Raw(_ENCODER.encode(value)))


def value_of(answer: Answer, kind: Any) -> Any:
    """The value of an answer. Raises InvalidRequestError where another program wrote it."""
    return _decoded(answer.value, kind)


def decode_request(data: memoryview) -> Request:
    """A request of another broker. Raises InvalidRequestError."""
    request: Request = _checked(_REQUESTS, data)
    return request


def decode_answer(data: memoryview) -> Answer:
    """The answer of another broker. Raises InvalidRequestError."""
    answer: Answer = _checked(_ANSWERS, data)
    return answer


def settled_by(command: Command, error: LogboomError) -> bool:
    """Whether a command whose answer was lost has done its work, if repeating it gives `error`."""
    match command:
        case DeleteStream():
            return isinstance(error, errors.UnknownStreamError)
        case UnregisterBroker():
            return isinstance(error, errors.UnknownBrokerError)
        case Elect():
            return isinstance(error, errors.ElectionNotNeededError)
        case Reassign(replicas=None):
            return isinstance(error, errors.NoReassignmentInProgressError)
        case _:
            return False


def _checked(decoder: "msgspec.msgpack.Decoder[Any]", data: Any) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequestError(f"another broker sent what this one cannot read: {error}") from None


def _decoded(data: Any, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"another broker sent what this one cannot read: {error}") from None


@cache
def _error_classes() -> dict[str, type[LogboomError]]:
    def below(cls: type[LogboomError]) -> Iterator[type[LogboomError]]:
        for one in cls.__subclasses__():
            yield one
            yield from below(one)

    return {one.__name__: one for one in below(LogboomError) if one.__module__ == errors.__name__}
