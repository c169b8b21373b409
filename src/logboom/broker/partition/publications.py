"""What doors without record batches of their own append: contents of records, some of them with terms.

A door packs each message (`records.record_content`) and hands over all that came together. The broker makes batches of
them, at the place in the log where they go; only there it is known which of them are duplicates and which terms hold.
Pure: what goes in, and what comes out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias

from logboom.base.errors import LogboomError
from logboom.base.ids import Offset
from logboom.base.ports import Clock
from logboom.broker.partition.waiters import RunResult


class Terms(NamedTuple):
    """What the publisher of one message asks for, beside that it be stored."""

    message_id: bytes | None = None
    """Its name: another message of that name among the newest records is the same message, and this one a duplicate.
    The content has it as header `records.MESSAGE_ID`, too."""
    expected_end: Offset | None = None
    """The message is stored only at this offset: nothing was appended that its publisher does not know."""
    expected_last_id: bytes | None = None
    """The message is stored only right behind the message of this name."""


NO_TERMS: Final[Mapping[int, Terms]] = MappingProxyType({})


class Published(NamedTuple):
    """What came of messages that were published together."""

    outcomes: Sequence[Offset | LogboomError]
    """For each in order its offset, that of the first copy where it is a duplicate, or why it was not taken."""
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


class Publications:
    """Where one partition takes messages. Life: that of the partition."""

    __slots__ = ("_clock", "_enqueued", "_queue")

    def __init__(self, queue: _Queue, clock: Clock, enqueued: Callable[[int], None]) -> None:
        """`enqueued` has the group commit drain the partition at the end of this turn, for so many bytes."""
        self._queue = queue
        self._clock = clock
        self._enqueued = enqueued

    def append(self, contents: Sequence[bytes], terms: Mapping[int, Terms], *, acks: int, done: PublishDone) -> None:
        """Append messages that came together, each a `records.record_content`, some with terms, by their places.

        They are staged at the end of this turn of the loop, in order with all else that arrives for the partition; each
        is taken or refused on its own. `done` is called, later than this returns, when acks is served for all that were
        taken: -1 at commit, 1 when the leader's own disk has them, 0 once they are staged. Of duplicates it is their
        first copy that has to be so safe. The records have the time of this call as their timestamp.
        """
        self._queue.publish(PublishRun(contents, terms, acks, self._clock.wall_ms(), done))
        self._enqueued(sum(map(len, contents)))
