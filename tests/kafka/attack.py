"""What tests of bad input share: batches with something wrong, and a broker that must come out of it unharmed."""

import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from zlib import crc32

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from tests.kafka.door import Client, Running, batch, frame, running, until, written
from tests.kafka.test_hot_apis import fetched, produce_request

from logboom.base.ids import Offset
from logboom.kafka.wire.messages import make, milliseconds, nested
from logboom.metadata import Stream
from logboom.records import Codec, Record, build_batch, compress, iter_batches, iter_records, read_header
from logboom.records.header import pack_header, write_crc
from logboom.records.varint import varint
from logboom.sim.machine import BEGINNING_MS
from logboom.sim.scheduler import START_S

NOW_MS = BEGINNING_MS + int(START_S * 1000)
"""When a simulated broker starts; the past for one on the machine's clock."""
Make = Callable[[], bytes | bytearray | None]


def good(*values: bytes, codec: Codec = Codec.NONE, timestamp_ms: int = NOW_MS, **fields: Any) -> bytearray:
    """A batch as honest clients send it."""
    records = [Record(Offset(n), timestamp_ms, None, value, ()) for n, value in enumerate(values or (b"x", b"y"))]
    return build_batch(records, codec=codec, **fields)


def with_head(**fields: int) -> Make:
    """A good batch whose head says something else, under a right CRC."""

    def make() -> bytearray:
        data = good()
        pack_header(data, 0, read_header(data)._replace(**fields))  # type: ignore[arg-type]
        write_crc(data, 0, len(data))
        return data

    return make


def with_body(plain: bytes, count: int, codec: Codec = Codec.NONE, *, packed: bytes | None = None) -> bytearray:
    """A batch of any body under a right head; `packed` in place of what the codec makes of it."""
    head = good(*[b"v"] * count, codec=codec)[:61]
    data = head + (compress(codec, plain) if packed is None else packed)
    struct.pack_into(">i", data, 8, len(data) - 12)
    write_crc(data, 0, len(data))
    return data


def record(delta: int, value: bytes = b"v") -> bytes:
    """One record with an offset delta of one's own choice."""
    body = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def deltas(*numbers: int, codec: Codec = Codec.NONE) -> Make:
    """A batch whose records claim these places."""
    return lambda: with_body(b"".join(map(record, numbers)), len(numbers), codec)


def legacy(magic: int) -> bytes:
    """A message as clients wrote it before record batches, whole and right."""
    body = bytes([magic, 0]) + (struct.pack(">q", NOW_MS) if magic else b"") + struct.pack(">ii1s", -1, 1, b"x")
    message = struct.pack(">I", crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def bomb(codec: Codec, size_bytes: int) -> bytearray:
    """A small batch of one record with a value of so many zeros."""
    body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(size_bytes) + bytes(size_bytes) + varint(0)
    return with_body(varint(len(body)) + body, 1, codec)


async def answered(
    client: Client, stream: Stream, records: bytes | bytearray | None, version: int = 9, **fields: Any
) -> Any:
    """What a produce request for partition 0 comes to."""
    client.send(0, version, produce_request(version, stream, {0: records}, **fields))
    (topic,) = (await client.reply()).responses
    (part,) = topic.partition_responses
    return part


def values_in(records: Any) -> Sequence[bytes | None]:
    """The values of records as a fetch gives them."""
    data = bytes(records or b"")
    return [r.value for at, head in iter_batches(data) for r in iter_records(data, at, head, 1 << 24)]


@asynccontextmanager
async def unharmed(
    path: Path, warnings_logged: list[dict[str, Any]], kafka: dict[str, Any] | None = None, **broker: Any
) -> AsyncIterator[Running]:
    """A broker under attack. Afterwards it must serve others as ever, hold nothing back and have had no fault."""
    async with running(path, kafka, **broker) as node:
        stream = await node.broker.catalog.create_stream("witness")
        yield node
        async with node.client() as witness:
            assert (await answered(witness, stream, batch(b"seen"))).error_code is ErrorCode.none
            (part,) = await fetched(witness, 12, stream, {0: 0})
            assert values_in(part.records) == [b"seen"]
        await until(lambda: not node.metrics.connections)
        metrics = node.metrics
        assert (metrics.failures, metrics.inflight_requests, metrics.inflight_bytes, metrics.unsent_bytes) == (0,) * 4
        assert not [line for line in warnings_logged if line["event"] == "a request failed"]


def peak_bytes(pid: int) -> int:
    """The most memory a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


class Raw:
    """One connection to a broker in a process of its own; ConnectionError where that closes it."""

    def __init__(self, address: str, timeout_s: float = 60.0) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *anything: object) -> None:
        self.socket.close()

    def exactly(self, size: int) -> bytes:
        """So many bytes of what it sends."""
        data = bytearray()
        while len(data) < size:
            got = self.socket.recv(min(size - len(data), 1 << 20))
            if not got:
                raise ConnectionResetError
            data += got
        return bytes(data)

    def reply(self) -> bytes:
        """The next reply, with its correlation id."""
        return self.exactly(struct.unpack(">i", self.exactly(4))[0])

    def ask(self, api_key: int, version: int, entity: Any = None, **fields: Any) -> Any:
        """Send a request and read its reply."""
        self._correlation += 1
        entity = make(load_request_schema(api_key, version), **fields) if entity is None else entity
        self.socket.sendall(frame(api_key, version, self._correlation, written(entity)))
        cls: Any = load_response_schema(api_key, version)
        payload, start = self.reply(), 5 if cls.__header_schema__.__flexible__ else 4
        reply, size = entity_reader(cls)(payload, start)
        assert start + size == len(payload)
        return reply

    def alive(self) -> bool:
        """Whether the broker answers what anybody may ask."""
        return bool(self.ask(18, 0, load_request_schema(18, 0)()).api_keys)

    def create(self, name: str, **config: str) -> ErrorCode:
        """Ask for a stream of one partition; dots of settings stand as `_` here."""
        cls = load_request_schema(19, 5)
        setting = nested(cls, "topics", "configs")
        topic = make(
            nested(cls, "topics"),
            name=name,
            num_partitions=1,
            replication_factor=1,
            assignments=(),
            configs=tuple(make(setting, name=key.replace("_", "."), value=value) for key, value in config.items()),
        )
        reply = self.ask(19, 5, topics=(topic,), timeout=milliseconds(10_000), validate_only=False)
        code: ErrorCode = reply.topics[0].error_code
        return code

    def produce(self, name: str, records: bytes | bytearray | None, **fields: Any) -> Any:
        """Produce to partition 0; its part of the reply."""
        named = type("Named", (), {"name": name, "id": None})
        reply = self.ask(0, 9, produce_request(9, named, {0: records}, **fields))
        return reply.responses[0].partition_responses[0]
