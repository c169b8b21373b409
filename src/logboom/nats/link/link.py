"""The connection to NATS that is kept up, and the subscriptions on it.

    DOWN      no connection; the next attempt comes after a pause that doubles, with some chance in it
    DIALLING  connecting and logging in, to the next server of the pool
    UP        subscriptions are in force, what is published goes out

Subscriptions are wishes: they are made anew on each connection. What is published while none is up is lost, as it
would be on the way: NATS keeps nothing.
"""

import asyncio
import contextlib
import importlib.metadata
import ssl
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from logboom.base.errors import LogboomError
from logboom.base.ports import Ids
from logboom.broker.rate_limited_log import RateLimitedLog
from logboom.nats.config import NatsConfig
from logboom.nats.link import commands
from logboom.nats.link.connection import Connection, ConnectionLostError
from logboom.nats.link.credentials import Credentials
from logboom.nats.link.frames import Run
from logboom.nats.link.servers import ServerAddress, ServerPool, tls_context
from logboom.nats.metrics import NatsMetrics

PAUSE_MIN_S: Final = 0.05
_JITTER_STEPS: Final = 1_000
_SID_OF: Final = attrgetter("sid")

Receive = Callable[[Run], None]
"""Takes messages of one subscription, in the order in which the server sent them."""


class _Subscription(NamedTuple):
    """A wish, made anew on each connection."""

    subject: str
    queue: str | None
    receive: Receive
    refused: Callable[[str], None]


