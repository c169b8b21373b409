"""What a broker asks of the controller, as messages: one class a command, and the answer.

Sent in MessagePack between brokers of one cluster; on the controller's own broker the same objects are handed over as
they are. A command says what is to be achieved, never which records: those depend on the image, and only the
controller's is certain to be the latest. Every command may be repeated when its answer was lost (`settled_by`): a
second copy finds that nothing is left to do, or is refused (`ConditionalCommand`).
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
    """Base of those that are executed only where nobody else has changed the same since they were made: a late one, or
    a second copy, would undo what came meanwhile. Their request says up to which entry of the metadata log whoever made
    them knew the image (`Request.revision`). All others are known again by what they name: ids, epochs, numbers."""


# --- streams -----------------------------------------------------------------------------------------------------


class CreateStream(Command, frozen=True, kw_only=True, tag="create_stream"):
    """A new stream. Whoever asks draws its id, so that a repeated command is recognised."""

    name: str
    id: UUID
    partitions: int | None = None
    replication_factor: int | None = None
    config: dict[str, str | None] = {}
    assignments: Replicas | None = None
    validate_only: bool = False


class CreateStreams(Command, frozen=True, kw_only=True, tag="create_streams"):
    """New streams, each by itself and all in one change of the metadata; the answer is a `Refusal` or None for each.
    From metadata level `levels.CREATE_STREAMS_FROM` on."""

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
    """A stream goes, with all its records."""

    name: str
    id: UUID | None = None
    """As whoever asks knows it: another stream of this name, made since, stays. None where it knows of none."""


# --- settings, quotas, producers -----------------------------------------------------------------------------------


class ChangeBrokerConfig(ConditionalCommand, frozen=True, kw_only=True, tag="change_broker_config"):
    """Settings of one broker, or under an empty name of all."""

    broker: str
    changes: dict[str, str | None]
    replace_all: bool = False
    validate_only: bool = False


class EntityQuotas(msgspec.Struct, frozen=True, array_like=True):
    """What is wanted of one entity; None removes a quota."""

    entity: tuple[tuple[str, str | None], ...]
    changes: dict[str, float | None]


class ChangeQuotas(ConditionalCommand, frozen=True, kw_only=True, tag="change_quotas"):
    """Quotas of each entity by itself. Answered by a `Refusal` or None for each."""

    wanted: tuple[EntityQuotas, ...]
    validate_only: bool = False


class AllocateProducerIds(Command, frozen=True, kw_only=True, tag="allocate_producer_ids"):
    """Ids that were never given before. Answered by the first of them."""

    count: int


# --- brokers and partitions ------------------------------------------------------------------------------------------


class Discover(Command, frozen=True, kw_only=True, tag="discover"):
    """Which cluster is this? Answered by its id, by any broker: for one that is going to join."""


class RegisterBroker(Command, frozen=True, kw_only=True, tag="register_broker"):
    """A process of a broker begins. Answered by `Registered`."""

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
    """A broker lives. Answered by `Lease`."""

    broker: int
    epoch: int
    applied: int
    """The last entry of the metadata that it has applied."""
    ready: bool
    """Whether it has recovered its logs and may be unfenced."""
    stopping: bool = False
    """Whether it wants others to lead, since it is about to end."""
    stalled: bool = False
    """Whether its disk hangs: it can neither write nor follow."""
    levels: tuple[int, int] = (1, 1)
    """As in `RegisterBroker`: below level 2 no record says it."""
    ended: bool = False
    """Whether it has stopped, and acts under its lease no more: it is fenced at once. Programs that do not know the
    word wait until the lease is over."""
    number: int = 0
    """Of the heartbeats of a process, in the order in which it sends them; they need not come in that order. 0 from
    programs that wait for each answer before they send the next one."""


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
    """Of each, the partition epoch that the broker knew when it said so: a report that was heard raises it, so that a
    copy of the report which comes late does not speak of the replica that was made since. Empty from programs that do
    not say it."""


class Reassign(ConditionalCommand, frozen=True, kw_only=True, tag="reassign"):
    """A partition moves to other brokers; without replicas a move that is under way is taken back (KIP-455)."""

    name: str
    index: int
    replicas: tuple[int, ...] | None


class Elect(ConditionalCommand, frozen=True, kw_only=True, tag="elect"):
    """The preferred leader of a partition leads, or anybody at all (KIP-460)."""

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
"""What a broker may have another one pass on, since it knows nobody who is the controller: one that joins, and one that
was removed and hears of none any more. Such a request names no controllership, and may come late to any: the
controller knows both by the process (epoch, incarnation) and by the number of the heartbeat."""


# --- answers ---------------------------------------------------------------------------------------------------------


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `RegisterBroker`."""

    epoch: int
    cluster_id: str
    members: dict[int, tuple[str, tuple[str, int] | None]]
    """Directory id and peer address of each registered broker, by its id: a new broker has no other source for them."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `Heartbeat`: a lease from the moment at which that was sent, unless the broker is fenced."""

    fenced: bool
    applied: int
    """The last entry of the metadata that the controller has applied."""
    may_stop: bool
    """Whether other brokers lead all partitions that another broker can lead."""


class Refusal(msgspec.Struct, frozen=True):
    """An error as a value."""

    name: str
    text: str
    limit: str = ""

    @classmethod
    def of(cls, error: LogboomError) -> "Refusal":
        """The error to be sent."""
        return cls(type(error).__name__, str(error), error.limit)

    @property
    def error(self) -> LogboomError:
        """The error as it was raised; InvalidRequestError for a class that this program does not know."""
        return _error_classes().get(self.name, InvalidRequestError)(self.text, limit=self.limit)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a command."""

    index: int
    """The entry of the metadata log up to which a broker must have applied, to see the outcome."""
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    """Of the type that the command says, in MessagePack."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A command on its way to the controller."""

    command: AnyCommand
    forward: bool = False
    """Whether a broker that is not the controller passes it on, one of `FORWARDED`."""
    term: int | None = None
    """The controllership that it is meant for, by the term of the consensus group: a connection may bring it late. None
    from programs that do not say it, and where another broker is to pass it on."""
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
