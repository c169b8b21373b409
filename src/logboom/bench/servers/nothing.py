"""A relay without a log: a latency run against it shows the latency of the client alone.

Takes batches into a list and gives them back to one reader of each stream, without a check, a file or a flush. Knows as
much of the protocol as librdkafka and the reader of a latency run need, in versions whose fields stand at known places.
"""

import asyncio
import struct
import sys
from pathlib import Path

import uvloop

from logboom.bench.servers.probe import kafka_answers
from logboom.bench.servers.process import Server
from logboom.host import keep_buffers

_PRODUCE, _FETCH, _METADATA, _API_VERSIONS, _INIT_PRODUCER_ID = 0, 1, 3, 18, 22
_VERSIONS = {_PRODUCE: 3, _FETCH: 4, _METADATA: 1, _API_VERSIONS: 0, _INIT_PRODUCER_ID: 0}
_UNSUPPORTED_VERSION = 35
_FETCH_BYTES = 1024 * 1024


class NothingServer(Server):
    """`python -m logboom.bench.servers.nothing PORT`. Streams exist as soon as a request names them."""

    name = "nothing"

    @property
    def data(self) -> Path:
        return self.directory

    def version(self) -> str:
        return "hands on what comes, in Python"

    def settings(self) -> dict[str, object]:
        return {}

    def prepare(self) -> None:
        return

    def command(self) -> list[str]:
        return [sys.executable, "-m", "logboom.bench.servers.nothing", str(self.port)]

    def answers(self) -> bool:
        return kafka_answers(self.port)


async def _serve(port: int) -> None:
    logs: dict[bytes, _Log] = {}
    server = await asyncio.get_running_loop().create_server(lambda: _Link(logs, port), "127.0.0.1", port)
    await server.serve_forever()


class _Log:
    """Batches by the offset they begin at, and the one fetch that waits for the next."""

    def __init__(self) -> None:
        self.end = 0
        self._batches: dict[int, bytearray] = {}
        self._waiting: tuple[int, _Link, bytes] | None = None

    def append(self, batch: memoryview) -> int:
        (count,) = struct.unpack_from(">i", batch, 57)
        base, kept = self.end, bytearray(batch)
        struct.pack_into(">q", kept, 0, base)
        self._batches[base] = kept
        self.end += count
        if self._waiting is not None:
            offset, link, head = self._waiting
            self._waiting = None
            self.fetch(offset, link, head)
        return base

    def fetch(self, offset: int, link: "_Link", head: bytes) -> None:
        found, size = [], 0
        while size < _FETCH_BYTES and (batch := self._batches.pop(offset, None)) is not None:
            found.append(batch)
            size += len(batch)
            offset += int(struct.unpack_from(">i", batch, 57)[0])
        if found:
            link.answer(head, struct.pack(">hqqii", 0, self.end, self.end, 0, size), *found)
        else:
            self._waiting = (offset, link, head)


class _Link(asyncio.Protocol):
    def __init__(self, logs: dict[bytes, _Log], port: int) -> None:
        self._logs, self._port = logs, port
        self._rest = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._rest += data
        at = 0
        while len(self._rest) - at >= 4:
            (size,) = struct.unpack_from(">i", self._rest, at)
            if len(self._rest) - at - 4 < size:
                break
            self._request(memoryview(bytes(self._rest[at + 4 : at + 4 + size])))
            at += 4 + size
        del self._rest[:at]

    def _log(self, name: bytes) -> _Log:
        return self._logs.setdefault(name, _Log())

    def answer(self, *parts: bytes | bytearray) -> None:
        size = sum(len(part) for part in parts)
        self._transport.write(b"".join((struct.pack(">i", size), *parts)))

    def _request(self, frame: memoryview) -> None:
        key, version, correlation, client = struct.unpack_from(">hhih", frame)
        head, body = struct.pack(">i", correlation), frame[10 + max(client, 0) :]
        if key == _PRODUCE:
            self._produce(head, body)
        elif key == _FETCH:
            (offset,) = struct.unpack_from(">q", body, len(body) - 12)
            name, _ = _name(body, 21)
            self._log(name).fetch(offset, self, head + struct.pack(">ii", 0, 1) + name + struct.pack(">ii", 1, 0))
        elif key == _METADATA:
            self._metadata(head, body)
        elif key == _INIT_PRODUCER_ID:
            self.answer(head, struct.pack(">ihqh", 0, 0, 1, 0))  # one idempotent producer, with id 1 and epoch 0
        else:
            code = 0 if version == _VERSIONS[_API_VERSIONS] else _UNSUPPORTED_VERSION
            listed = b"".join(
                struct.pack(">hhh", api, 0 if api == _API_VERSIONS else v, v) for api, v in _VERSIONS.items()
            )
            self.answer(head, struct.pack(">hi", code, len(_VERSIONS)), listed)

    def _produce(self, head: bytes, body: memoryview) -> None:
        (transaction,) = struct.unpack_from(">h", body)
        name, at = _name(body, 2 + max(transaction, 0) + 2 + 4 + 4)
        (size,) = struct.unpack_from(">i", body, at + 8)
        base = self._log(name).append(body[at + 12 : at + 12 + size])
        response = struct.pack(">iihqqi", 1, 0, 0, base, -1, 0)
        self.answer(head, struct.pack(">i", 1), name, response)

    def _metadata(self, head: bytes, body: memoryview) -> None:
        (count,) = struct.unpack_from(">i", body)
        at, topics = 4, b""
        for _ in range(count):
            name, at = _name(body, at)
            topics += struct.pack(">h", 0) + name + struct.pack(">bihiiiiii", 0, 1, 0, 0, 0, 1, 0, 1, 0)
        host = b"127.0.0.1"
        broker = struct.pack(">iih", 1, 0, len(host)) + host + struct.pack(">ihi", self._port, -1, 0)
        self.answer(head, broker, struct.pack(">i", max(count, 0)), topics)


def _name(body: memoryview, at: int) -> tuple[bytes, int]:
    """A string as it stands, its length included, and where it ends."""
    end = at + 2 + int(struct.unpack_from(">h", body, at)[0])
    return bytes(body[at:end]), end


if __name__ == "__main__":
    keep_buffers()
    uvloop.run(_serve(int(sys.argv[1])))
