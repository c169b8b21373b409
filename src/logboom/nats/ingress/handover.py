"""The handover between two leaders of a partition that are both alive: the next leader asks the previous one for the
messages that it has received and not stored, so that none is lost.

    the next leader                                   the previous leader
    leads; subscribes, holds what it receives         leads no more; holds what it receives
    PING, PONG: it receives everything from now on,
    the mark too
    asks, with the epochs of its log          --->    PING, the mark (to an inbox of the next leader), PING: repeated
                                                      until nothing has come between the two PONGs
                                                      ends its subscription; PING, PONG: it has received all
    publishes what it got, then what it held, <---    answers with what it held before the mark, and with what it had
    without what was refused                          appended and the next leader has not; with the acks of what the
                                                      next leader has; and with what it refused before it knew of it
    sends those acks, once it has committed
    what it found in its log

The last mark is at a place in the messages of both where both have received the same. The previous leader reports what
came before it; what comes after it belongs to the next leader. If the subscription were ended first, a message
published between that and the mark would be mistaken for an equal one that only the previous leader has received, and
that one would be lost.

Several servers learn of subscriptions one after the other. Then both brokers listen for a while together, before the
question and after it, and do not rely on the mark. Servers are several if they say so, as those of a cluster do, or if
the two brokers are connected to different ones, such as a hub and its leaf node. The latter is known from the question
on: the next leader has not waited before it, the first time.

A previous leader that does not answer in time is not waited for. One that is fenced is not asked and keeps nothing.
What it held is then lost, unless its publisher waits for an ack: it gets none, and publishes again. If such a broker
leads again, it may still hold messages that the leader in between has stored. Its own log shows this: if the log has
records of leaders in between, it stores nothing that came before the PONG. It waits for the PONG in any case, because
others may have stored what came before it, however long that was on its way.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId, Offset, StreamId
from logboom.base.ports import Bytes
from logboom.base.units import MIB
from logboom.broker.partition.header_scan import may_have_header
from logboom.broker.partition.replica import Partition
from logboom.broker.peers import FrameKind, PeerIdentity
from logboom.nats.ingress.handover_messages import (
    EPOCHS_MAX,
    Answer,
    Given,
    Question,
    Wanted,
    encode_answers,
    encode_question,
    read_answers,
    read_question,
)
from logboom.nats.ingress.holding import Epochs, HeldMessages, HoldingState, Unstored
from logboom.nats.ingress.intake import Intake
from logboom.nats.ingress.services import IngressServices
from logboom.nats.link import commands
from logboom.nats.link.changeover import SETTLED_CLUSTER_S
from logboom.nats.link.connection import ConnectionLostError
from logboom.nats.link.frames import Delivery
from logboom.nats.wire.messages import SUBJECT

GAIN_S: Final = 4.0
"""How long the next leader waits for the answer of the previous one, and for a connection to NATS before it asks."""
_COMMIT_S: Final = 5.0
"""How long acks wait until what the next leader found in its log is committed."""
_ASKED_S: Final = 2.0
"""How long the one before it may take to see that it does not lead any more, and to hear the last message."""
_CUT_S: Final = 1.0
"""How much of that is for a mark that stands in one place for both."""
_SETTLED_S: Final = 0.02
"""A server that gives out a message while it takes a subscription, or the end of one, may act on what was before.
Servers that are several take longer."""
_ANSWER_BYTES_MAX: Final = 48 * MIB
_INBOX: Final = "_INBOX.logboom."


class Gained(NamedTuple):
    """A partition that this broker has begun to lead."""

    stream_id: StreamId
    holding: HeldMessages
    partition: Partition
    epoch: int
    """Of this leadership."""
    intake: Intake
    """The intake of the stream when the leadership began: it handles what the previous leader reports even if the
    stream is not attached any more."""


class Subscriptions(Protocol):
    """All holdings, and the subscriptions that bring messages to them."""

    def intake(self, stream_id: StreamId) -> Intake | None:
        """What takes the messages of a stream, as long as it is attached."""

    def opened(self, stream_id: StreamId, holding: HeldMessages, epoch: int) -> None:
        """There is nothing more to wait for: publish what is held, if this broker still leads, in this epoch."""

    def hear_no_more(self, streams: Iterable[StreamId]) -> None:
        """End those subscriptions of these streams that serve only partitions for which other brokers have asked."""

    def close(self, stream_id: StreamId, holding: HeldMessages) -> None:
        """What was held belongs to the next leader now."""

    async def left(self, stream_id: StreamId, index: int, epoch: int) -> HeldMessages | None:
        """What is held of a partition, once this broker no longer leads it in an epoch before `epoch` and has received
        everything; None if it holds nothing for that leader."""


class Handover:
    """See the module. On the loop."""

    def __init__(self, services: IngressServices, subscriptions: Subscriptions) -> None:
        self._services = services
        self._subscriptions = subscriptions
        self._elsewhere: set[BrokerId] = set()
        """Brokers that were connected to another server than this one when they last asked, or were asked."""

    def _are_apart(self, peer: BrokerId) -> bool:
        """Whether what another broker and this one receive may come by several servers."""
        return self._services.link.is_clustered or peer in self._elsewhere

    def _note_place(self, peer: BrokerId, *, is_elsewhere: bool) -> None:
        (self._elsewhere.add if is_elsewhere else self._elsewhere.discard)(peer)

    # --- the next leader ----------------------------------------------------------------------------------------

    async def gain(self, before: BrokerId | None, gained: Sequence[Gained]) -> None:
        """Ask the previous leader for what it holds of these partitions, publish that and what was held here; then
        answer the publishers of what both have. None: there is no broker to ask."""
        if before is None:
            answers: Sequence[Answer | None] = [None] * len(gained)
            await self._hear_what_was_before(gained)
        else:
            answers = await self._answers_of(before, gained)
        unknown = [one for one in gained if one.holding.written_by_others(_epochs(one.partition), one.epoch)]
        others = {id(one) for one in unknown if await self._have_stored_no_message(one)} if unknown else ()
        acks = [self._open(one, theirs, id(one) in others) for one, theirs in zip(gained, answers, strict=True)]
        waiting = [(one, some) for one, some in zip(gained, acks, strict=True) if some]
        await asyncio.gather(*(self._answer_once_committed(one, some) for one, some in waiting))

    async def _hear_what_was_before(self, gained: Sequence[Gained]) -> None:
        """Return once nothing arrives any more that was published before this broker led. That takes as long as the
        server takes to answer, or the connection to be given up: to go on earlier would be to store what others have
        stored."""

        def begin() -> None:
            for one in gained:
                one.holding.begin()

        try:
            await self._services.link.round_trip(begin)
        except ConnectionLostError:
            begin()  # the next connection brings nothing from before

    async def _answers_of(self, before: BrokerId, gained: Sequence[Gained]) -> Sequence[Answer | None]:
        """What the leader before this one tells of each; None where it does not."""
        services, loop = self._services, asyncio.get_running_loop()
        begun_s, link = loop.time(), services.link
        inbox = f"{_INBOX}{services.ids.uuid().hex}"
        # Where servers are several, what comes behind the mark may still be what the other broker has received.
        sid = link.subscribe(
            inbox, None, lambda _: None if self._are_apart(before) else _mark(gained), self._mark_refused
        )
        try:
            try:
                await self._settled(before)  # with the inbox: the mark may come before the question is answered
            finally:
                for one in gained:
                    one.holding.begin()
            answers = await self._ask(before, gained, inbox)
        except (TimeoutError, LogboomError) as error:
            services.metrics.failed_handovers += len(gained)
            services.advisories.note("nats.handover_failed", count=len(gained), message=f"of broker {before}: {error}")
            services.log.warning(
                f"handover {before}",
                "a leader did not report in time which messages from NATS it had not stored",
                leader=before,
                partitions=len(gained),
                why=str(error) or "it does not answer",
            )
            return [None] * len(gained)
        finally:
            link.unsubscribe([sid])
        known = [one for one in answers if one is not None]
        services.metrics.handovers += len(known)
        services.metrics.failed_handovers += len(answers) - len(known)
        services.log.info(
            f"took over {before}",
            "messages from NATS were taken over from another leader",
            leader=before,
            partitions=len(known),
            messages=sum(len(one.given) for one in known),
            seconds=round(loop.time() - begun_s, 3),
        )
        return answers

    def _mark_refused(self, why: str) -> None:
        """What the previous leader leaves to this one cannot be told from equal messages that both have received."""
        self._services.log.warning(
            "refused mark",
            "NATS does not allow a subscription: equal messages may be lost when leaders change",
            subject=f"{_INBOX}*",
            why=why,
        )
        self._services.advisories.note("nats.subscription_refused", message=why)

    async def _have_stored_no_message(self, one: Gained) -> bool:
        """Whether all that leaders in between have written are records of Kafka's producers: then none of the messages
        that this broker has held is among them."""
        between = one.holding.written_by_others(_epochs(one.partition), one.epoch)
        log = one.partition.log
        if between is None or log.written_end < between[1] or log.log_start_offset > between[0]:
            return False
        try:
            return not await may_have_header(
                log.reader,
                one.partition.reads.start,
                SUBJECT,
                Offset(between[0]),
                Offset(between[1]),
                log.config.max_decompressed_bytes,
            )
        except LogboomError:
            return False

    def _open(self, one: Gained, answer: Answer | None, nothing_stored: bool) -> Sequence[bytes]:
        """Nothing more is waited for; the acks that are to be sent later. `nothing_stored`: no message of NATS, by
        leaders in between."""
        intake, holding = self._subscriptions.intake(one.stream_id) or one.intake, one.holding
        holding.is_asking = False
        acks: list[bytes] = []
        epochs = _epochs(one.partition)
        if holding.doubts and _leads(one):
            acks += intake.resolve(holding, epochs)  # of an earlier leadership of this broker
        given = None
        if answer is not None:
            given = [Unstored(Delivery(0, *each[1:]), each.by_all) for each in answer.given]
            acks += answer.acks
        if holding.is_leaving:
            # It was given up meanwhile, and others may have stored what this broker is told too late.
            intake.give_up(given or ())
        else:
            known = holding.without_others(epochs, one.epoch) if nothing_stored else epochs
            intake.take_over(holding, given, known, one.epoch, () if answer is None else answer.refused)
        self._subscriptions.opened(one.stream_id, holding, one.epoch)
        return acks

    async def _answer_once_committed(self, one: Gained, acks: Sequence[bytes]) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_until_committed(one), _COMMIT_S)
        intake = self._subscriptions.intake(one.stream_id)
        if intake is not None and _is_committed(one):
            intake.committed(acks)
        else:
            self._services.metrics.unanswered += len(acks)

    async def _settled(self, before: BrokerId) -> None:
        """Return once everything that is published from now on arrives here, and nothing any more that was published
        before: that takes as long as the server takes to answer. A connection that is made anew meanwhile will do; a
        while without any raises TimeoutError."""
        link = self._services.link
        while True:
            await asyncio.wait_for(link.up.wait(), GAIN_S)
            with contextlib.suppress(ConnectionLostError):
                await link.round_trip()
                await asyncio.sleep(SETTLED_CLUSTER_S if self._are_apart(before) else _SETTLED_S)
                return

    async def _ask(self, before: BrokerId, gained: Sequence[Gained], inbox: str) -> Sequence[Answer | None]:
        """What the leader before this one holds; None where it cannot say. Raises PeerUnavailableError."""
        link = self._services.link
        wanted = [Wanted(one.stream_id, one.holding.index, one.epoch, list(_epochs(one.partition))) for one in gained]
        question = encode_question(Question(inbox, wanted, link.server_id))
        async with asyncio.timeout(GAIN_S):
            answer = await self._services.peers.call(before, FrameKind.HANDOVER, (question,), timeout_s=GAIN_S)
        answers = read_answers(answer, len(gained))
        if known := [one.is_apart for one in answers if one is not None]:
            self._note_place(before, is_elsewhere=any(known))
        if self._are_apart(before):
            await asyncio.sleep(SETTLED_CLUSTER_S)
        with contextlib.suppress(ConnectionLostError):  # then all has arrived here that ever will
            await link.round_trip()
        return answers

    # --- the leader before it -----------------------------------------------------------------------------------

    async def asked(self, peer: PeerIdentity, body: memoryview) -> Sequence[Bytes]:
        """`broker.peers.RequestHandler`: another broker leads now, and asks."""
        question = read_question(body)
        found = await self._left(question.wanted)
        leaving = [
            (one, holding)
            for one, holding in zip(question.wanted, found, strict=True)
            if holding is not None and holding.state is HoldingState.HANDING_OVER
        ]
        for _, holding in leaving:
            holding.state = HoldingState.ENDING
        if question.server:
            self._note_place(peer.broker_id, is_elsewhere=question.server != self._services.link.server_id)
        is_apart = self._are_apart(peer.broker_id)
        streams = [(StreamId(one.stream), holding) for one, holding in leaving]
        await self._hear_the_last(question.mark, streams, is_apart=is_apart)
        answers: dict[int, Answer] = {}
        room = _ANSWER_BYTES_MAX
        for one, holding in leaving:
            size_bytes, answers[id(holding)] = self._answer(one, holding, room, is_apart=is_apart)
            room -= size_bytes
        return (encode_answers([answers.get(id(holding)) for holding in found]),)

    async def _left(self, wanted: Sequence[Wanted]) -> list[HeldMessages | None]:
        """The holdings of partitions that this broker leads no more; None where it leads still, or holds nothing."""
        found: list[HeldMessages | None] = [None] * len(wanted)

        async def look(place: int, one: Wanted) -> None:
            found[place] = await self._subscriptions.left(StreamId(one.stream), one.partition, one.epoch)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ASKED_S):
                await asyncio.gather(*(look(place, one) for place, one in enumerate(wanted)))
        return found

    async def _hear_the_last(
        self, mark: str, leaving: Sequence[tuple[StreamId, HeldMessages]], *, is_apart: bool
    ) -> None:
        """End subscriptions, and return once nothing comes any more that the next leader does not hear."""
        link = self._services.link
        holdings = [holding for _, holding in leaving]
        is_inbox = mark.startswith(_INBOX) and mark.removeprefix(_INBOX).isalnum()
        has_mark = is_inbox and not is_apart and await self._cut(mark, holdings)
        if is_apart:
            # The next leader leaves to this broker what it heard itself until it asked, which may still be on its way
            # here from another server.
            await asyncio.sleep(SETTLED_CLUSTER_S)
        self._subscriptions.hear_no_more([stream_id for stream_id, _ in leaving])

        def heard_all() -> None:
            for holding in holdings:
                holding.state = HoldingState.ENDED

        if is_inbox and not has_mark and not is_apart:
            link.send(commands.publish(mark.encode(), b""))
        with contextlib.suppress(TimeoutError, LogboomError):
            async with asyncio.timeout(_ASKED_S):
                await link.round_trip(heard_all)

    async def _cut(self, mark: str, holdings: Sequence[HeldMessages]) -> bool:
        """Mark a place before which both brokers have heard the same, and leave to the next leader what comes behind
        it; False where that cannot be done in time."""
        link = self._services.link
        heard_before = -1

        def heard() -> int:
            return sum(len(holding.held) for holding in holdings)

        def here() -> None:
            nonlocal heard_before
            heard_before = heard()

        def behind() -> None:
            # What came meanwhile the next leader may have heard on either side of the mark.
            if heard() == heard_before:
                for holding in holdings:
                    holding.is_cut = True

        with contextlib.suppress(TimeoutError, LogboomError):
            async with asyncio.timeout(_CUT_S):
                while not all(holding.is_cut for holding in holdings):
                    in_front = link.round_trip(here)
                    link.send(commands.publish(mark.encode(), b""))
                    await asyncio.gather(in_front, link.round_trip(behind))
        return all(holding.is_cut for holding in holdings)

    def _answer(self, one: Wanted, holding: HeldMessages, room: int, *, is_apart: bool) -> tuple[int, Answer]:
        """What a holding has held, and acks, as far as there is room in the answer; and its size in bytes."""
        stream_id = StreamId(one.stream)
        intake, metrics = self._subscriptions.intake(stream_id), self._services.metrics
        answer = Answer([], [], is_apart=is_apart)
        size_bytes = 0
        if intake is not None:
            answer = Answer([], [], intake.refused(holding), is_apart)
            acks, held = intake.resolve(holding, one.epochs), intake.take(holding)
            for each in held:
                if size_bytes + each.size_bytes > room:
                    break
                size_bytes += each.size_bytes
                answer.given.append(Given(each.by_all, *each.message[1:]))
            for ack in acks:
                if size_bytes + len(ack) > room:
                    break
                size_bytes += len(ack)
                answer.acks.append(ack)
            metrics.unanswered += len(acks) - len(answer.acks)
            intake.give_up(held[len(answer.given) :])
            metrics.handed_over += len(answer.given)
        self._subscriptions.close(stream_id, holding)
        return size_bytes, answer


def _mark(gained: Sequence[Gained]) -> None:
    for one in gained:
        one.holding.mark()


def _leads(one: Gained) -> bool:
    return one.partition.leads and one.partition.leader_epoch == one.epoch


def _epochs(partition: Partition) -> Epochs:
    return partition.log.epochs.entries[-EPOCHS_MAX:]


def _is_committed(one: Gained) -> bool:
    return _leads(one) and one.partition.high_watermark >= _epochs(one.partition)[-1][1]


async def _until_committed(one: Gained) -> None:
    news = asyncio.Event()
    handle = one.partition.watch(news.set)
    try:
        while _leads(one) and not _is_committed(one):
            news.clear()
            await news.wait()
    finally:
        one.partition.unwatch(handle)
