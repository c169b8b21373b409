"""Keeps this broker's holdings and subscriptions as the plan says: after each change of a stream, and of what it leads.

All changes of one turn of the loop are followed at its end, so a thousand streams that begin cost one look at each.
The end of a leadership is noticed at once, before requests that waited for it are answered.

A subscription is ended only after everything that it still delivers has been given to its intake, even if its stream
has no subjects any more: in a queue group the server may have given it messages that nobody else gets. What then
belongs to a partition that another broker leads is held for that broker (`handover`), for a while. A stream whose
subjects were removed therefore counts as attached, to none, for as long: its leader may change meanwhile. A deleted
stream stays subscribed for a while if brokers receive messages that they leave to others: some may have heard of the
deletion before others, and a message that each leaves to another one would get no answer.
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from logboom.base.errors import LogboomError, UnknownStreamError
from logboom.base.ids import BrokerId, StreamId
from logboom.broker.catalog import Catalog
from logboom.broker.partition.replica import Partition
from logboom.broker.peers import FrameKind
from logboom.metadata import ImageDelta, Stream
from logboom.nats.ingress.attachment import attachment_of
from logboom.nats.ingress.handover import Gained, Handover
from logboom.nats.ingress.holding import HeldMessages, HoldingState
from logboom.nats.ingress.intake import Intake
from logboom.nats.ingress.keyed_timers import KeyedTimers
from logboom.nats.ingress.plan import (
    Attached,
    Wish,
    are_chosen_apart,
    are_chosen_by_brokers,
    cannot_be_grouped,
    wishes,
)
from logboom.nats.ingress.predecessors import Predecessors
from logboom.nats.ingress.services import IngressServices
from logboom.nats.ingress.subscriptions import StreamSubscriptions
from logboom.nats.link.frames import Run
from logboom.nats.wire.messages import Reader

HOLD_S: Final = 5.0
"""How long a broker that does not lead a partition any more keeps messages for the next leader, and its publishers
without an answer."""

_DELETED_S: Final = 0.5
"""How long it may take until each broker has heard that a stream is deleted."""

_REPARTITIONED: Final = (
    "brokers learn of it one after the other: plain messages of that moment may be missing, or be in two partitions"
)


class Ingress:
    """See the module. Life: `start`, `stop`, once each, on one loop."""

    def __init__(self, services: IngressServices, catalog: Catalog) -> None:
        self._services = services
        self._catalog = catalog
        self._attached: dict[StreamId, tuple[Stream, Attached]] = {}
        self._intakes: dict[StreamId, Intake] = {}
        self._subscribed = StreamSubscriptions(services.link, self._receive, partial(_refused, services, catalog))
        self._holdings: dict[StreamId, dict[int, HeldMessages]] = {}
        """By stream, of the partitions that messages are taken for; those of an attached stream are one dictionary,
        which its intake looks into."""
        self.missed: Final = partial(_missed, self._holdings)
        """To be called when the connection was lost."""
        self._predecessors = Predecessors(services.broker_id, lambda: catalog.image)
        self._expiries = KeyedTimers[HeldMessages](HOLD_S)
        self._retired = KeyedTimers[StreamId](HOLD_S)
        """Streams that have no subjects any more."""
        self._deleted = KeyedTimers[StreamId](_DELETED_S)
        """Streams whose publishers are told so."""
        self._changed: set[StreamId] = set()
        self._reconfigured: set[StreamId] = set()
        """Attached streams that are new, or have other settings or partitions than their intake knows."""
        self._news = asyncio.Event()
        self._handover = Handover(services, self)
        self._gaining: set[asyncio.Task[None]] = set()
        self._stopped = False

    def start(self) -> None:
        """Subscribe, and follow what changes from now on."""
        for stream in self._catalog.image.by_id.values():
            self._take(stream)
        self._catalog.watch(self._image_changed)
        self._services.leadership_changes.watch(self._look_at)
        self._services.isolation.watch(lambda: self._look_at(*self._attached))
        self._services.peers.serve(FrameKind.HANDOVER, self._handover.asked)

    async def handed_over(self) -> None:
        """Return once nothing is held here for other leaders."""
        while any(holding.is_handing_over for holdings in self._holdings.values() for holding in holdings.values()):
            await self._news.wait()

    def stop(self) -> None:
        """End all subscriptions, hold nothing for anybody. Idempotent."""
        self._stopped = True
        for task in self._gaining:
            task.cancel()
        self._expiries.clear()
        self._retired.clear()
        self._deleted.clear()
        for stream_id, holdings in self._holdings.items():
            for holding in tuple(holdings.values()):
                if not holding.is_publishing:  # others may have stored what it holds
                    self._give_up(stream_id, holding)
        self._attached.clear()
        self._changed.update(self._subscribed)
        self._follow()

    # --- following ----------------------------------------------------------------------------------------------

    def _image_changed(self, delta: ImageDelta) -> None:
        if self._stopped:
            return
        for stream in delta.deleted:
            self._delete(stream)
        for stream in {each.id: each for each in (*delta.reconfigured, *(new for new, _ in delta.grown))}.values():
            self._take(stream)
        for stream in delta.reassigned:
            if stream.id in self._attached:
                self._predecessors.note(delta.before.by_id.get(stream.id))
                self._predecessors.note(stream)
                self._look_at(stream.id)

    def _look_at(self, *stream_ids: StreamId) -> None:
        """What is led of streams may be other than before. What is led no more is taken note of at once, all else once
        this turn of the loop has ended."""
        for stream_id in stream_ids:
            if self._stopped or (stream_id not in self._attached and stream_id not in self._subscribed):
                continue
            for holding in tuple(self._holdings.get(stream_id, {}).values()) if stream_id in self._attached else ():
                if not holding.is_handing_over and self._leading(stream_id, holding.index) is None:
                    self._lose(stream_id, holding)
            if not self._changed:
                asyncio.get_running_loop().call_soon(self._follow)
            self._changed.add(stream_id)

    def _delete(self, stream: Stream) -> None:
        """Tell publishers of a stream that it is deleted. Of what other brokers led as well, once these have all heard
        of that: until then they tell, or have stored it."""
        intake, known = self._intakes.get(stream.id), self._attached.get(stream.id)
        error = UnknownStreamError(f"stream {stream.name} was deleted")
        stays = intake is not None and known is not None and are_chosen_by_brokers(known[1])
        if intake is not None:
            intake.end(error, for_others=not stays)
        if not stays:
            self._detach(stream.id)
            return

        def tell_all() -> None:
            assert intake is not None
            intake.end(error, for_others=True)
            self._deleted.set(stream.id, partial(self._detach, stream.id))

        self._deleted.set(stream.id, tell_all)

    def _detach(self, stream_id: StreamId) -> None:
        self._retired.cancel(stream_id)
        self._deleted.cancel(stream_id)
        self._attached.pop(stream_id, None)
        self._reconfigured.discard(stream_id)
        self._predecessors.forget(stream_id)
        if stream_id in self._subscribed:
            self._look_at(stream_id)
        else:
            self._forget(stream_id)

    def _forget(self, stream_id: StreamId, _: object = None) -> None:
        """Nothing comes any more of the subscriptions of a stream."""
        if stream_id in self._attached:
            return  # again
        for holding in tuple(self._holdings.get(stream_id, {}).values()):
            self._give_up(stream_id, holding)
        self._holdings.pop(stream_id, None)
        self._intakes.pop(stream_id, None)

    def _take(self, stream: Stream) -> None:
        """A stream is new, or has changed."""
        attachment = attachment_of(stream)
        if attachment is None:
            self._retire(stream.id)
            return
        self._retired.cancel(stream.id)
        for before_id in [one for one in self._deleted if self._attached[one][0].name == stream.name]:
            self._detach(before_id)  # it is there again: what comes now is for the new one
        attached = Attached(
            stream.id,
            stream.name,
            attachment.subjects,
            attachment.group,
            stream.partitions,
            attachment.is_round_robin,
            attachment.chosen_by,
        )
        if cannot_be_grouped(attached):
            self._services.log.warning(
                f"group {stream.name}",
                "a stream of a group is not subscribed: its partitioner and the group would choose apart",
                stream=stream.name,
                group=attachment.group,
            )
        before = self._attached.get(stream.id)
        leaders = [one.leader for one in stream.assignments]  # the first of them tells, where there are others
        is_first = leaders[:1] == [self._services.broker_id] and len(set(leaders)) > 1
        if is_first and before is not None and are_chosen_apart(before[1], attached):
            self._services.advisories.note("nats.repartitioned", stream=stream.name, message=_REPARTITIONED)
        self._attached[stream.id] = stream, attached
        self._holdings.setdefault(stream.id, {})
        self._reconfigured.add(stream.id)
        self._predecessors.note(stream)
        self._look_at(stream.id)

    def _retire(self, stream_id: StreamId) -> None:
        """A stream has no subjects. Its intake goes on to read what comes by its last settings."""
        known = self._attached.get(stream_id)
        if known is not None and stream_id not in self._retired:
            stream, attached = known
            self._attached[stream_id] = stream, attached._replace(subjects=())
            self._retired.set(stream_id, partial(self._detach, stream_id))
            self._look_at(stream_id)

    def _follow(self) -> None:
        changed, self._changed = self._changed, set()
        gained: dict[BrokerId | None, list[Gained]] = {}
        for stream_id in changed:
            known = self._attached.get(stream_id)
            if known is not None and stream_id in self._reconfigured:
                # Not before holdings are made below, in this turn: what is chosen for a partition that has none would
                # be taken for the matter of other brokers.
                self._reconfigured.discard(stream_id)
                reader, holdings = Reader.of(known[0]), self._holdings[stream_id]
                self._intakes[stream_id] = Intake(known[0].name, reader, holdings, self._services)
            for index in () if known is None else range(known[0].partitions):
                partition = self._leading(stream_id, index)
                if partition is not None:
                    self._lead(stream_id, index, partition, gained)
            ended = self._subscribe_to(stream_id)
            if known is None and ended is not None:
                ended.add_done_callback(partial(self._forget, stream_id))
        for before, some in gained.items():
            task = asyncio.create_task(self._handover.gain(before, some))
            self._gaining.add(task)
            task.add_done_callback(self._gaining.discard)

    def _leading(self, stream_id: StreamId, index: int) -> Partition | None:
        """A partition, if this broker leads it."""
        known = self._attached.get(stream_id)
        if known is None or stream_id in self._deleted:
            return None  # under its name there may be another stream by now
        try:
            partition = self._services.replicas.find(known[0].name, index)
        except LogboomError:
            return None
        return partition if partition.leads else None

    def _lead(
        self, stream_id: StreamId, index: int, partition: Partition, gained: dict[BrokerId | None, list[Gained]]
    ) -> None:
        """This broker leads a partition: open its holding, or see what has to be waited for first."""
        holdings = self._holdings[stream_id]
        holding = holdings.get(index)
        if holding is not None and (holding.is_leaving or not holding.is_handing_over):
            return  # a leader that is being answered is told first of what came until then: see `close`
        if holding is None:
            holding = holdings[index] = HeldMessages(index)
        holding.state = HoldingState.TAKING_OVER
        self._expiries.cancel(holding)
        before = self._predecessors.of(stream_id, index)
        if holding.is_asking:
            holding.asks_again = True
            return
        if (
            before is None
            and not holding.held
            and not holding.doubts
            and not self._subscribed.may_bring(stream_id, index)
        ):
            holding.publish(partition.leader_epoch)
            return
        holding.is_asking = True
        gained.setdefault(before, []).append(
            Gained(stream_id, holding, partition, partition.leader_epoch, self._intakes[stream_id])
        )

    def _lose(self, stream_id: StreamId, holding: HeldMessages) -> None:
        own = self._catalog.image.brokers.get(self._services.broker_id)
        if own is not None and own.fenced:
            # The next leader takes this broker for gone and does not ask it (`Predecessors.of`). What was kept for that
            # would come behind what others have stored, if this broker led again soon.
            self._give_up(stream_id, holding)
            return
        holding.state = HoldingState.HANDING_OVER
        self._expiries.set(holding, partial(self._expired, stream_id, holding))
        self._tell()

    def _expired(self, stream_id: StreamId, holding: HeldMessages) -> None:
        """Nobody has asked for what was held."""
        if holding.state is HoldingState.HANDING_OVER:
            self._give_up(stream_id, holding)
            self._look_at(stream_id)

    def _give_up(self, stream_id: StreamId, holding: HeldMessages) -> None:
        intake = self._intakes.get(stream_id)
        if intake is not None:
            intake.give_up([*intake.take_doubts(holding), *intake.take(holding)])
        self.close(stream_id, holding)

    def _tell(self) -> None:
        self._news.set()
        self._news.clear()

    # --- handover.Subscriptions -------------------------------------------------------------------------------------

    def intake(self, stream_id: StreamId) -> Intake | None:
        return self._intakes.get(stream_id)

    def opened(self, stream_id: StreamId, holding: HeldMessages, epoch: int) -> None:
        intake = self._intakes.get(stream_id)
        if holding.asks_again:
            holding.asks_again = False
            if not holding.is_handing_over:
                self._lose(stream_id, holding)
            self._look_at(stream_id)
        elif holding.state is HoldingState.TAKING_OVER and not holding.is_asking and intake is not None:
            holding.publish(epoch)
            intake.publish_held(holding)
        self._tell()

    def hear_no_more(self, streams: Iterable[StreamId]) -> None:
        for stream_id in dict.fromkeys(streams):
            self._subscribe_to(stream_id)

    def close(self, stream_id: StreamId, holding: HeldMessages) -> None:
        self._expiries.cancel(holding)
        holdings = self._holdings.get(stream_id, {})
        if holdings.get(holding.index) is holding:
            del holdings[holding.index]
            if holding.is_leaving:
                self._look_at(stream_id)  # this broker may lead again
        holding.state = HoldingState.ENDED
        self._tell()

    async def left(self, stream_id: StreamId, index: int, epoch: int) -> HeldMessages | None:
        while True:
            holding = self._holdings.get(stream_id, {}).get(index)
            if holding is None or holding.is_leaving:
                return None
            if holding.state is HoldingState.HANDING_OVER and not holding.is_asking:
                return holding
            partition = self._leading(stream_id, index)
            if partition is not None and partition.leader_epoch >= epoch:
                return None
            await self._news.wait()

    # --- subscriptions ------------------------------------------------------------------------------------------

    def _subscribe_to(self, stream_id: StreamId) -> asyncio.Future[None] | None:
        """Begin and end subscriptions. Done once nothing comes of those any more that were ended; None: none were."""
        known, wanted = self._attached.get(stream_id), set[Wish]()
        if known is not None:
            holdings = self._holdings.get(stream_id, {})
            wanted = wishes(known[1], [index for index, holding in holdings.items() if not holding.is_leaving])
        if self._services.isolation.lasts:
            # What the server gives a member of a queue nobody else gets; by now others lead who take this one's part.
            wanted = {wish for wish in wanted if wish.queue is None}
        return self._subscribed.follow(stream_id, wanted)

    def _receive(self, wish: Wish, messages: Run) -> None:
        intake = self._intakes.get(wish.stream_id)
        if intake is not None:
            intake.receive(wish.partition, wish.queue is None, messages)


def _missed(holdings: Mapping[StreamId, Mapping[int, HeldMessages]]) -> None:
    """What is received until there is another connection is not here."""
    for of_stream in holdings.values():
        for holding in of_stream.values():
            holding.missed()


def _refused(services: IngressServices, catalog: Catalog, wish: Wish, why: str) -> None:
    """A server does not allow a subscription."""
    stream = catalog.stream_by_id(wish.stream_id)
    name = stream.name if stream is not None else str(wish.stream_id)
    services.log.warning(
        f"refused {name}", "NATS does not allow a subscription", stream=name, subject=wish.subject, why=why
    )
    services.advisories.note("nats.subscription_refused", stream=name, message=why)
