"""The messages of one stream: each becomes a record of a partition, and its outcome an answer to its publisher.

All messages of one read that go to one partition are published in one call, in their order; what commits together is
answered in one write. A message that cannot be taken is refused on its reply subject; where it has none, it is counted
as dropped, by reason. While the leadership of its partition changes, it is held at the partition's holding.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Final, cast

from logboom.base.errors import LogboomError, NotLeaderError, OverloadedError, UnknownStreamError
from logboom.base.ids import Offset
from logboom.broker.partition.publications import TERM_ERRORS, AppendInDoubtError, Published
from logboom.broker.replicas import Replicas
from logboom.nats.ingress.answers import acks_of
from logboom.nats.ingress.holding import Doubt, Epochs, HeldMessages, HoldingState, Unstored, sizes
from logboom.nats.ingress.inflight import InflightRun, MixedRun
from logboom.nats.ingress.refusals import REFUSALS_MAX
from logboom.nats.ingress.replies import PublisherReplies
from logboom.nats.ingress.services import IngressServices
from logboom.nats.link.frames import Alike, Delivery, Run
from logboom.nats.wire.envelope import Sealed
from logboom.nats.wire.messages import Reader

CLIENT_ID: Final = "nats"
"""Whose quota of produced bytes messages from NATS are charged to."""
_BY_ALL: Final = attrgetter("by_all")
_MESSAGE: Final = attrgetter("message")
_ERROR: Final = itemgetter(1)


class _Holdings(dict[int, HeldMessages]):
    """The holdings that messages of one read go to, as far as they were looked for."""

    def __init__(self, find: Callable[[int], HeldMessages | None]) -> None:
        super().__init__()
        self._find = find
        self._others: set[int] = set()

    def takes(self, index: int) -> bool:
        """Whether this broker handles the messages of a partition."""
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
        self.replies = PublisherReplies(name, services)
        """What its publishers are told."""
        self._services = services
        self._ended: LogboomError | None = None
        self._answers_for_others = False

    def end(self, error: LogboomError, *, for_others: bool) -> None:
        """Refuse what still comes: there is nowhere to store it. `for_others`: also what belongs to partitions of other
        brokers, which no longer receive it."""
        self._ended, self._answers_for_others = error, for_others

    def receive(self, index: int | None, by_all: bool, messages: Run) -> None:
        """Take messages for one partition; None: for those that the partitioner chooses. `by_all`: whether the server
        gives them to all who subscribe."""
        self._count(messages)
        if self._ended is not None:
            own = messages if index is not None or self._answers_for_others else self._own(messages)
            self._refuse_unread(own, self._ended)
            return
        if index is not None and self._holding(index, by_all=by_all) is None:
            holding = self._holdings.get(index)
            if by_all and holding is not None and holding.is_cut:
                self._services.metrics.elsewhere += len(messages)  # who leads now has got them as well
                return
            # This broker leads no more; who leads now may have got them as well.
            self.give_up([Unstored(message, by_all) for message in messages])
            return
        self._take(index, by_all, messages)

    def _holding(self, index: int, *, by_all: bool) -> HeldMessages | None:
        holding = self._holdings.get(index)
        if holding is None or holding.state is HoldingState.ENDED or (by_all and holding.is_cut):
            return None
        return holding

    def _take(self, index: int | None, by_all: bool, messages: Run) -> None:
        holdings = _Holdings(partial(self._holding, by_all=by_all))
        if not isinstance(messages, list) and self._take_alike(index, by_all, messages, holdings):
            return
        runs: dict[int, MixedRun] = {}
        elsewhere = 0
        for message in messages:
            subject, reply = message.subject, message.reply
            try:
                read = self._reader.read(
                    subject, reply, message.header, message.payload, partition=index, takes=holdings.takes
                )
            except LogboomError as error:
                self._refuse_unread([message], error)
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
                run = runs[to] = MixedRun(holdings[to], read.acks, by_all)
            run.add(
                message, read, None if read.envelope is None else Sealed(read.envelope, subject, self.replies.now_ns())
            )
        self._services.metrics.elsewhere += elsewhere
        for run in runs.values():
            self._publish(run)

    def _take_alike(self, index: int | None, by_all: bool, messages: Alike, holdings: _Holdings) -> bool:
        """Take messages of one subject all at once; False where they have to be looked at one by one."""
        read = self._reader.read_alike(
            messages.subject,
            messages.replies,
            messages.payloads,
            of_one_size=messages.are_of_one_size,
            partition=index,
            takes=holdings.takes,
        )
        if read is None:
            return False
        if not read.contents:
            self._services.metrics.elsewhere += len(messages)
        elif holdings[read.partition].is_publishing:
            self._publish(
                InflightRun(holdings[read.partition], read.acks, by_all, messages, read.contents, read.replies)
            )
        else:
            self._hold(holdings[read.partition], [Unstored(message, by_all) for message in messages])
        return True

    def _count(self, messages: Run) -> None:
        metrics = self._services.metrics
        metrics.received += len(messages)
        if not isinstance(messages, list):
            metrics.received_bytes += messages.size_bytes
        else:
            metrics.received_bytes += sum([len(message.payload) + len(message.header) for message in messages])

    def _own(self, messages: Run) -> Sequence[Delivery]:
        """Those of the partitions that this broker takes messages for, and those that belong to none."""
        own: list[Delivery] = []
        takes = self._holdings.__contains__
        for message in messages:
            _, subject, reply, header, payload = message
            try:
                read = self._reader.read(subject, reply, header, payload, partition=None, takes=takes)
            except LogboomError:
                own.append(message)
            else:
                own += () if read is None else (message,)
        self._services.metrics.elsewhere += len(messages) - len(own)
        return own

    # --- into the partition, and back ---------------------------------------------------------------------------

    def _publish(self, run: InflightRun) -> None:
        services = self._services
        if not services.budget.allows():
            self._refuse(run, range(len(run.replies)), self._overloaded())
            return
        try:
            partition = services.replicas.find(self._name, run.holding.index)
        except LogboomError as error:
            self._refuse(run, range(len(run.replies)), error)
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

    def _refuse_unread(self, messages: Sequence[Delivery], error: LogboomError) -> None:
        """Refuse messages as they came, those alone that are to have an answer where they want it."""
        plain: list[bytes] = []
        for message in messages:
            reply, envelope = self._reader.refusal_reply(message.reply, message.header, message.payload)
            if envelope is None:
                plain.append(reply)
            else:
                sealed = Sealed(envelope, message.subject, self.replies.now_ns())
                self.replies.refuse([reply], error, sealed)
        if plain:
            self.replies.refuse(plain, error)

    def _overloaded(self) -> OverloadedError:
        error = OverloadedError("more NATS messages wait to be stored than allowed", limit="nats.max_inflight_bytes")
        self._services.log.limit_reached("nats.max_inflight_bytes", str(error), stream=self._name)
        return error

    def _published(self, run: InflightRun, published: Published) -> None:
        metrics = self._services.metrics
        self._services.budget.gave(run.size_bytes)
        refused: list[tuple[int, LogboomError]] = []
        doubted: list[tuple[int, AppendInDoubtError]] = []
        outcomes = published.outcomes
        are_stored = isinstance(outcomes, range) or (not published.duplicates and set(map(type, outcomes)) == {int})
        if run.sealed or not are_stored:
            answers: list[bytes] = []
            for place, outcome in enumerate(outcomes):
                if isinstance(outcome, AppendInDoubtError):
                    doubted.append((place, outcome))
                elif isinstance(outcome, LogboomError):
                    refused.append((place, outcome))
                elif run.replies[place]:
                    answers.append(self.replies.ack(run, place, outcome, place in published.duplicates))
            acks, count = b"".join(answers), len(answers)
        else:
            acks = acks_of(self._name, run.replies, cast("Sequence[Offset]", outcomes))
            count = len(run.replies) - run.replies.count(b"")
        metrics.duplicates += len(published.duplicates)
        metrics.stored += len(run.replies) - len(refused) - len(doubted) - len(published.duplicates)
        self.replies.send(acks, count)
        if doubted:
            self._in_doubt(run, doubted, published.duplicates)
        for error, group in groupby(refused, _ERROR):
            self._not_stored(run, [place for place, _ in group], error)

    def _in_doubt(
        self, run: InflightRun, doubted: Sequence[tuple[int, AppendInDoubtError]], duplicates: Container[int]
    ) -> None:
        """It is not known whether messages are stored: the broker that leads now tells, where it asks."""
        holding = run.holding
        if not holding.is_handing_over:
            self.give_up([run.unstored(place) for place, _ in doubted])
            return
        for place, error in doubted:
            told = self.replies.ack(run, place, error.offset, place in duplicates) if run.replies[place] else b""
            holding.doubts.append(Doubt(run.unstored(place), error.offset, error.epoch, told))
        self._services.budget.took(sizes(run.unstored(place) for place, _ in doubted))

    def _not_stored(self, run: InflightRun, places: Sequence[int], error: LogboomError) -> None:
        """Messages were refused for one reason: where that is because another broker leads now, that one stores
        them."""
        holding = run.holding
        if isinstance(error, NotLeaderError) and holding.is_handing_over:
            self._hold(holding, list(map(run.unstored, places)))
        else:
            self._refuse(run, places, error)

    def _refuse(self, run: InflightRun, places: Sequence[int], error: LogboomError) -> None:
        """Tell publishers that messages are not stored, unless another broker may lead, which may store them: it has
        heard them too, or they were compared with the end of a log that is not the partition's any more."""
        index = run.holding.index
        others_hear = run.by_all and not isinstance(error, UnknownStreamError)
        if (others_hear or isinstance(error, TERM_ERRORS)) and not _is_certain(
            self._services.replicas, self._name, index
        ):
            self.give_up(list(map(run.unstored, places)))
            return
        if others_hear:  # and one of them may lead by now
            told = [run.messages[place] for place in places[-REFUSALS_MAX:] if run.replies[place]]
            self._services.refusals.note(self._name, index, told, self._services.clock.monotonic_s())
        self.replies.refuse_some(run, places, error)

    # --- while the leadership changes ---------------------------------------------------------------------------

    def _hold(self, holding: HeldMessages, some: Sequence[Unstored]) -> None:
        if not self._services.budget.allows():
            # Another broker that has heard it too may store it, or tell this one of it.
            others_may = holding.is_handing_over or holding.is_asking
            overloaded = self._overloaded()
            self._refuse_unread([one.message for one in some if not (one.by_all and others_may)], overloaded)
            self.give_up([one for one in some if one.by_all and others_may])
            return
        for unstored in some:
            holding.hold(unstored)
        self._services.budget.took(sizes(some))

    def give_up(self, some: Sequence[Unstored]) -> None:
        """Give no answer, because it is not known whether other brokers have stored these; if the stream was deleted,
        refuse them."""
        if self._ended is None:
            self.replies.give_up(some)
        elif some:
            self._refuse_unread([one.message for one in some], self._ended)

    def resolve(self, holding: HeldMessages, epochs: Epochs) -> Sequence[bytes]:
        """It is now known which of the messages in doubt the log of the next leader has: hold the others before all
        else. Returns the acks for those that it has, to be sent once it has committed them."""
        self._services.budget.gave(sizes(one.unstored for one in holding.doubts))
        resolved = holding.resolve(epochs)
        self._services.metrics.stored += resolved.kept
        holding.put_first(resolved.lost)
        self._services.budget.took(sizes(resolved.lost))
        return resolved.acks

    def committed(self, acks: Sequence[bytes]) -> None:
        """What these acks say has become true: send them."""
        self.replies.send(b"".join(acks), len(acks))

    def take_over(
        self,
        holding: HeldMessages,
        others: Sequence[Unstored] | None,
        epochs: Epochs,
        epoch: int,
        refused: Sequence[bytes] = (),
    ) -> None:
        """The previous leader has held these, or reports nothing; see `HeldMessages.take_over`."""
        before = holding.size_bytes
        gone = holding.take_over(others, epochs, epoch, refused)
        self._services.budget.took(holding.size_bytes - before)
        self.give_up(gone)

    def refused(self, holding: HeldMessages) -> Sequence[bytes]:
        """Digests of what was refused lately while this broker led, as far as it knew."""
        return self._services.refusals.of(self._name, holding.index, self._services.clock.monotonic_s())

    def take(self, holding: HeldMessages) -> Sequence[Unstored]:
        """All that was held; the caller is responsible for it from now on."""
        self._services.budget.gave(holding.size_bytes)
        return holding.take()

    def take_doubts(self, holding: HeldMessages) -> Sequence[Unstored]:
        """All that is in doubt and stays so; the caller is responsible for it from now on."""
        doubted = [one.unstored for one in holding.doubts]
        holding.doubts.clear()
        self._services.budget.gave(sizes(doubted))
        return doubted

    def publish_held(self, holding: HeldMessages) -> None:
        """Publish all that was held, in its order, while this broker leads."""
        for by_all, group in groupby(self.take(holding), _BY_ALL):
            self._take(holding.index, by_all, list(map(_MESSAGE, group)))


def _is_certain(replicas: Replicas, stream: str, index: int) -> bool:
    """Whether this broker leads a partition for certain."""
    try:
        role = replicas.find(stream, index).role
    except LogboomError:
        return False
    return role.leads and role.leader.is_certain