class Link:
    """See the module. Life: `start`, `stop`, once each, on one loop. A `connection.ConnectionUser`."""

    def __init__(self, config: NatsConfig, name: str, *, ids: Ids, log: RateLimitedLog, metrics: NatsMetrics) -> None:
        """`name`: what servers know this client by. Raises LogboomError where a file of a secret cannot be used."""
        self._config = config
        self._name = name
        self._ids = ids
        self._log = log
        self._metrics = metrics
        self._credentials = Credentials(config)
        self._credentials.check()
        self._servers = ServerPool(config.servers)
        self._tls: ssl.SSLContext | None = tls_context(config.tls) if config.tls.wanted else None
        self._version = importlib.metadata.version("logboom")
        self._connection: Connection | None = None
        self.up = asyncio.Event()
        """Set while a server takes what is said."""
        self._lost: asyncio.Future[str] | None = None
        self._subscriptions: dict[int, _Subscription] = {}
        self._ending: dict[int, Receive] = {}
        self._last_sid = 0
        self._keeper: asyncio.Task[None] | None = None
        self._is_clustered = False
        self.on_up: Callable[[], None] = lambda: None
        """Called whenever a connection is up, after its subscriptions were asked for."""
        self.on_lost: Callable[[str, str], None] = lambda kind, why: None
        """Called whenever a connection that was up is lost: the kind of reason, a word of metrics, and what was the
        matter."""

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect; goes on without a connection."""
        self._keeper = asyncio.create_task(self._keep_up())

    async def stop(self) -> None:
        """Say no more. Idempotent."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._connection is not None:
            self._connection.end("this broker is stopping")

    @property
    def is_up(self) -> bool:
        """Whether a server takes what is said."""
        return self.up.is_set()

    @property
    def is_clustered(self) -> bool:
        """Whether the server has said that it is one of several: what one has acted upon, others may not yet."""
        return self._is_clustered

    async def _keep_up(self) -> None:
        pause_s = PAUSE_MIN_S
        while True:
            server = self._servers.next()
            reason = await self._dial(server)
            if reason is None:
                pause_s = PAUSE_MIN_S
                assert self._lost is not None
                reason = await self._lost
                self._metrics.disconnects[_kind(reason)] += 1
                self.on_lost(_kind(reason), reason)
                self._log.warning("lost", "the connection to NATS was lost", server=str(server), why=reason)
            else:
                self._metrics.failed_connections += 1
                self._log.warning(f"dial {server}", "NATS cannot be reached", server=str(server), why=reason)
            await asyncio.sleep(pause_s * (0.5 + self._ids.below(_JITTER_STEPS) / (2 * _JITTER_STEPS)))
            pause_s = min(2 * pause_s, self._config.reconnect_pause_max_s)

    async def _dial(self, server: ServerAddress) -> str | None:
        """Connect and log in; why that failed, if it did."""
        connection = self._new_connection()
        try:
            async with asyncio.timeout(self._config.connect_timeout_s):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: connection, server.host, server.port)
                info = await connection.log_in(self._options, await self._tls_for(server, connection), server.host)
        except TimeoutError:
            reason = "it does not answer"
        except ssl.SSLError as error:
            reason = f"TLS failed: {error.reason or error}"
        except OSError as error:
            reason = error.strerror or str(error)
        except LogboomError as error:
            reason = str(error)
        else:
            self._is_up_now(connection, info, server)
            return None
        finally:
            if self._connection is not connection:
                connection.abort("the attempt to connect has ended")
        return reason

    def _new_connection(self) -> Connection:
        return Connection(
            self, max_unsent_bytes=self._config.max_unsent_bytes, ping_interval_s=self._config.ping_interval_s
        )

    async def _tls_for(self, server: ServerAddress, connection: Connection) -> ssl.SSLContext | None:
        info = await connection.greeting()
        if self._tls is None and (server.tls or info.get("tls_required")):
            self._tls = tls_context(self._config.tls)
        wanted = server.tls or self._config.tls.wanted or bool(info.get("tls_required"))
        if wanted and not (info.get("tls_required") or info.get("tls_available")):
            raise ConnectionLostError("TLS is asked for by the settings, and the server does not speak it")
        return self._tls if wanted else None

    def _options(self, info: Mapping[str, Any]) -> Mapping[str, object]:
        nonce = info.get("nonce")
        return {
            "verbose": False,
            "pedantic": False,
            "lang": "python",
            "version": self._version,
            "name": self._name,
            "protocol": 1,
            "headers": True,
            "no_responders": True,
            "echo": False,  # a stream on every subject is not to hold the acks of its own messages
            **self._credentials.options(nonce if isinstance(nonce, str) else None),
        }

    def _is_up_now(self, connection: Connection, info: Mapping[str, Any], server: ServerAddress) -> None:
        self._connection = connection
        self.up.set()
        self._lost = asyncio.get_running_loop().create_future()
        self._servers.stay()
        self._metrics.connections += 1
        self._metrics.connected = 1
        self.told(info)
        for sid, wish in self._subscriptions.items():
            connection.send(commands.subscribe(sid, wish.subject, wish.queue))
        self._log.info("up", "connected to NATS", server=str(server), version=info.get("version"))
        self.on_up()

    # --- subscriptions and messages -----------------------------------------------------------------------------

    def subscribe(
        self, subject: str, queue: str | None, receive: Receive, refused: Callable[[str], None] = lambda why: None
    ) -> int:
        """Take the messages of a subject from now on, and after each reconnection; the number to end it with.
        `refused` is told where the server does not allow it."""
        sid = self._last_sid = self._last_sid + 1
        self._subscriptions[sid] = _Subscription(subject, queue, receive, refused)
        self._metrics.subscriptions = len(self._subscriptions)
        if self._connection is not None:
            self._connection.send(commands.subscribe(sid, subject, queue))
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
                self._connection.send(commands.unsubscribe(sid))
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
        """Send what `commands` has made; False where there is no connection to send it on."""
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
            self._servers.told([url for url in urls if isinstance(url, str)])

    def refused(self, text: str) -> None:
        self._metrics.errors[_kind(text)] += 1
        self._log.warning(f"-ERR {_kind(text)}", "NATS has refused something", why=text)
        for wish in self._subscriptions.values():
            if f'"{wish.subject}"' in text and "subscription" in text.lower():
                wish.refused(text)

    def paused(self) -> None:
        self._metrics.reading_pauses += 1

    def lost(self, reason: str) -> None:
        self._connection = None
        self.up.clear()
        self._metrics.connected = 0
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(reason)


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
        "closed by the server",
        "does not answer",
        "no frame",
        "broken",
        "stopping",
    ):
        if kind in lowered:
            return kind
    return "other"
