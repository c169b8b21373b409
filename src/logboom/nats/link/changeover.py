"""The change from one connection to another, at another server, without a gap: the first server leaves its cluster and
has announced that it will close its connections (lame duck mode).

    OVERLAP     both are subscribed, and the old one is in use: what it delivers is passed on as it comes, and this
                broker publishes on it. Servers learn of subscriptions one after the other, so both are kept for a
                while. What was published before has left when the new one subscribes; else the new one would deliver it
    SWITCHING   the old one is unsubscribed and delivers its last messages; what is to be published waits
    OVER        the new one is in use. What only it has received is passed on, then what waited is published

In a queue group a server gives a message to one of the two connections, so none of these messages is kept. If the new
connection is lost meanwhile, the old one stays in use. If the old one is lost, the new one is in use once it has
delivered what both have received.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Protocol

from logboom.nats.link.connection import Connection, ConnectionLostError, ConnectionUser
from logboom.nats.link.frames import Run
from logboom.nats.link.overlap import Overlap

SETTLED_CLUSTER_S: Final = 0.15
"""How long several servers take, at most, to announce subscriptions to each other, and to pass on a message."""
_NEW_SUBSCRIPTIONS_MAX_S: Final = 2.0
"""How long it is waited for those to be announced that are made meanwhile: a broker may make one after the other, and
the old server does not wait. Of the last ones equal messages may then be mistaken for one."""
_OVERLAP_MAX_S: Final = 10.0
_LAST_MAX_S: Final = 2.0
_SID_OF: Final = attrgetter("sid")


class Way(Protocol):
    """The commands that can be sent to a server, or to two."""

    def send(self, data: bytes) -> None: ...
    def subscribe(self, sid: int, subject: str, queue: str | None) -> None: ...
    def unsubscribe(self, sid: int) -> None: ...
    def round_trip(self, at_once: Callable[[], None] | None = None) -> asyncio.Future[None]: ...
    def hold(self, why: str) -> None: ...
    def release(self, why: str) -> None: ...
    def end(self, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _Side:
    """A user of one of the two connections."""

    delivered: Callable[[Run], None]
    told: Callable[[Mapping[str, Any]], None]
    refused: Callable[[str], None]
    paused: Callable[[], None]
    lost: Callable[[str], None]


def _nothing(_: object = None) -> None:
    """Nobody needs to know."""


_NOBODY: Final = _Side(_nothing, _nothing, _nothing, _nothing, _nothing)


class Changeover:
    """See the module. Life: `newcomer` is the user of the new connection from its beginning; `begin`, then `run`, once
    each. From `begin` on until it is over this stands in for the connection, as a `Way`."""

    def __init__(self, old: Connection, user: ConnectionUser, *, lost: Callable[[str], None], limit_bytes: int) -> None:
        """`user`: of the connection in use, whichever that is. `lost`: told where the old one is lost meanwhile.
        `limit_bytes`: what may be kept; where it is more, the new one is given up, or used at once."""
        self._old = old
        self._user = user
        self._lost = lost
        self._limit_bytes = limit_bytes
        self._new: Connection | None = None
        self._over: Callable[[Connection], None] = _nothing
        self._overlap = Overlap()
        self._wishes: dict[int, tuple[str, str | None]] = {}
        self._subscribed = 0
        self._new_hears = False
        self._is_switching = False
        self._old_is_lost = False
        self._is_over = False
        self._late: list[Callable[[Connection], None]] = []
        self.info: Mapping[str, Any] = {}
        """What the new server has said of itself last."""
        self.newcomer: ConnectionUser = _Side(
            self._new_delivered, self._new_told, user.refused, user.paused, self._new_lost
        )

    def begin(
        self,
        new: Connection,
        info: Mapping[str, Any],
        wishes: Mapping[int, tuple[str, str | None]],
        over: Callable[[Connection], None],
    ) -> None:
        """`wishes`: subjects and queues of subscriptions, by number. `over` is called with the connection that is in
        use from then on."""
        user = self._user
        self._new, self.info, self._over = new, info, over
        self._old.tell(_Side(self._old_delivered, user.told, user.refused, user.paused, self._old_lost))
        self._wishes.update(wishes)

    async def run(self) -> None:
        """Return once it is over."""
        try:
            async with asyncio.timeout(_OVERLAP_MAX_S):
                await self._both_hear_all()
        except (TimeoutError, ConnectionLostError):
            if not self._old_is_lost:
                self._end_with(self._old)
        if self._is_over:
            return
        assert self._new is not None
        self._is_switching = True
        if not self._old_is_lost:
            for sid in self._wishes:
                self._old.unsubscribe(sid)
        await self._last_of_both()
        self._end_with(self._new)

    async def _last_of_both(self) -> None:
        """Return once the old connection has delivered its last messages, or is lost, and the new one has delivered
        those, too."""
        assert self._new is not None
        with contextlib.suppress(TimeoutError, ConnectionLostError):
            async with asyncio.timeout(_LAST_MAX_S):
                with contextlib.suppress(ConnectionLostError):
                    await self._old.round_trip()
                await asyncio.sleep(SETTLED_CLUSTER_S)
                await self._new.round_trip()

    async def _both_hear_all(self) -> None:
        """Return once both connections bring whatever is published, and what only the old one has brought is known."""
        assert self._new is not None
        await self._old.round_trip()
        self._subscribe_new()
        await self._new.round_trip()
        loop, subscribed = asyncio.get_running_loop(), -1
        last_s = loop.time() + _NEW_SUBSCRIPTIONS_MAX_S
        while subscribed != self._subscribed and loop.time() < last_s:
            subscribed = self._subscribed
            await self._settled()
        self._overlap.mark()
        await self._settled()
        self._overlap.forget_before_mark()

    def _subscribe_new(self) -> None:
        """Idempotent."""
        assert self._new is not None
        if not self._new_hears:
            self._new_hears = True
            for sid, (subject, queue) in self._wishes.items():
                self._new.subscribe(sid, subject, queue)

    async def _settled(self) -> None:
        assert self._new is not None
        await asyncio.sleep(SETTLED_CLUSTER_S)
        await asyncio.gather(self._old.round_trip(), self._new.round_trip())

    def _end_with(self, connection: Connection) -> None:
        """This connection is the one in use. Idempotent."""
        if self._is_over or self._new is None:
            return
        self._is_over = True
        was_switching, self._is_switching = self._is_switching, True  # what is said in answer to what is left waits
        other = self._old if connection is self._new else self._new
        other.tell(_NOBODY)
        connection.tell(self._user)
        if connection is self._new:
            self._subscribe_new()
        left = self._overlap.left()
        if left and (connection is self._new or was_switching):
            self._user.delivered(left)
        if connection is self._old and was_switching:
            for sid, (subject, queue) in self._wishes.items():
                connection.subscribe(sid, subject, queue)
        self._over(connection)
        for say in self._late:
            say(connection)
        other.end("another connection is used")

    # --- the two connections ------------------------------------------------------------------------------------

    def _old_delivered(self, run: Run) -> None:
        for sid, group in groupby(run, _SID_OF):
            if self._is_for_all(sid):
                self._overlap.old(group)
        self._user.delivered(run)
        self._end_if_too_large()

    def _new_delivered(self, run: Run) -> None:
        for sid, group in groupby(run, _SID_OF):
            if self._is_for_all(sid):
                self._overlap.new(group)
            elif others := self._overlap.of_others(group):
                self._user.delivered(others)
        self._end_if_too_large()

    def _end_if_too_large(self) -> None:
        if self._overlap.size_bytes > self._limit_bytes:
            assert self._new is not None
            self._end_with(self._new if self._is_switching else self._old)

    def _is_for_all(self, sid: int) -> bool:
        """Whether a server gives messages of a subscription to both connections."""
        wish = self._wishes.get(sid)
        return wish is None or wish[1] is None

    def _new_told(self, info: Mapping[str, Any]) -> None:
        self.info = info

    def _old_lost(self, reason: str) -> None:
        """What it has delivered may still be on its way on the new one: `run` waits for that."""
        self._lost(reason)
        self._old_is_lost = self._is_switching = True
        self._subscribe_new()
        if not self._overlap.is_marked:
            self._overlap.forget_before_mark()  # most of it the new one will never deliver

    def _new_lost(self, reason: str) -> None:
        if self._new is None:
            return  # its server is of no use, so it was closed before `begin`
        if self._old_is_lost:
            self._end_with(self._new)
            self._user.lost(reason)
        else:
            self._end_with(self._old)

    # --- what is said (Way) -------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        if self._is_switching:
            self._late.append(lambda connection: connection.send(data))
        else:
            self._overlap.say(data)
            self._old.send(data)

    def subscribe(self, sid: int, subject: str, queue: str | None) -> None:
        assert self._new is not None
        self._wishes[sid] = subject, queue
        self._subscribed += 1
        if not self._is_switching:
            self._old.subscribe(sid, subject, queue)
        if self._new_hears:
            self._new.subscribe(sid, subject, queue)

    def unsubscribe(self, sid: int) -> None:
        assert self._new is not None
        self._wishes.pop(sid, None)
        if not self._is_switching:
            self._old.unsubscribe(sid)
        if self._new_hears:
            self._new.unsubscribe(sid)

    def round_trip(self, at_once: Callable[[], None] | None = None) -> asyncio.Future[None]:
        if not self._is_switching:
            return self._old.round_trip(at_once)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._late.append(partial(_go_round, answered, at_once))
        return answered

    def hold(self, why: str) -> None:
        assert self._new is not None
        self._old.hold(why)
        self._new.hold(why)

    def release(self, why: str) -> None:
        assert self._new is not None
        self._old.release(why)
        self._new.release(why)

    def end(self, reason: str) -> None:
        assert self._new is not None
        self._is_over = True
        for connection in (self._old, self._new):
            connection.tell(_NOBODY)
            connection.end(reason)


def _go_round(answered: asyncio.Future[None], at_once: Callable[[], None] | None, connection: Connection) -> None:
    """Answer with what becomes of a round trip that begins now."""

    def come_back(trip: asyncio.Future[None]) -> None:
        error = trip.exception()
        if answered.done():
            return
        if error is None:
            answered.set_result(None)
        else:
            answered.set_exception(error)
            answered.exception()  # nobody needs to be waiting

    connection.round_trip(at_once).add_done_callback(come_back)
