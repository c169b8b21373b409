"""Publishers on NATS: of messages that nobody answers, with acks, with ids and retries, with expected sequences.

Each is a process of its own, publishes one message at a time on a connection that is made anew when it breaks, and
writes down what it was told. What must hold is what holds for any producer (`history`), and:

- a message is stored once at most, however it was published, and those of one publisher in their order; where servers
  are several, those of one connection, since messages to two servers may overtake each other, and one without an id may
  be stored twice that was long on its way between servers (`History.may_repeat`), or behind later ones where a server
  had no route to another one (`History.may_stray`). Streams that share their subjects as a group keep no order, and one
  of them may store what was published again with its id, and is with another one;
- one that was acked is there, at the sequence that the ack says; one with an id is published until it is acked;
- one that expected another last sequence is never there, and one that was taken lies right behind what it expected;
- every refusal is one that passes, or the answer to an expectation; what was refused, and not published again, is not
  there.

Written on the wire protocol itself (https://docs.nats.io/reference/reference-protocols/nats-protocol) and the answers
of JetStream, with nothing of the broker's code.
"""

import asyncio
import contextlib
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from logboom.sim.coverage import NATS_ACKS, NATS_DUPLICATES, NATS_EXPECTATIONS, NATS_SHARED
from logboom.sim.nats_attached import Destination
from logboom.sim.session import ClientContext

KINDS: Final = ("plain", "acked", "id", "expected")
"""How publishers publish."""
SHARED_KINDS: Final = KINDS[:3]
"""How they publish to streams that share their subjects, where nobody knows whose sequence to expect."""
_SUBJECTS: Final = 4
_PAUSE_MAX_S: Final = 0.1
_ANSWER_S: Final = 1.0
_PAUSE_AFTER_ERROR_S: Final = 0.05
_PADDING_MAX_BYTES: Final = 2_000
_WRONG_SEQUENCE: Final = 10071
_PASSING: Final = frozenset((10008, 10023, 10047, 10059, 10077))
"""Errors of JetStream that say to try again."""
_LAST_SEQUENCE: Final = re.compile(r"wrong last sequence: (\d+)")


def values_of(payloads: Iterable[bytes]) -> list[int]:
    """The records that publishers of runs have made, of payloads of all kinds."""
    return [int(payload) for payload in payloads if payload.strip().isdigit()]


