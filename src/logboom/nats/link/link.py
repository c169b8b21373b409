"""One connection to NATS that is kept up, and the subscriptions on it.

    DOWN      no connection; the next attempt comes after a pause that doubles, less a random part
    DIALLING  connecting and logging in, to the next server of the pool
    UP        subscriptions are in force, what is published is sent
    MOVING    the server is about to leave its cluster (lame duck mode): a connection to another one replaces this one,
              without a gap (`changeover`)

Subscriptions are wishes: they are made again on each connection. What is published while there is no connection is
lost, as it would be on the way: NATS stores nothing.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from logboom.base.ports import Ids
from logboom.broker.rate_limited_log import RateLimitedLog
from logboom.nats.config import NatsConfig
from logboom.nats.link.changeover import Changeover, Way
from logboom.nats.link.connection import Connection, ConnectionLostError
from logboom.nats.link.dialing import Dialer, DialError
from logboom.nats.link.frames import Run
from logboom.nats.link.servers import ServerAddress, ServerPool
from logboom.nats.metrics import NatsMetrics

PAUSE_MIN_S: Final = 0.05
_JITTER_STEPS: Final = 1_000
_SID_OF: Final = attrgetter("sid")

Receive = Callable[[Run], None]
"""Takes messages of one subscription, in the order in which the server sent them."""


class _Subscription(NamedTuple):
    """A subscription that is made again on each connection."""

    subject: str
    queue: str | None
    receive: Receive
    refused: Callable[[str], None]


class Link:
    """See the module. Life: `start`, `stop`, once each, on one loop. A `connection.ConnectionUser`."""

    def __init__(self, config: NatsConfig, name: str, *, ids: Ids, log: RateLimitedLog, metrics: NatsMetrics) -> None:
        """`name`: what servers know this client by. Raises LogboomError where a file of a secret cannot be used."""
        self._config = config
        self._ids = ids
        self._log = log
        self._metrics = metrics
        self._dialer = Dialer(config, name)
        self._servers = ServerPool(config.servers, discovers=config.discover_servers)
        self._server: ServerAddress | None = None
        self.server_id = ""
        """What the server calls itself to which this broker is connected, or was last."""
        self._connection: Way | None = None
        self.up = asyncio.Event()
        """Set while a server takes what is said."""
        self._lost: asyncio.Future[None] | None = None
        self._subscriptions: dict[int, _Subscription] = {}
        self._ending: dict[int, Receive] = {}
        self._last_sid = 0
        self._keeper: asyncio.Task[None] | None = None
        self._mover: asyncio.Task[None] | None = None
        self._moved_at_s = float("-inf")
        self._is_clustered = self._is_leaving = False
        self.on_lost: Callable[[str, str], None] = lambda kind, why: None
        """Called whenever a connection that was up is lost: the kind of reason, a word of metrics, and what was the
        matter."""
        self.on_refused: Callable[[str], None] = lambda why: None
        """Called where a server does not allow a subscription and does not say which."""

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect. Does not wait for a connection."""
        self._keeper = asyncio.create_task(self._keep_up())

    async def stop(self) -> None:
        """Say no more. Idempotent."""
        tasks = [task for task in (self._keeper, self._mover) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._connection is not None:
            self._connection.end("this broker is stopping")

    @property
    def is_up(self) -> bool:
        """Whether there is a connection on which to publish."""
        return self.up.is_set()

    @property
    def is_clustered(self) -> bool:
        """Whether the server has announced that it is one of several: the others may not yet know what this one has
        done."""
        return self._is_clustered

    async def _keep_up(self) -> None:
        pause_s = PAUSE_MIN_S
        while True:
            server = self._servers.next()
            try:
                connection, info = await self._dialer.dial(server, self)
            except DialError as error:
                reason = str(error)
                self._metrics.failed_connections += 1
                self._log.warning(f"dial {server}", "NATS cannot be reached", server=str(server), why=reason)
            else:
                pause_s = PAUSE_MIN_S
                self._lost = asyncio.get_running_loop().create_future()
                for sid, wish in self._subscriptions.items():
                    connection.subscribe(sid, wish.subject, wish.queue)
                self._use(connection, info, server)
                await self._lost
            await asyncio.sleep(pause_s * (0.5 + self._ids.below(_JITTER_STEPS) / (2 * _JITTER_STEPS)))
            pause_s = min(2 * pause_s, self._config.reconnect_pause_max_s)

    def _use(self, connection: Connection, info: Mapping[str, Any], server: ServerAddress) -> None:
        """This connection is up, and subscribed."""
        self._connection = connection
        self._server, self.server_id = server, str(info.get("server_id", ""))
        self._servers.moved(server)
        self.up.set()
        self._metrics.connections += 1
        self._metrics.connected = 1
        self._log.info("up", "connected to NATS", server=str(server), version=info.get("version"))
        self.told(info)

    def _note_lost(self, reason: str) -> None:
        self._metrics.disconnects[_kind(reason)] += 1
        self.on_lost(_kind(reason), reason)
        self._log.warning("lost", "the connection to NATS was lost", server=str(self._server), why=reason)

    # --- to another server --------------------------------------------------------------------------------------

    async def _move(self) -> None:
        """Use a connection to another server before this one ends its own.

        Servers that say again and again that they are leaving, and stay, are not followed more often than one that
        cannot be reached is tried. They give their clients ten seconds to go (`lame_duck_grace_period`).
        """
        pause_s = PAUSE_MIN_S
        while self._is_leaving and self._server is not None:
            since_s = asyncio.get_running_loop().time() - self._moved_at_s
            await asyncio.sleep(max(self._config.reconnect_pause_max_s - since_s, 0))
            for server in self._servers.others(self._server):
                if self._is_leaving and await self._change_over(server):
                    break
            await asyncio.sleep(pause_s * (0.5 + self._ids.below(_JITTER_STEPS) / (2 * _JITTER_STEPS)))
            pause_s = min(2 * pause_s, self._config.reconnect_pause_max_s)

    async def _change_over(self, server: ServerAddress) -> bool:
        """Go on with a connection to this server; whether that came about."""
        old = self._connection
        if not isinstance(old, Connection):
            return False
        limit_bytes = self._config.max_inflight_bytes
        changeover = Changeover(old, self, lost=self._note_lost, limit_bytes=limit_bytes)
        try:
            new, info = await self._dialer.dial(server, changeover.newcomer)
        except DialError as error:
            self._log.warning(f"dial {server}", "NATS cannot be reached", server=str(server), why=str(error))
            self._metrics.failed_connections += 1
            return False
        if self._connection is not old or info.get("server_id") == self.server_id or info.get("ldm"):
            new.abort("it is of no use")
            return False

        is_moved = False

        def over(connection: Connection) -> None:
            nonlocal is_moved
            self._connection, is_moved = connection, connection is new
            if is_moved:
                self._metrics.moves += 1
                self._moved_at_s = asyncio.get_running_loop().time()
                self._log.info(
                    "moved", "moved from a NATS server that is leaving to another one", before=str(self._server)
                )
                self._use(connection, changeover.info, server)

        changeover.begin(new, info, {sid: wish[:2] for sid, wish in self._subscriptions.items()}, over)
        self._connection = changeover
        await changeover.run()
        return is_moved

    # --- subscriptions and messages -----------------------------------------------------------------------------

    def subscribe(
        self, subject: str, queue: str | None, receive: Receive, refused: Callable[[str], None] = lambda why: None
    ) -> int:
        """Subscribe to a subject, now and after each reconnection. Returns the number with which to end it. `refused`
        is told where the server does not allow it."""
        sid = self._last_sid = self._last_sid + 1
        self._subscriptions[sid] = _Subscription(subject, queue, receive, refused)
        self._metrics.subscriptions = len(self._subscriptions)
        if self._connection is not None:
            self._connection.subscribe(sid, subject, queue)
        return sid

    def unsubscribe(self, sids: Iterable[int]) -> asyncio.Future[None]:
        """Take no more of these. What is on its way still comes; done once nothing does, or with ConnectionLostError
        where the connection went down before, which ends it too."""
        ending = []
        for sid in sids:
            wish = self._subscriptions.pop(sid)
            if self._connection is not None:
                ending.append(sid)
                self._ending[sid] = wish.receive
                self._connection.unsubscribe(sid)
        self._metrics.subscriptions = len(self._subscriptions)
        trip = self.round_trip()
        trip.add_done_callback(lambda _: self._ended(ending))
        return trip

    def _ended(self, sids: Iterable[int]) -> None:
        for sid in sids:
            self._ending.pop(sid, None)

    async def ended(self) -> None:
        """Return once nothing comes any more of the subscriptions that were ended."""
        with contextlib.suppress(ConnectionLostError):
            await self.round_trip()

    def send(self, said: bytes) -> bool:
        """Send what `commands` has encoded; False if there is no connection."""
        if self._connection is None:
            return False
        self._connection.send(said)
        return True

    def round_trip(self, at_once: Callable[[], None] | None = None) -> asyncio.Future[None]:
        """Done once the server has handled what was said so far, and what it sent before was received. `at_once` is
        called then, before anything that came later is handed over."""
        if self._connection is None:
            down: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            down.set_exception(ConnectionLostError("there is no connection to NATS"))
            down.exception()  # nobody needs to be waiting
            return down
        return self._connection.round_trip(at_once)

    def hold(self, why: str) -> None:
        """Do not read for a moment."""
        if self._connection is not None:
            self._connection.hold(why)

    def release(self, why: str) -> None:
        """Read on. Idempotent."""
        if self._connection is not None:
            self._connection.release(why)

    # --- the connection (ConnectionUser) ------------------------------------------------------------------------

    def delivered(self, run: Run) -> None:
        if not isinstance(run, list):
            self._hand_over(run.sid, run)
            return
        if len(run) == 1:
            self._hand_over(run[0].sid, run)
            return
        for sid, group in groupby(run, _SID_OF):
            self._hand_over(sid, list(group))

    def _hand_over(self, sid: int, run: Run) -> None:
        wish = self._subscriptions.get(sid)
        receive = wish.receive if wish is not None else self._ending.get(sid)
        if receive is not None:
            receive(run)

    def told(self, info: Mapping[str, Any]) -> None:
        self._is_clustered = bool(info.get("cluster"))
        urls = info.get("connect_urls")
        if isinstance(urls, list):
            assert self._server is not None
            self._servers.told([url for url in urls if isinstance(url, str)], self._server)
        self._is_leaving = bool(info.get("ldm"))
        if self._is_leaving and (self._mover is None or self._mover.done()):
            self._log.info("leaving", "a NATS server is leaving its cluster", server=str(self._server))
            self._mover = asyncio.create_task(self._move())

    def refused(self, text: str) -> None:
        self._metrics.errors[_kind(text)] += 1
        self._log.warning(f"-ERR {_kind(text)}", "NATS reported an error", why=text)
        if "subscription" in text.lower():
            named = [wish for wish in self._subscriptions.values() if f'"{wish.subject}"' in text]
            for wish in named:
                wish.refused(text)
            if not named:  # such as "maximum subscriptions exceeded"
                self.on_refused(text)

    def paused(self) -> None:
        self._metrics.reading_pauses += 1

    def lost(self, reason: str) -> None:
        self._connection = None
        self._is_leaving = False
        self.up.clear()
        self._metrics.connected = 0
        if self._lost is not None and not self._lost.done():
            # At once: who waited for a round trip goes on next, and has to know that messages may be missing.
            self._note_lost(reason)
            self._lost.set_result(None)


def _kind(text: str) -> str:
    """What an error is about: servers put subjects and names behind that, which no metric should have."""
    lowered = text.lower()
    for kind in (
        "slow consumer",
        "stale connection",
        "authorization",
        "authentication",
        "permissions",
        "maximum payload",
        "maximum connections",
        "maximum subscriptions",
        "closed by the server",
        "does not answer",
        "no frame",
        "broken",
        "stopping",
    ):
        if kind in lowered:
            return kind
    return "other"
