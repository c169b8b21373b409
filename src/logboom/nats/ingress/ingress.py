"""Keeps this broker's subscriptions as the plan says: after each change of the metadata, and of what it leads.

A subscription is ended only after what it still brings has been handed to its intake; what then belongs to a partition
that another broker leads is refused there, so a publisher that waits for its ack tries again.
"""

import asyncio
from functools import partial
from typing import Final

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

_CHECK_S: Final = 0.5
"""How often what this broker leads is looked at: a leadership may begin after the metadata has said so."""


class Ingress:
    """See the module. Life: `start`, `stop`, once each, on one loop."""

    def __init__(self, services: IngressServices, catalog: Catalog) -> None:
        self._services = services
        self._catalog = catalog
        self._attached: dict[StreamId, tuple[Stream, Attached]] = {}
        self._intakes: dict[StreamId, Intake] = {}
        self._subscribed: dict[Wish, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Subscribe, and follow what changes from now on."""
        for stream in self._catalog.image.by_id.values():
            self._take(stream)
        self._catalog.watch(self._changed)
        self._check()

    def stop(self) -> None:
        """End all subscriptions. Idempotent."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._attached.clear()
        self._follow()

    # --- following ----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_CHECK_S, self._check)
        self._follow()

    def _changed(self, delta: ImageDelta) -> None:
        if self._stopped:
            return
        for stream in delta.deleted:
            self._attached.pop(stream.id, None)
            self._intakes.pop(stream.id, None)
        for stream in {each.id: each for each in (*delta.reconfigured, *(new for new, _ in delta.grown))}.values():
            self._take(stream)
        self._follow()

    def _take(self, stream: Stream) -> None:
        """A stream is new, or has changed."""
        attachment = attachment_of(stream)
        if attachment is None:
            self._attached.pop(stream.id, None)
            self._intakes.pop(stream.id, None)
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

    def _follow(self) -> None:
        wanted: set[Wish] = set()
        for stream, attached in self._attached.values():
            wanted |= wishes(attached, self._led(stream))
        for wish in wanted - self._subscribed.keys():
            self._subscribe(wish)
        for wish in self._subscribed.keys() - wanted:
            self._services.link.unsubscribe(self._subscribed.pop(wish))

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

    def _subscribe(self, wish: Wish) -> None:
        self._subscribed[wish] = self._services.link.subscribe(
            wish.subject,
            wish.queue,
            lambda messages: self._receive(wish, messages),
            partial(self._refused, wish),
        )

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