class NatsPublisher:
    """Life: a phase of the run."""

    def __init__(
        self,
        context: ClientContext,
        to: Destination,
        values: Iterator[int],
        kind: str,
        met: Any,
        *,
        is_cluster: bool = False,
    ) -> None:
        """`context.addresses` are those of the servers, at each moment."""
        self._context = context
        self._to = to
        self._values = values
        self._kind = kind
        self._met = met
        self._is_cluster = is_cluster
        self._connection: _Connection | None = None
        self._connections = 0
        self._sequences: dict[bytes, int] = {}
        """By subject, the last sequence of its partition as far as is known."""

    async def run(self) -> None:
        """Publish until the phase ends."""
        context = self._context
        while context.phase.producing:
            subject = f"{self._to.first_token}.{context.chance.randrange(_SUBJECTS)}".encode()
            value = next(self._values)
            await self._publish(subject, value)
            await asyncio.sleep(context.chance.uniform(0, _PAUSE_MAX_S * context.stretch))
        if self._connection is not None:
            self._connection.close()

    async def _publish(self, subject: bytes, value: int) -> None:
        context = self._context
        places = self._to.places(subject)
        payload = b"%d" % value + b" " * context.chance.randrange(_PADDING_MAX_BYTES)
        while True:
            try:
                connection = await self._connected()
                if self._to.is_group and value in context.history.sent:
                    context.history.may_repeat.add(value)
                context.history.send_to_one_of(self._sender(value), places, [value])
                if self._kind == "plain":
                    connection.publish(subject, payload, {})
                    return
                answer = await connection.request(subject, payload, self._headers(subject, value))
            except OSError:
                await self._failed()
            except TimeoutError:
                pass  # the ack is lost, or the message; the connection may be fine
            else:
                if self._told(subject, value, answer):
                    return
                await asyncio.sleep(_PAUSE_AFTER_ERROR_S)
            if self._kind != "id":
                return

    def _sender(self, value: int) -> str:
        """What is in order: all messages of a publisher, or those of a connection, or one alone."""
        if self._to.is_group:
            return f"{self._context.name}/{value}"
        if self._kind == "id" or not self._is_cluster:
            return self._context.name
        return f"{self._context.name}/{self._connections}"

    def _headers(self, subject: bytes, value: int) -> dict[str, str]:
        match self._kind:
            case "id":
                return {"Nats-Msg-Id": f"id-{value}"}
            case "expected":
                return {"Nats-Expected-Last-Sequence": str(self._sequences.get(subject, 0))}
        return {}

    # --- answers ---------------------------------------------------------------------------------------------------

    def _told(self, subject: bytes, value: int, answer: Mapping[str, Any] | None) -> bool:
        """What an answer says; whether the message is done with. None: nobody was subscribed."""
        context = self._context
        if answer is None:
            return False
        error = answer.get("error")
        if error is None:
            self._acked(subject, value, answer)
            return True
        code, says = error["err_code"], error["description"]
        if code == _WRONG_SEQUENCE and self._kind == "expected":
            found = _LAST_SEQUENCE.fullmatch(says)
            assert found is not None, f"an answer that says no sequence: {says}"
            self._sequences[subject] = int(found[1])
            self._met[NATS_EXPECTATIONS] += 1
            context.history.refuse([value])
            return True
        if code not in _PASSING:
            context.history.violated(f"{context.name} was refused on NATS: {code} {says}")
        if self._kind != "id":
            context.history.refuse([value])
        return False

    def _acked(self, subject: bytes, value: int, answer: Mapping[str, Any]) -> None:
        context, sequence = self._context, answer["seq"]
        self._met[NATS_ACKS] += 1
        self._met[NATS_SHARED] += self._to.is_group
        places = [where for where in self._to.places(subject) if where.stream == answer["stream"]]
        if not places:
            context.history.violated(f"{value} of {context.name} was acked by {answer['stream']}")
            return
        context.history.acknowledge_in_one_of(places, sequence - 1, value)
        if answer.get("duplicate"):
            self._met[NATS_DUPLICATES] += 1
            if self._kind != "id":
                context.history.violated(f"{context.name} was told that {value}, which has no id, is a duplicate")
        if self._kind == "expected":
            expected = self._sequences.get(subject, 0)
            if sequence != expected + 1:
                context.history.violated(f"{value} of {context.name} lies at {sequence}, and expected {expected}")
            self._sequences[subject] = sequence

    # --- the connection --------------------------------------------------------------------------------------------

    async def _connected(self) -> "_Connection":
        """Raises OSError."""
        context = self._context
        if self._connection is not None and self._connection.is_leaving:
            await self._leave(self._connection)
        if self._connection is None:
            self._connections += 1
            inbox = f"_INBOX.{context.name}-{self._connections}"
            try:
                async with asyncio.timeout(_ANSWER_S):
                    address = context.chance.choice(context.addresses)
                    self._connection = await _Connection.connect(address, inbox)
            except TimeoutError as error:
                raise ConnectionError("no connection in time") from error
        if self._connection.is_lost:
            raise ConnectionResetError("the connection to the server is lost")
        return self._connection

    async def _leave(self, connection: "_Connection") -> None:
        """The server leaves its cluster: go to another one once it has all that was published here."""
        self._connection = None
        with contextlib.suppress(OSError, TimeoutError):
            await connection.round_trip()
        connection.close()

    async def _failed(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        await asyncio.sleep(_PAUSE_AFTER_ERROR_S)


class _Connection:
    """A connection of a client. Life: `connect`, until `close`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, inbox: str) -> None:
        self._reader = reader
        self._writer = writer
        self._inbox = inbox
        self._requests = 0
        self.is_leaving = False
        """Whether the server has said that it is leaving its cluster, of which others are known."""
        self._pongs: deque[asyncio.Future[None]] = deque()
        self._waiting: dict[bytes, asyncio.Future[Mapping[str, Any] | None]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, address: tuple[str, int], inbox: str) -> "_Connection":
        """`inbox`: what subjects of answers begin with, used by no other connection. Raises OSError."""
        reader, writer = await asyncio.open_connection(*address)
        await reader.readline()  # INFO
        options = {"verbose": False, "headers": True, "no_responders": True, "protocol": 1}
        writer.write(f"CONNECT {json.dumps(options)}\r\nSUB {inbox}.* 1\r\n".encode())
        return cls(reader, writer, inbox)

    @property
    def is_lost(self) -> bool:
        """Whether the server is gone."""
        return self._reading.done()

    def close(self) -> None:
        """Hang up."""
        self._reading.cancel()
        self._writer.close()

    async def round_trip(self) -> None:
        """Return once the server has all that was published. Raises TimeoutError, and ConnectionError."""
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_lost:
            raise ConnectionResetError("the connection to the server is lost")
        self._pongs.append(pong)
        self._writer.write(b"PING\r\n")
        async with asyncio.timeout(_ANSWER_S):
            await pong

    def publish(self, subject: bytes, payload: bytes, headers: Mapping[str, str], reply: bytes = b"") -> None:
        """Publish a message; nobody says whether anybody got it."""
        words = b" ".join([subject, reply]) if reply else subject
        if headers:
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            block = f"NATS/1.0\r\n{lines}\r\n".encode()
            size = len(block) + len(payload)
            self._writer.write(b"HPUB %b %d %d\r\n%b%b\r\n" % (words, len(block), size, block, payload))
        else:
            self._writer.write(b"PUB %b %d\r\n%b\r\n" % (words, len(payload), payload))

    async def request(self, subject: bytes, payload: bytes, headers: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Publish a message and wait for its first answer; None where nobody was subscribed.

        Raises TimeoutError, and ConnectionError where the connection is lost.
        """
        self._requests += 1
        reply = f"{self._inbox}.{self._requests}".encode()
        answer: asyncio.Future[Mapping[str, Any] | None] = asyncio.get_running_loop().create_future()
        self._waiting[reply] = answer
        self.publish(subject, payload, headers, reply)
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await answer
        finally:
            del self._waiting[reply]

    async def _read(self) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while line := await self._reader.readline():
                words = line.split()
                if words[0] in (b"MSG", b"HMSG"):
                    body = await self._reader.readexactly(int(words[-1]) + 2)
                    self._answered(words[1], None if words[0] == b"HMSG" else json.loads(body))
                elif words[0] == b"INFO":
                    self._told(json.loads(line.removeprefix(b"INFO ")))
                elif words[0] == b"PONG" and self._pongs:
                    _answered(self._pongs.popleft(), None)
        waiting: list[asyncio.Future[Any]] = [*self._waiting.values(), *self._pongs]
        for answer in waiting:
            if not answer.done():
                answer.set_exception(ConnectionResetError("the connection to the server is lost"))

    def _told(self, info: Mapping[str, Any]) -> None:
        self.is_leaving = self.is_leaving or bool(info.get("ldm") and info.get("connect_urls"))

    def _answered(self, reply: bytes, answer: Mapping[str, Any] | None) -> None:
        waiting = self._waiting.get(reply)
        if waiting is not None:
            _answered(waiting, answer)


def _answered(waiting: "asyncio.Future[Any]", answer: Any) -> None:
    if not waiting.done():
        waiting.set_result(answer)
