"""Keeps this broker's subscriptions as the plan says: after each change of a stream, and of what this broker leads.

All that changed in one turn of the loop is followed at its end, so a thousand streams that begin cost one look at each.

A subscription is ended only after what it still brings has been handed to its intake; what then belongs to a partition
that another broker leads is refused there, so a publisher that waits for its ack tries again.
"""

import asyncio
from functools import partial

from logboom.base.errors import LogboomError
from logboom.base.ids import StreamId
from logboom.broker.catalog import Catalog
from logboom.metadata import ImageDelta, Stream
from logboom.nats.ingress.attachment import attachment_of
from logboom.nats.ingress.intake import Intake
from logboom.nats.ingress.plan import Attached, Wish, cannot_be_grouped, wishes
from logboom.nats.ingress.services import IngressServices
from logboom.nats.link.frames import Delivery
from logboom.nats.wire.messages import Reader


class Ingress:
    """See the module. Life: `start`, `stop`, once each, on one loop."""

    def __init__(self, services: IngressServices, catalog: Catalog) -> None:
        self._services = services
        self._catalog = catalog
        self._attached: dict[StreamId, tuple[Stream, Attached]] = {}
        self._intakes: dict[StreamId, Intake] = {}
        self._subscribed: dict[StreamId, dict[Wish, int]] = {}
        """By stream, the number of each subscription."""
        self._changed: set[StreamId] = set()
        self._stopped = False

    def start(self) -> None:
        """Subscribe, and follow what changes from now on."""
        for stream in self._catalog.image.by_id.values():
            self._take(stream)
        self._catalog.watch(self._image_changed)
        self._services.role_news.watch(self._look_at)

    def stop(self) -> None:
        """End all subscriptions. Idempotent."""
        self._stopped = True
        self._attached.clear()
        self._changed.update(self._subscribed)
        self._follow()

    # --- following ----------------------------------------------------------------------------------------------

    def _image_changed(self, delta: ImageDelta) -> None:
        if self._stopped:
            return
        for stream in delta.deleted:
            self._detach(stream.id)
        for stream in {each.id: each for each in (*delta.reconfigured, *(new for new, _ in delta.grown))}.values():
            self._take(stream)
        for stream in delta.reassigned:
            self._look_at(stream.id)

    def _look_at(self, stream_id: StreamId) -> None:
        """What is led of a stream may be other than before; it is looked at once this turn of the loop has ended."""
        if stream_id not in self._attached and stream_id not in self._subscribed:
            return
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._follow)
        self._changed.add(stream_id)

    def _detach(self, stream_id: StreamId) -> None:
        self._attached.pop(stream_id, None)
        self._intakes.pop(stream_id, None)
        self._look_at(stream_id)

    def _take(self, stream: Stream) -> None:
        """A stream is new, or has changed."""
        attachment = attachment_of(stream)
        if attachment is None:
            self._detach(stream.id)
            return
        attached = Attached(
            stream.id,
            stream.name,
            attachment.subjects,
            attachment.group,
            stream.partitions,
            attachment.is_round_robin,
        )
        if cannot_be_grouped(attached):
            self._services.log.warning(
                f"group {stream.name}",
                "a stream of a group is not subscribed: its partitioner and the group would choose apart",
                stream=stream.name,
                group=attachment.group,
            )
        self._attached[stream.id] = stream, attached
        reader = Reader.of(stream)
        self._intakes[stream.id] = Intake(stream.name, reader, self._services)
        self._look_at(stream.id)

    def _follow(self) -> None:
        changed, self._changed = self._changed, set()
        for stream_id in changed:
            known = self._attached.get(stream_id)
            wanted = set() if known is None else wishes(known[1], self._led(known[0]))
            self._subscribe_to(stream_id, wanted)

    def _subscribe_to(self, stream_id: StreamId, wanted: set[Wish]) -> None:
        link, subscribed = self._services.link, self._subscribed.setdefault(stream_id, {})
        for wish in wanted - subscribed.keys():
            subscribed[wish] = link.subscribe(
                wish.subject, wish.queue, partial(self._receive, wish), partial(self._refused, wish)
            )
        ended = [subscribed.pop(wish) for wish in subscribed.keys() - wanted]
        if ended:
            link.unsubscribe(ended)
        if not subscribed:
            del self._subscribed[stream_id]

    def _led(self, stream: Stream) -> list[int]:
        found = []
        for index in range(stream.partitions):
            try:
                partition = self._services.replicas.find(stream.name, index)
            except LogboomError:
                continue
            if partition.leads:
                found.append(index)
        return found

    def _receive(self, wish: Wish, messages: list[Delivery]) -> None:
        intake = self._intakes.get(wish.stream_id)
        if intake is not None:
            intake.receive(wish.partition, messages)

    def _refused(self, wish: Wish, why: str) -> None:
        stream = self._catalog.stream_by_id(wish.stream_id)
        name = stream.name if stream is not None else str(wish.stream_id)
        self._services.log.warning(
            f"refused {name}", "NATS does not allow a subscription", stream=name, subject=wish.subject, why=why
        )
