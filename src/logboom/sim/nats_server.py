"""A simulated nats-server: the wire protocol of the real one, and the ways in which it loses messages.

It keeps nothing. What it has been sent goes to those who are subscribed at that moment, in the order of each publisher,
and waits for a reader in memory: one who leaves too much unread is cut off as a slow consumer and loses all of it. Its
process can be killed and started anew; its connections can break like all others. Written against
https://docs.nats.io/reference/reference-protocols/nats-protocol, with nothing of Logboom's own reader, so that the
broker is not checked with itself.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, Final, cast

from logboom.base.units import KIB
from logboom.sim.coverage import NATS_NO_RESPONDERS, NATS_SLOW_CONSUMERS
from logboom.sim.process import Process
from logboom.sim.simulation import Simulation

NAME: Final = "nats"
_PORT: Final = 4222
_MAX_PENDING_BYTES: Final = 16 * KIB
"""Far less than a real one keeps (64 MiB), so that a broker that stands still for seconds is cut off."""
_MAX_PAYLOAD_BYTES: Final = 1 << 20
_END: Final = b"\r\n"
_NOBODY: Final = b"NATS/1.0 503\r\n\r\n"


class SimNatsServer:
    """Life: made; `start`, then `kill`, any number of times."""

    def __init__(self, simulation: Simulation) -> None:
        self.address = (NAME, _PORT)
        self.url = f"nats://{NAME}:{_PORT}"
        self._simulation = simulation
        self._process: Process | None = None
        self._clients: list[_Client] = []
        self._lives = 0

    async def start(self) -> None:
        """A new process, which knows nobody; returns when it listens."""
        process = self._process = self._simulation.process(NAME)
        self._lives += 1
        self._clients = []
        exchange = Exchange(self._clients, self._simulation.fork(f"{NAME}/{self._lives}"), self._simulation)
        await process.run(_listen(exchange))

    def kill(self) -> None:
        """End the process, and with it all that waited in it."""
        assert self._process is not None
        self._process.kill()

    def cut_off(self, machine: str) -> None:
        """Cut off the clients of a machine, as slow consumers: what waits for them is lost."""
        for client in tuple(self._clients):
            if client.host == machine:
                client.cut_off()


async def _listen(exchange: "Exchange") -> None:
    await asyncio.get_running_loop().create_server(partial(_Client, exchange), *(NAME, _PORT))


class Exchange:
    """Who is connected to one life of the server, and who gets what. Life: that of its process."""

    def __init__(self, clients: "list[_Client]", chance: Random, simulation: Simulation) -> None:
        """`clients`: those that are connected, the oldest first; kept by this."""
        self.clients = clients
        self.met = simulation.trace.met
        self._chance = chance

    def publish(self, sender: "_Client", subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Hand a message to all who want it; of each queue to one of its members."""
        queues: dict[bytes, list[tuple[_Client, bytes]]] = {}
        found = False
        for client in tuple(self.clients):
            if client is sender and not client.echo:
                continue
            for sid, queue in client.wanting(subject):
                found = True
                if queue is None:
                    client.deliver(subject, sid, reply, header, payload)
                else:
                    queues.setdefault(queue, []).append((client, sid))
        for members in queues.values():
            client, sid = self._chance.choice(members)
            client.deliver(subject, sid, reply, header, payload)
        if not found and reply and sender.no_responders:
            self.met[NATS_NO_RESPONDERS] += 1
            for sid, _ in sender.wanting(reply):
                sender.deliver(reply, sid, b"", _NOBODY, b"")


