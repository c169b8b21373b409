"""The messages of one stream: each becomes a record of a partition, and its outcome an answer to its publisher.

All messages of one read that go to one partition are published in one call, in their order; what commits together is
answered in one write. A message that cannot be taken is refused on its reply subject; where it has none, it is counted
as dropped, by reason. While the leadership of its partition changes, it is held at the partition's holding.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Final, cast

from logboom.base.errors import (
    LogboomError,
    NotLeaderError,
    OverloadedError,
)
from logboom.base.ids import Offset
from logboom.broker.partition.publications import TERM_ERRORS, AppendInDoubtError, Published, Terms
from logboom.broker.replicas import Replicas
from logboom.nats.ingress.answers import acks_of
from logboom.nats.ingress.holding import MESSAGE_BYTES, Doubt, Epochs, HeldMessages, HoldingState, Unstored, sizes
from logboom.nats.ingress.services import IngressServices
from logboom.nats.link import commands
from logboom.nats.link.frames import Alike, Delivery, Run
from logboom.nats.metrics import reason_of
from logboom.nats.wire.acks import ack, answerable, error_ack
from logboom.nats.wire.envelope import Sealed
from logboom.nats.wire.errors import WrongStreamError
from logboom.nats.wire.messages import Message, Reader

CLIENT_ID: Final = "nats"
"""Whose quota of produced bytes messages from NATS are charged to."""
_MS_NS: Final = 1_000_000
_REFUSED_BY_TERMS: Final = (*TERM_ERRORS, WrongStreamError)
"""What a publisher asked to be refused with: nothing that others need to know of."""
_BY_ALL: Final = attrgetter("by_all")
_MESSAGE: Final = attrgetter("message")
_ERROR: Final = itemgetter(1)


class _Run:
    """Messages on their way into one partition together, each with what it came as, its record, and its reply."""

    __slots__ = ("acks", "by_all", "contents", "holding", "messages", "replies", "sealed", "size_bytes", "terms")

    def __init__(
        self,
        holding: HeldMessages,
        acks: int,
        by_all: bool,
        messages: Sequence[Delivery],
        contents: list[bytes],
        replies: Sequence[bytes],
    ) -> None:
        self.holding = holding
        self.acks = acks
        self.by_all = by_all
        self.messages = messages
        self.contents = contents
        self.replies = replies
        self.terms: dict[int, Terms] = {}
        self.sealed: dict[int, Sealed] = {}
        """Those that came in envelopes, by their places: they are answered in another way."""
        self.size_bytes = 0
        """The memory that they take, once they are published."""

    def weigh(self) -> int:
        """The memory that they take from now on."""
        # Twice, as it came and as it is stored: what the next leader has to store gets there as it came.
        self.size_bytes = 2 * sum(map(len, self.contents)) + MESSAGE_BYTES * len(self.contents)
        return self.size_bytes

    def unstored(self, place: int) -> Unstored:
        """A message as it came."""
        return Unstored(self.messages[place], self.by_all)


class _MixedRun(_Run):
    """A run that is put together message by message."""

    __slots__ = ("_messages", "_replies")

    def __init__(self, holding: HeldMessages, acks: int, by_all: bool) -> None:
        self._messages: list[Delivery] = []
        self._replies: list[bytes] = []
        super().__init__(holding, acks, by_all, self._messages, [], self._replies)

    def add(self, message: Delivery, read: Message, sealed: Sealed | None) -> None:
        """One message more."""
        place = len(self.contents)
        if read.terms is not None:
            self.terms[place] = read.terms
        if sealed is not None:
            self.sealed[place] = sealed
        self._messages.append(message)
        self.contents.append(read.content)
        self._replies.append(read.reply)


class _Holdings(dict[int, HeldMessages]):
    """The holdings that messages of one read go to, as far as they were looked for."""

    def __init__(self, find: Callable[[int], HeldMessages | None]) -> None:
        super().__init__()
        self._find = find
        self._others: set[int] = set()

    def takes(self, index: int) -> bool:
        """Whether a partition's messages are this broker's matter."""
        if index in self:
            return True
        if index in self._others:
            return False
        found = self._find(index)
        if found is None:
            self._others.add(index)
            return False
        self[index] = found
        return True


class Intake:
    """See the module. Life: that of an attachment with the same settings; on the loop."""

    def __init__(
        self, name: str, reader: Reader, holdings: Mapping[int, HeldMessages], services: IngressServices
    ) -> None:
        """`name`: of the stream. `holdings`: of the partitions that this broker takes messages for."""
        self._name = name
        self._reader = reader
        self._holdings = holdings
        self._services = services
        self._ended: LogboomError | None = None

    def end(self, error: LogboomError) -> None:
        """Refuse what still comes: there is nowhere to store it."""
        self._ended = error

    def receive(self, index: int | None, by_all: bool, messages: Run) -> None:
        """Take messages for one partition; None: for those that the partitioner chooses. `by_all`: whether the server
        gives them to all who subscribe."""
        self._count(messages)
        if self._ended is not None:
            self._refuse([message.reply for message in messages], self._ended)
            return
        if index is not None and self._holding(index) is None:
            # This broker leads no more; who leads now may have got them as well.
            self.give_up([Unstored(message, by_all) for message in messages])
            return
        self._take(index, by_all, messages)

    def _holding(self, index: int) -> HeldMessages | None:
        holding = self._holdings.get(index)
        return None if holding is None or holding.state is HoldingState.ENDED else holding

    def _take(self, index: int | None, by_all: bool, messages: Run) -> None:
        holdings = _Holdings(self._holding)
        if not isinstance(messages, list) and self._take_alike(index, by_all, messages, holdings):
            return
        runs: dict[int, _MixedRun] = {}
        elsewhere = 0
        for message in messages:
            subject, reply = message.subject, message.reply
            try:
                read = self._reader.read(
                    subject, reply, message.header, message.payload, partition=index, takes=holdings.takes
                )
            except LogboomError as error:
                self._refuse([reply], error)
                continue
            if read is None:
                elsewhere += 1
                continue
            to = read.partition
            run = runs.get(to)
            if run is None or run.acks != read.acks:
                if run is not None:
                    self._publish(run)
                elif not holdings[to].is_publishing:
                    self._hold(holdings[to], [Unstored(message, by_all)])
                    continue
                run = runs[to] = _MixedRun(holdings[to], read.acks, by_all)
            run.add(message, read, None if read.envelope is None else Sealed(read.envelope, subject, self._now_ns()))
        self._services.metrics.elsewhere += elsewhere
        for run in runs.values():
            self._publish(run)

    def _take_alike(self, index: int | None, by_all: bool, messages: Alike, holdings: _Holdings) -> bool:
        """Take messages of one subject all at once; False where they have to be looked at one by one."""
        read = self._reader.read_alike(
            messages.subject, messages.replies, messages.payloads, partition=index, takes=holdings.takes
        )
        if read is None:
            return False
        if not read.contents:
            self._services.metrics.elsewhere += len(messages)
        elif holdings[read.partition].is_publishing:
            self._publish(_Run(holdings[read.partition], read.acks, by_all, messages, read.contents, read.replies))
        else:
            self._hold(holdings[read.partition], [Unstored(message, by_all) for message in messages])
        return True

    def _now_ns(self) -> int:
        return self._services.clock.wall_ms() * _MS_NS

    def _count(self, messages: Run) -> None:
        metrics = self._services.metrics
        metrics.received += len(messages)
        if not isinstance(messages, list):
            metrics.received_bytes += sum(map(len, messages.payloads))
        else:
            metrics.received_bytes += sum([len(message.payload) + len(message.header) for message in messages])

    # --- into the partition, and back ---------------------------------------------------------------------------

    def _publish(self, run: _Run) -> None:
        services = self._services
        if not services.budget.allows():
            self._refuse_some(run, range(len(run.replies)), self._overloaded())
            return
        try:
            partition = services.replicas.find(self._name, run.holding.index)
        except LogboomError as error:
            self._refuse_some(run, range(len(run.replies)), error)
            return
        services.budget.took(run.weigh())
        services.publishing.publish(
            partition,
            run.contents,
            run.terms,
            acks=run.acks,
            client_id=CLIENT_ID,
            done=lambda published: self._published(run, published),
        )

    def _overloaded(self) -> OverloadedError:
        error = OverloadedError("more has arrived from NATS than may wait", limit="nats.max_inflight_bytes")
        self._services.log.limit_reached("nats.max_inflight_bytes", str(error), stream=self._name)
        return error

    def _published(self, run: _Run, published: Published) -> None:
        metrics = self._services.metrics
        self._services.budget.gave(run.size_bytes)
        refused: list[tuple[int, LogboomError]] = []
        doubted: list[tuple[int, AppendInDoubtError]] = []
        if run.sealed or published.duplicates or set(map(type, published.outcomes)) != {int}:
            answers: list[bytes] = []
            for place, outcome in enumerate(published.outcomes):
                if isinstance(outcome, AppendInDoubtError):
                    doubted.append((place, outcome))
                elif isinstance(outcome, LogboomError):
                    refused.append((place, outcome))
                elif run.replies[place]:
                    answers.append(self._ack(run, place, outcome, place in published.duplicates))
            said, count = b"".join(answers), len(answers)
        else:
            said = acks_of(self._name, run.replies, cast("Sequence[Offset]", published.outcomes))
            count = len(run.replies) - run.replies.count(b"")
        metrics.duplicates += len(published.duplicates)
        metrics.stored += len(run.replies) - len(refused) - len(doubted) - len(published.duplicates)
        self._answer(said, count)
        if doubted:
            self._in_doubt(run, doubted, published.duplicates)
        for error, group in groupby(refused, _ERROR):
            self._not_stored(run, [place for place, _ in group], error)

    def _ack(self, run: _Run, place: int, offset: Offset, duplicate: bool) -> bytes:
        sealed = run.sealed.get(place) if run.sealed else None
        told = ack(self._name, offset, duplicate) if sealed is None else sealed.ack(self._name, offset, self._now_ns())
        return commands.publish(run.replies[place], told)

    def _in_doubt(
        self, run: _Run, doubted: Sequence[tuple[int, AppendInDoubtError]], duplicates: Container[int]
    ) -> None:
        """It is not known whether messages are stored: the broker that leads now tells, where it asks."""
        holding = run.holding
        if not holding.is_handing_over:
            self.give_up([run.unstored(place) for place, _ in doubted])
            return
        for place, error in doubted:
            told = self._ack(run, place, error.offset, place in duplicates) if run.replies[place] else b""
            holding.doubts.append(Doubt(run.unstored(place), error.offset, error.epoch, told))

    def _not_stored(self, run: _Run, places: Sequence[int], error: LogboomError) -> None:
        """Messages were refused for one reason: where that is because another broker leads now, that one stores
        them."""
        holding = run.holding
        if isinstance(error, NotLeaderError) and holding.is_handing_over:
            self._hold(holding, list(map(run.unstored, places)))
        elif isinstance(error, TERM_ERRORS) and not _is_certain(self._services.replicas, self._name, holding.index):
            # By the end of a log that may not be the partition's any more. Who leads now has heard the message, too,
            # and may store it.
            self.give_up(list(map(run.unstored, places)))
        else:
            self._refuse_some(run, places, error)

    # --- while the leadership changes ---------------------------------------------------------------------------

    def _hold(self, holding: HeldMessages, some: Sequence[Unstored]) -> None:
        if not self._services.budget.allows():
            self._refuse([one.message.reply for one in some], self._overloaded())
            return
        for unstored in some:
            holding.hold(unstored)
        self._services.budget.took(sizes(some))

    def resolve(self, holding: HeldMessages, epochs: Epochs) -> Sequence[bytes]:
        """It is known which messages in doubt the log of the next leader has: hold the others before all else. What is
        to be said to the publishers of those that it has, once it has committed them."""
        resolved = holding.resolve(epochs)
        self._services.metrics.stored += resolved.kept
        holding.put_first(resolved.lost)
        self._services.budget.took(sizes(resolved.lost))
        return resolved.acks

    def committed(self, acks: Sequence[bytes]) -> None:
        """What these say is so."""
        self._answer(b"".join(acks), len(acks))

    def put_before(self, holding: HeldMessages, others: Sequence[Unstored]) -> None:
        """Another broker has held these."""
        before = holding.size_bytes
        holding.put_before(others)
        self._services.budget.took(holding.size_bytes - before)

    def take(self, holding: HeldMessages) -> Sequence[Unstored]:
        """All that was held: the caller's from now on."""
        self._services.budget.gave(holding.size_bytes)
        return holding.take()

    def publish_held(self, holding: HeldMessages) -> None:
        """Publish all that was held, in its order. The holding is open."""
        for by_all, group in groupby(self.take(holding), _BY_ALL):
            self._take(holding.index, by_all, list(map(_MESSAGE, group)))

    def give_up(self, some: Sequence[Unstored]) -> None:
        """Of these it is not known whether the next leader has them. An error would be taken for a sign that it does
        not; without an answer publishers try again."""
        unanswered = sum(1 for one in some if one.message.reply)
        self._services.metrics.unanswered += unanswered
        if unanswered:
            self._services.advisories.note("nats.unanswered", stream=self._name, count=unanswered)
        if len(some) > unanswered:
            error = NotLeaderError(f"another broker leads the partition of {self._name}, and did not ask for these")
            self._refuse([b""] * (len(some) - unanswered), error)

    # --- answers ------------------------------------------------------------------------------------------------

    def _refuse_some(self, run: _Run, places: Sequence[int], error: LogboomError) -> None:
        """Refuse messages of a run for one reason, together: a flood of what cannot be taken must cost less than what
        can."""
        if not run.sealed:
            self._refuse([run.replies[place] for place in places], error)
            return
        self._refuse([run.replies[place] for place in places if place not in run.sealed], error)
        for place in places:
            if place in run.sealed:
                self._refuse([run.replies[place]], error, run.sealed[place])

    def _refuse(self, replies: Sequence[bytes], error: LogboomError, sealed: Sealed | None = None) -> None:
        metrics, reason = self._services.metrics, reason_of(error)
        told = error_ack(self._name, error) if sealed is None else sealed.ack(self._name, error, self._now_ns())
        answers = [commands.publish(reply, told) for reply in map(answerable, replies) if reply]
        metrics.refused[reason] += len(answers)
        dropped = len(replies) - len(answers)
        if dropped:
            metrics.dropped[reason] += dropped
            self._services.log.warning(
                f"dropped {self._name} {reason}",
                "messages from NATS were dropped",
                stream=self._name,
                messages=dropped,
                why=str(error),
            )
            self._note("nats.dropped", reason, dropped, error)
        if answers and not isinstance(error, _REFUSED_BY_TERMS):
            self._note("nats.refused", reason, len(answers), error)
        self._answer(b"".join(answers), len(answers))

    def _note(self, kind: str, reason: str, count: int, error: LogboomError) -> None:
        self._services.advisories.note(kind, stream=self._name, reason=reason, count=count, message=str(error))

    def _answer(self, said: bytes, count: int) -> None:
        """Send so many answers."""
        if count:
            if self._services.link.send(said):
                self._services.metrics.acks += count
            else:
                self._services.metrics.lost_acks += count


def _is_certain(replicas: Replicas, stream: str, index: int) -> bool:
    """Whether this broker leads a partition for certain."""
    try:
        role = replicas.find(stream, index).role
    except LogboomError:
        return False
    return role.leads and role.leader.is_certain
