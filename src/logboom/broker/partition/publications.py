"""Appends of front ends that have no record batches of their own: contents of records, some of them with terms.

A front end packs each message (`records.record_content`) and hands over all that came together. The broker makes
batches of them when their place in the log is decided; only then is it known which are duplicates and which terms hold.
Pure: what goes in, and what comes out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias

from logboom.base.errors import LogboomError, NotLeaderError, WrongLastMessageIdError, WrongLastOffsetError
from logboom.base.ids import Epoch, Offset
from logboom.base.ports import Clock
from logboom.broker.partition.waiters import AckWaiters, RunDone, RunResult, refused
from logboom.records import contents_bytes


class Terms(NamedTuple):
    """What the publisher of one message asks for, beside that it be stored."""

    message_id: bytes | None = None
    """Its name: another message of that name among the newest records is the same message, and this one a duplicate.
    The content has it as header `records.MESSAGE_ID`, too."""
    expected_end: Offset | None = None
    """The message is stored only at this offset: nothing was appended that its publisher does not know."""
    expected_last_id: bytes | None = None
    """The message is stored only right behind the message of this name."""


class AppendInDoubtError(LogboomError):
    """A message is in the log of this broker, which ceased to lead before it was committed: the next leader may have it
    or not. That leader has it if the record at `offset` of its log has the leader epoch `epoch`."""

    def __init__(self, offset: Offset, epoch: Epoch) -> None:
        super().__init__(f"whether offset {offset} of epoch {epoch} was kept by the next leader is not known")
        self.offset = offset
        self.epoch = epoch


ACKS_ALL: Final = -1
TERM_ERRORS: Final = (WrongLastOffsetError, WrongLastMessageIdError)
"""What a message is refused with whose terms do not hold."""
NO_TERMS: Final[Mapping[int, Terms]] = MappingProxyType({})


class Published(NamedTuple):
    """The outcome of messages that were published together."""

    outcomes: Sequence[Offset | LogboomError]
    """For each in order its offset, that of the first copy where it is a duplicate, or why it was not taken. A `range`
    where all were taken one behind the other, which most are."""
    duplicates: frozenset[int]
    """The places of those that were there already."""


PublishDone: TypeAlias = Callable[[Published], None]
"""Called once, on the loop."""


class _Queue(Protocol):
    """The part of a partition's append queue that takes messages."""

    def publish(self, run: "PublishRun") -> None: ...


@dataclass(slots=True, eq=False)
class PublishRun:
    """Messages on their way into one log. `duplicates` is filled when they are staged."""

    contents: Sequence[bytes]
    terms: Mapping[int, Terms]
    """Of those that have any, by their places."""
    acks: int
    received_ms: int
    """The timestamp of their records."""
    done: PublishDone
    duplicates: set[int] = field(default_factory=set)

    @property
    def asks_for_ids(self) -> bool:
        """Whether it takes the ids of earlier messages to decide about these."""
        return any(one.message_id is not None or one.expected_last_id is not None for one in self.terms.values())

    def answer(self, result: RunResult) -> None:
        """The outcomes are known, and as safe as was asked for."""
        self.done(Published(result.outcomes, frozenset(self.duplicates)))


class PublishWaiters:
    """Messages that are in the log and wait until that is as safe as was asked for."""

    __slots__ = ("_at_commit", "_at_leader")

    def __init__(self) -> None:
        self._at_commit = AckWaiters()
        self._at_leader = AckWaiters()

    def of(self, acks: int) -> AckWaiters:
        """Those that wait for commit (-1), or for this broker's own copy."""
        return self._at_commit if acks == ACKS_ALL else self._at_leader

    def refuse_from(self, end: Offset, error: LogboomError) -> list[tuple[RunDone, RunResult]]:
        """See `AckWaiters.refuse_from`."""
        return [*self._at_commit.refuse_from(end, error), *self._at_leader.refuse_from(end, error)]

    def doubt(
        self, epoch_of: Callable[[Offset], Epoch], *, committed: Offset, safe_end: Offset
    ) -> list[tuple[RunDone, RunResult]]:
        """Remove all; their answers, AppendInDoubtError for what is not as safe as was asked for: another leader may
        have it. NotLeaderError for what was refused by what is not committed: another leader may take it."""
        return [(done, _in_doubt(result, epoch_of, end)) for done, result, end in self._take(committed, safe_end)]

    def deleted(self, error: LogboomError, *, committed: Offset, safe_end: Offset) -> list[tuple[RunDone, RunResult]]:
        """Remove all; their answers, `error` for what is not as safe as was asked for, and for what was refused by what
        is not committed: the log is gone, and no leader will have either."""
        return [(done, _in_no_log(result, error, end)) for done, result, end in self._take(committed, safe_end)]

    def _take(self, committed: Offset, safe_end: Offset) -> Iterator[tuple[RunDone, RunResult, Offset]]:
        """Remove all, each with the offset below which it is as safe as was asked for."""
        for waiters, end in ((self._at_commit, committed), (self._at_leader, safe_end)):
            for done, result in waiters.take():
                yield done, result, end


def _in_doubt(result: RunResult, epoch_of: Callable[[Offset], Epoch], safe_end: Offset) -> RunResult:
    def of(outcome: Offset | LogboomError) -> Offset | LogboomError:
        if isinstance(outcome, TERM_ERRORS):
            return NotLeaderError("what a message was compared with may not be in the log of the next leader")
        if isinstance(outcome, LogboomError) or outcome < safe_end:
            return outcome
        return AppendInDoubtError(outcome, epoch_of(outcome))

    return RunResult([of(one) for one in result.outcomes], result.log_append_time_ms, result.log_start_offset)


def _in_no_log(result: RunResult, error: LogboomError, safe_end: Offset) -> RunResult:
    told = [error if isinstance(outcome, TERM_ERRORS) else outcome for outcome in result.outcomes]
    return refused(result._replace(outcomes=told), error, safe_end=safe_end)


class Publications:
    """Where one partition takes messages. Life: that of the partition."""

    __slots__ = ("_clock", "_enqueued", "_queue")

    def __init__(self, queue: _Queue, clock: Clock, enqueued: Callable[[int, int], None]) -> None:
        """`enqueued` is told that this many bytes are in the queue, with these acks."""
        self._queue = queue
        self._clock = clock
        self._enqueued = enqueued

    def append(self, contents: Sequence[bytes], terms: Mapping[int, Terms], *, acks: int, done: PublishDone) -> None:
        """Append messages that came together, each a `records.record_content`, some with terms, by their places.

        They are staged at the end of this turn of the loop, or a little later (`gathering`), in order with all that
        arrives for the partition; each is taken or refused on its own. `done` is called, later than this returns, when
        acks is served for all that were taken: -1 at commit, 1 when the leader's own disk has them, 0 once they are
        staged. Of duplicates it is their first copy that has to be so safe. The records have the time of this call as
        their timestamp.

        Where this broker ceases to lead before that, each message is answered with what is certain: an error if it was
        not appended, AppendInDoubtError if it was; UnknownStreamError where the stream was deleted. As long as it
        leads, an answer may take as long as a commit takes.
        """
        self._queue.publish(PublishRun(contents, terms, acks, self._clock.wall_ms(), done))
        self._enqueued(contents_bytes(contents), acks)
