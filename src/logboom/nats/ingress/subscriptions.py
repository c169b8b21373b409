"""The subscriptions of each stream, and those that were ended and may still deliver something."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from logboom.base.ids import StreamId
from logboom.nats.ingress.plan import Wish, in_order
from logboom.nats.link.frames import Run
from logboom.nats.link.link import Link


class StreamSubscriptions:
    """See the module. On the loop."""

    def __init__(self, link: Link, receive: Callable[[Wish, Run], None], refused: Callable[[Wish, str], None]) -> None:
        """`receive` takes the messages of a subscription; `refused` is told why the server does not allow one."""
        self._link = link
        self._receive = receive
        self._refused = refused
        self._sids: dict[StreamId, dict[Wish, int]] = {}
        """By stream, the number of each subscription."""
        self._ending: Counter[StreamId] = Counter()
        """How often subscriptions of a stream were ended that may still bring something."""

    def __contains__(self, stream_id: StreamId) -> bool:
        return stream_id in self._sids

    def __iter__(self) -> Iterator[StreamId]:
        """The streams that have some."""
        return iter(self._sids)

    def may_bring(self, stream_id: StreamId, index: int) -> bool:
        """Whether messages may still arrive for a partition that were published before now."""
        wishes = self._sids.get(stream_id, {})
        return stream_id in self._ending or any(wish.partition in (None, index) for wish in wishes)

    def follow(self, stream_id: StreamId, wanted: set[Wish]) -> asyncio.Future[None] | None:
        """Begin and end subscriptions. Done once those that were ended deliver nothing more; None if none were
        ended."""
        sids = self._sids.setdefault(stream_id, {})
        for wish in in_order(wanted - sids.keys()):
            sids[wish] = self._link.subscribe(
                wish.subject, wish.queue, partial(self._receive, wish), partial(self._refused, wish)
            )
        ended = [sids.pop(wish) for wish in in_order(sids.keys() - wanted)]
        if not sids:
            del self._sids[stream_id]
        if not ended:
            return None
        trip = self._link.unsubscribe(ended)
        self._ending[stream_id] += 1
        trip.add_done_callback(lambda _: self._heard_all(stream_id))
        return trip

    def _heard_all(self, stream_id: StreamId) -> None:
        self._ending[stream_id] -= 1
        if not self._ending[stream_id]:
            del self._ending[stream_id]
