"""Connections between simulated nats-servers of one cluster: who is subscribed where, and messages from one to another.

Each server has a route to each other one, over which it says which subjects its clients want. A message goes one route
at most: a server hands on what its own clients publish, and what another server has handed it only where that was for a
member of a queue that has left meanwhile, and others are known elsewhere (`processMsgResults`). All of that takes
as long as the network takes; so a server that has answered a client's subscription may be the only one that knows of
it, and one message arrives at two servers at two times. A route on which nothing is heard is given up and made anew,
and what was on its way is lost.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, cast

from logboom.sim.coverage import NATS_FORWARDED, NATS_LATE, NATS_ROUTES_LOST
from logboom.sim.nats_wire import END, CommandReader, Interest
from logboom.sim.scheduler import Scheduler

ROUTE_PORT: Final = 6222
SETTLED_S: Final = 0.15
"""How long servers may take to pass on a message, as the broker expects of them."""
_DIAL_AGAIN_S: Final = 0.3
_PING_S: Final = 0.5
_SILENT_MAX_S: Final = 2.0
_NONE: Final = b"-"
_DEDUPLICATED: Final = b"Nats-Msg-Id"


@dataclass(frozen=True)
class Unsettled:
    """Payloads of messages on whose way servers were not as brokers expect them to be; without those that have an id,
    by which they are told."""

    late: set[bytes] = field(default_factory=set)
    """They were longer than SETTLED_S on their way to a server: they may be stored twice."""
    astray: set[bytes] = field(default_factory=set)
    """They were published at a server that had no route to one of the others: where a broker moves from that one while
    the route is made, they may come behind later ones of their publisher."""


class Message(NamedTuple):
    """A message as a client has published it."""

    subject: bytes
    reply: bytes
    header: bytes
    payload: bytes


Receive = Callable[[Message, Sequence[bytes], float], None]
"""Takes a message from another server, the queues of which this one is to choose a member, and when it was sent."""


class Routes:
    """The routes of one life of a server."""

    def __init__(
        self, name: str, scheduler: Scheduler, unsettled: Unsettled, receive: Receive, changed: Callable[[], None]
    ) -> None:
        """`changed`: called when others of the cluster come, leave or go."""
        self.name = name
        self.own = Interest()
        """What the clients of this server want."""
        self.receive = receive
        self.scheduler = scheduler
        self.is_leaving = False
        self._unsettled = unsettled
        self._changed = changed
        self._by_name: dict[str, Route] = {}

    async def listen(self) -> None:
        """Take routes from now on."""
        await asyncio.get_running_loop().create_server(partial(Route, self), self.name, ROUTE_PORT)

    async def keep_up(self, peer: str, is_member: Callable[[str], bool]) -> None:
        """Keep a route to another server, as long as that is a member of the cluster."""
        while is_member(peer):
            with contextlib.suppress(OSError):
                _, route = await asyncio.get_running_loop().create_connection(partial(Route, self), peer, ROUTE_PORT)
                await route.lost.wait()
            await asyncio.sleep(_DIAL_AGAIN_S)

    @property
    def known(self) -> set[str]:
        """The other servers that have said what their clients want."""
        return {name for name, route in self._by_name.items() if route.is_known}

    def published(self, message: Message, others: Collection[str]) -> None:
        """A client of this server publishes a message, while these other servers run."""
        if not self.known.issuperset(others) and _DEDUPLICATED not in message.header:
            self._unsettled.astray.add(message.payload)

    @property
    def peers(self) -> list[str]:
        """The other servers to which clients may connect."""
        return sorted(name for name, route in self._by_name.items() if not route.peer_leaves)

    # --- what is said to the others -----------------------------------------------------------------------------------

    def subscribed(self, pattern: bytes, queue: bytes) -> None:
        """One more client of this server wants a subject."""
        if self.own.add(pattern, queue):
            self._say(_subscription(b"RS+", pattern, queue))

    def unsubscribed(self, pattern: bytes, queue: bytes) -> None:
        """One less does."""
        if self.own.remove(pattern, queue):
            self._say(_subscription(b"RS-", pattern, queue))

    def leave(self) -> None:
        """Tell the others that no client is to come here any more."""
        self.is_leaving = True
        self._say(b"LDM")

    def _say(self, line: bytes) -> None:
        for route in self._by_name.values():
            route.say(line)

    def wanting(self, tokens: Sequence[bytes]) -> list[tuple["Route", list[bytes]]]:
        """The servers at which a subject is wanted, and in which queues."""
        found = [(route, route.interest.queues(tokens)) for route in self._by_name.values()]
        return [(route, queues) for route, queues in found if queues]

    # --- routes -------------------------------------------------------------------------------------------------------

    def opened(self, route: "Route") -> None:
        """Another server has said who it is."""
        before = self._by_name.get(route.peer)
        self._by_name[route.peer] = route
        if before is not None:
            before.abort()
        # Not before: what changes from now on is said on it, what changed while it was made is not.
        for pattern, queue in self.own:
            route.say(_subscription(b"RS+", pattern, queue))
        route.say(b"KNOWN")
        if self.is_leaving:
            route.say(b"LDM")
        self._changed()

    def closed(self, route: "Route") -> None:
        """A route is not there any more."""
        if self._by_name.get(route.peer) is route:
            del self._by_name[route.peer]
            self.scheduler.trace.met[NATS_ROUTES_LOST] += 1
            self._changed()

    def peer_leaves(self) -> None:
        """Another server takes no more clients."""
        self._changed()

    def arrived(self, message: Message, queues: Sequence[bytes], sent_s: float) -> None:
        """Another server hands a message on."""
        met = self.scheduler.trace.met
        met[NATS_FORWARDED] += 1
        if self.scheduler.now_s - sent_s > SETTLED_S and _DEDUPLICATED not in message.header:
            met[NATS_LATE] += 1
            self._unsettled.late.add(message.payload)
        self.receive(message, queues, sent_s)


class Route(asyncio.Protocol):
    """One end of a connection between two servers."""

    def __init__(self, routes: Routes) -> None:
        self.peer = ""
        self.peer_leaves = self.is_known = False
        self.interest = Interest()
        """What clients of the other server want."""
        self.lost = asyncio.Event()
        self._routes = routes
        self._reader = CommandReader()
        self._transport: asyncio.Transport | None = None
        self._heard_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._heard_s = self._routes.scheduler.now_s
        self.say(b"ROUTE %b" % self._routes.name.encode())
        asyncio.get_running_loop().call_later(_PING_S, self._tick)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.lost.set()
        self._routes.closed(self)

    def abort(self) -> None:
        """Give it up."""
        if self._transport is not None:
            self._transport.abort()

    def _tick(self) -> None:
        if self._transport is None:
            return
        if self._routes.scheduler.now_s - self._heard_s > _SILENT_MAX_S:
            self.abort()
            return
        self.say(b"PING")
        asyncio.get_running_loop().call_later(_PING_S, self._tick)

    def say(self, line: bytes) -> None:
        """Say something to the other server."""
        if self._transport is not None:
            self._transport.write(line + END)

    def forward(self, message: Message, queues: Iterable[bytes], sent_s: float) -> None:
        """Hand a message on, for all there who want it, and for one member of each of these queues."""
        names = b",".join(queues) or _NONE
        size = len(message.header) + len(message.payload)
        words = (message.subject, message.reply or _NONE, names, b"%a" % sent_s)
        self.say(b"RMSG %b %d %d\r\n%b%b" % (b" ".join(words), len(message.header), size, *message[2:]))

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._routes.scheduler.now_s
        for words, body in self._reader.feed(data):
            self._do(words, body)

    def _do(self, words: Sequence[bytes], body: bytes) -> None:
        match [*words]:
            case [b"ROUTE", name]:
                self.peer = name.decode()
                self._routes.opened(self)
            case [b"RS+", pattern, *queue]:
                self.interest.add(pattern, b"".join(queue))
            case [b"RS-", pattern, *queue]:
                self.interest.remove(pattern, b"".join(queue))
            case [b"KNOWN"]:
                self.is_known = True
            case [b"LDM"]:
                self.peer_leaves = True
                self._routes.peer_leaves()
            case [b"RMSG", subject, reply, queues, sent_s, header_size, _]:
                upto = int(header_size)
                message = Message(subject, b"" if reply == _NONE else reply, body[:upto], body[upto:])
                self._routes.arrived(message, [] if queues == _NONE else queues.split(b","), float(sent_s))


def _subscription(command: bytes, pattern: bytes, queue: bytes) -> bytes:
    return b" ".join([command, pattern, *([queue] if queue else [])])