class _Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, exchange: Exchange) -> None:
        self.echo = True
        self.no_responders = False
        self.host = ""
        self._exchange = exchange
        self._received = bytearray()
        self._wants: dict[bytes, tuple[list[bytes], bytes | None]] = {}
        """By number, the tokens of the subject, and the queue."""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.host = transport.get_extra_info("peername")[0]
        self._exchange.clients.append(self)
        info = {"server_id": "SIM", "version": "2.10.0", "headers": True, "max_payload": _MAX_PAYLOAD_BYTES}
        self._say(b"INFO %b" % json.dumps(info).encode())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self in self._exchange.clients:
            self._exchange.clients.remove(self)

    def cut_off(self) -> None:
        """Forget what waits for it, and close."""
        self._exchange.met[NATS_SLOW_CONSUMERS] += 1
        if self in self._exchange.clients:
            self._exchange.clients.remove(self)
        if self._transport is not None:
            self._transport.abort()

    # --- what it wants, and gets -----------------------------------------------------------------------------------

    def wanting(self, subject: bytes) -> list[tuple[bytes, bytes | None]]:
        """Number and queue of each subscription that takes a subject."""
        tokens = subject.split(b".")
        return [(sid, queue) for sid, (pattern, queue) in self._wants.items() if matches(pattern, tokens)]

    def deliver(self, subject: bytes, sid: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Send it a message; it is cut off where too much waits for it."""
        words = [subject, sid, *([reply] if reply else [])]
        size = len(header) + len(payload)
        if header:
            self._say(b"HMSG %b %d %d\r\n%b%b" % (b" ".join(words), len(header), size, header, payload))
        else:
            self._say(b"MSG %b %d\r\n%b" % (b" ".join(words), size, payload))
        if self._transport is not None and self._transport.get_write_buffer_size() > _MAX_PENDING_BYTES:
            self.cut_off()

    def _say(self, line: bytes) -> None:
        if self._transport is not None:
            self._transport.write(line + _END)

    # --- what it says ----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._received += data
        for words, body in self._taken():
            self._do(words, body)

    def _taken(self) -> Iterator[tuple[Sequence[bytes], bytes]]:
        """Whole commands: their words, and what follows the line."""
        while (upto := self._received.find(_END)) >= 0:
            line = bytes(self._received[:upto])
            words = line.split(b" ", 1) if line.upper().startswith(b"CONNECT") else line.split()
            begin, size = upto + len(_END), 0
            if words[0] in (b"PUB", b"HPUB"):
                size = int(words[-1])
                if len(self._received) < begin + size + len(_END):
                    return
            body = bytes(self._received[begin : begin + size])
            del self._received[: begin + (size + len(_END) if words[0] in (b"PUB", b"HPUB") else 0)]
            yield words, body

    def _do(self, words: Sequence[bytes], body: bytes) -> None:
        match [words[0], *words[1:]]:
            case [b"CONNECT", options]:
                asked: dict[str, Any] = json.loads(options)
                self.echo = asked.get("echo", True)
                self.no_responders = bool(asked.get("no_responders") and asked.get("headers"))
            case [b"PING"]:
                self._say(b"PONG")
            case [b"SUB", subject, *queue, sid]:
                self._wants[sid] = subject.split(b"."), queue[0] if queue else None
            case [b"UNSUB", sid]:
                self._wants.pop(sid, None)
            case [b"PUB", subject, *reply, _]:
                self._exchange.publish(self, subject, b"".join(reply), b"", body)
            case [b"HPUB", subject, *reply, header_size, _]:
                upto = int(header_size)
                self._exchange.publish(self, subject, b"".join(reply), body[:upto], body[upto:])
            case _:
                self._say(b"-ERR 'Unknown Protocol Operation'")


def matches(pattern: Sequence[bytes], tokens: Sequence[bytes]) -> bool:
    """Whether a subscription to a pattern takes a subject, both as tokens.

    >>> matches([b"orders", b">"], [b"orders", b"eu", b"41"])
    True
    """
    for place, token in enumerate(pattern):
        if token == b">":
            return len(tokens) > place
        if place >= len(tokens) or token not in (b"*", tokens[place]):
            return False
    return len(tokens) == len(pattern)
