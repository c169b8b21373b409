"""A simulated nats-server: the wire protocol of the real one, and the ways in which it loses messages.

It keeps nothing. What it has been sent goes to those who are subscribed at that moment, here or at another server of
its cluster (`nats_routes`), in the order of each publisher, and waits for a reader in memory: one who leaves too much
unread is cut off as a slow consumer and loses all of it. Its process can be killed, stand still and be started anew; it
can leave its cluster in good order, as in lame duck mode: it takes no more clients, tells those that it has, and ends
their connections later. Written against https://docs.nats.io/reference/reference-protocols/nats-protocol.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final, cast

from logboom.base.units import KIB
from logboom.sim.coverage import NATS_LEFT, NATS_NO_RESPONDERS, NATS_SLOW_CONSUMERS
from logboom.sim.nats_routes import Message, Routes, Unsettled
from logboom.sim.nats_wire import END, NO_QUEUE, CommandReader, matches
from logboom.sim.process import Process
from logboom.sim.simulation import Simulation

CLIENT_PORT: Final = 4222
_MAX_PENDING_BYTES: Final = 16 * KIB
"""Far less than a real one keeps (64 MiB), so that a broker that stands still for seconds is cut off."""
_MAX_PAYLOAD_BYTES: Final = 1 << 20
_NOBODY: Final = b"NATS/1.0 503\r\n\r\n"
_BETWEEN_ENDS_S: Final = 0.01
"""Between the ends of two connections of a server that leaves."""
_FLUSHED_S: Final = 0.05


class SimNatsServer:
    """Life: made; `start`, then `kill` or `leave`, any number of times."""

    def __init__(self, simulation: Simulation, name: str, unsettled: Unsettled, *, is_clustered: bool = False) -> None:
        """`is_clustered`: whether it is set up as one of several."""
        self.name = name
        self.address = (name, CLIENT_PORT)
        self.url = f"nats://{name}:{CLIENT_PORT}"
        self.running = False
        self._simulation = simulation
        self._unsettled = unsettled
        self._is_clustered = is_clustered
        self._process: Process | None = None
        self._exchange: Exchange | None = None
        self._lives = 0

    async def start(self, dials: Sequence[str] = (), others: Callable[[], Mapping[str, bool]] = dict) -> None:
        """A new process, which knows nobody; returns when it listens.

        `dials`: the servers to which it makes routes, as long as they are members of its cluster; those that join later
        make theirs. `others`: the members at each moment, and whether they run.
        """
        process = self._process = self._simulation.process(self.name)
        self._lives += 1
        self.running = True
        chance = self._simulation.fork(f"{self.name}/{self._lives}")
        exchange = Exchange(f"{self.name}/{self._lives}", self.name, chance, self._simulation, self._unsettled)
        exchange.is_clustered = self._is_clustered
        exchange.others = others
        self._exchange = exchange
        await process.run(exchange.serve(dials))

    def kill(self) -> None:
        """End the process, and with it all that waited in it."""
        assert self._process is not None
        self.running = False
        self._process.kill()

    def pause(self) -> None:
        """Let it stand still, as by SIGSTOP."""
        assert self._process is not None
        self._process.pause()

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.resume()

    async def leave(self, grace_s: float) -> None:
        """Leave the cluster: clients are told, and have so long to go before their connections are ended. The process
        has ended when this returns."""
        assert self._process is not None
        assert self._exchange is not None
        await self._process.run(self._exchange.leave(grace_s))
        self.kill()

    def cut_off(self, machine: str) -> None:
        """Cut off the clients of a machine, as slow consumers: what waits for them is lost."""
        assert self._exchange is not None
        for client in tuple(self._exchange.clients):
            if client.host == machine:
                client.cut_off()

    @property
    def knows(self) -> set[str]:
        """The other servers that have told it what their clients want."""
        return set() if self._exchange is None else self._exchange.routes.known


class Exchange:
    """Who is connected to one life of a server, and who gets what. Life: that of its process."""

    def __init__(self, server_id: str, name: str, chance: Random, simulation: Simulation, unsettled: Unsettled) -> None:
        self.clients: list[_Client] = []
        """Those that are connected, the oldest first."""
        self.is_clustered = False
        self.others: Callable[[], Mapping[str, bool]] = dict
        """The members of the cluster, and whether they run."""
        self.met = simulation.trace.met
        self.routes = Routes(name, simulation.scheduler, unsettled, self._deliver, self._tell_all)
        self._server_id = server_id
        self._name = name
        self._chance = chance
        self._listener: Any = None
        self._dialing: list[asyncio.Task[None]] = []

    async def serve(self, dials: Sequence[str]) -> None:
        """Listen for clients and for other servers, and make routes to these."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(partial(_Client, self), self._name, CLIENT_PORT)
        await self.routes.listen()
        self._dialing = [asyncio.create_task(self.routes.keep_up(peer, self._is_member)) for peer in dials]

    def _is_member(self, name: str) -> bool:
        return name in self.others()

    async def leave(self, grace_s: float) -> None:
        """See `SimNatsServer.leave`."""
        self.met[NATS_LEFT] += 1
        self._listener.close()
        self.routes.leave()
        for client in tuple(self.clients):
            client.say(self.info(says_that_it_leaves=True))  # once: what is told later is without it
        await asyncio.sleep(grace_s if self.clients else 0)
        for client in tuple(self.clients):
            client.close()
            await asyncio.sleep(_BETWEEN_ENDS_S)
        await asyncio.sleep(_FLUSHED_S)

    # --- what it tells of itself --------------------------------------------------------------------------------------

    def info(self, *, says_that_it_leaves: bool = False) -> bytes:
        """What clients are told."""
        peers = self.routes.peers
        told: dict[str, Any] = {
            "server_id": self._server_id,
            "version": "2.10.0",
            "headers": True,
            "max_payload": _MAX_PAYLOAD_BYTES,
        }
        if self.is_clustered:
            names = peers if self.routes.is_leaving else [self._name, *peers]
            told |= {"cluster": "simulated", "connect_urls": [f"{name}:{CLIENT_PORT}" for name in names]}
        if says_that_it_leaves:
            told["ldm"] = True
        return b"INFO %b" % json.dumps(told).encode()

    def _tell_all(self) -> None:
        for client in tuple(self.clients):
            client.say(self.info())

    # --- messages -----------------------------------------------------------------------------------------------------

    def publish(self, sender: "_Client", message: Message) -> None:
        """Hand a message to all who want it; of each queue to one member, and to one here where there is one."""
        self.routes.published(message, [name for name, runs in self.others().items() if runs and name != self._name])
        chosen_here, found = self._to_clients(sender, message)
        remote: dict[bytes, list[Any]] = {}
        wanting = self.routes.wanting(message.subject.split(b"."))
        for route, queues in wanting:
            for queue in queues:
                if queue != NO_QUEUE and queue not in chosen_here:
                    remote.setdefault(queue, []).append(route)
        chosen = {queue: self._chance.choice(routes) for queue, routes in remote.items()}
        now_s = self.routes.scheduler.now_s
        for route, queues in wanting:
            of_queues = [queue for queue, one in chosen.items() if one is route]
            if of_queues or NO_QUEUE in queues:
                route.forward(message, of_queues, now_s)
        if not (found or wanting) and message.reply and sender.no_responders:
            self.met[NATS_NO_RESPONDERS] += 1
            for sid, _ in sender.wanting(message.reply):
                sender.deliver(Message(message.reply, b"", _NOBODY, b""), sid)

    def _to_clients(self, sender: "_Client", message: Message) -> tuple[set[bytes], bool]:
        """The queues of which a member got it, and whether anybody did."""
        queues: dict[bytes, list[tuple[_Client, bytes]]] = {}
        found = False
        for client in tuple(self.clients):
            if client is sender and not client.echo:
                continue
            for sid, queue in client.wanting(message.subject):
                found = True
                if queue == NO_QUEUE:
                    client.deliver(message, sid)
                else:
                    queues.setdefault(queue, []).append((client, sid))
        for members in queues.values():
            client, sid = self._chance.choice(members)
            client.deliver(message, sid)
        return set(queues), found

    def _deliver(self, message: Message, of_queues: Sequence[bytes], sent_s: float) -> None:
        """From another server: to all here who want it, and to one member of each of these queues; where none is left
        here, to a server that has one."""
        members: dict[bytes, list[tuple[_Client, bytes]]] = {}
        for client in tuple(self.clients):
            for sid, queue in client.wanting(message.subject):
                if queue == NO_QUEUE:
                    client.deliver(message, sid)
                elif queue in of_queues:
                    members.setdefault(queue, []).append((client, sid))
        for some in members.values():
            client, sid = self._chance.choice(some)
            client.deliver(message, sid)
        if left := [queue for queue in of_queues if queue not in members]:
            self._hand_on(message, left, sent_s)

    def _hand_on(self, message: Message, of_queues: Sequence[bytes], sent_s: float) -> None:
        wanting = self.routes.wanting(message.subject.split(b"."))
        for queue in of_queues:
            if routes := [route for route, queues in wanting if queue in queues]:
                routes[0].forward(message, [queue], sent_s)


class _Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, exchange: Exchange) -> None:
        self.echo = True
        self.no_responders = False
        self.host = ""
        self._exchange = exchange
        self._reader = CommandReader()
        self._wants: dict[bytes, tuple[bytes, bytes]] = {}
        """By number, the subject and the queue."""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.host = transport.get_extra_info("peername")[0]
        self._exchange.clients.append(self)
        self.say(self._exchange.info())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._forget()

    def _forget(self) -> None:
        if self in self._exchange.clients:
            self._exchange.clients.remove(self)
            for sid in tuple(self._wants):
                self._unsubscribe(sid)

    def close(self) -> None:
        """End the connection, with what was sent."""
        if self._transport is not None:
            self._transport.close()
        self._forget()

    def cut_off(self) -> None:
        """Forget what waits for it, and close."""
        self._exchange.met[NATS_SLOW_CONSUMERS] += 1
        if self._transport is not None:
            self._transport.abort()
        self._forget()

    # --- what it wants, and gets -----------------------------------------------------------------------------------

    def wanting(self, subject: bytes) -> list[tuple[bytes, bytes]]:
        """Number and queue of each subscription that takes a subject."""
        tokens = subject.split(b".")
        return [(sid, queue) for sid, (pattern, queue) in self._wants.items() if matches(pattern.split(b"."), tokens)]

    def _subscribe(self, sid: bytes, pattern: bytes, queue: bytes) -> None:
        self._wants[sid] = pattern, queue
        self._exchange.routes.subscribed(pattern, queue)

    def _unsubscribe(self, sid: bytes) -> None:
        if (known := self._wants.pop(sid, None)) is not None:
            self._exchange.routes.unsubscribed(*known)

    def deliver(self, message: Message, sid: bytes) -> None:
        """Send it a message; it is cut off where too much waits for it."""
        subject, reply, header, payload = message
        words = [subject, sid, *([reply] if reply else [])]
        size = len(header) + len(payload)
        if header:
            self.say(b"HMSG %b %d %d\r\n%b%b" % (b" ".join(words), len(header), size, header, payload))
        else:
            self.say(b"MSG %b %d\r\n%b" % (b" ".join(words), size, payload))
        if self._transport is not None and self._transport.get_write_buffer_size() > _MAX_PENDING_BYTES:
            self.cut_off()

    def say(self, line: bytes) -> None:
        """Send it a line."""
        if self._transport is not None:
            self._transport.write(line + END)

    # --- what it says ----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        for words, body in self._reader.feed(data):
            self._do(words, body)

    def _do(self, words: Sequence[bytes], body: bytes) -> None:
        match [words[0], *words[1:]]:
            case [b"CONNECT", options]:
                asked: dict[str, Any] = json.loads(options)
                self.echo = asked.get("echo", True)
                self.no_responders = bool(asked.get("no_responders") and asked.get("headers"))
            case [b"PING"]:
                self.say(b"PONG")
            case [b"PONG"]:
                pass
            case [b"SUB", subject, *queue, sid]:
                self._subscribe(sid, subject, b"".join(queue))
            case [b"UNSUB", sid]:
                self._unsubscribe(sid)
            case [b"PUB", subject, *reply, _]:
                self._exchange.publish(self, Message(subject, b"".join(reply), b"", body))
            case [b"HPUB", subject, *reply, header_size, _]:
                upto = int(header_size)
                self._exchange.publish(self, Message(subject, b"".join(reply), body[:upto], body[upto:]))
            case _:
                self.say(b"-ERR 'Unknown Protocol Operation'")
