"""A door on a real broker for the tests of this room, and a client that speaks kio's own reader and writer."""

import asyncio
import io
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import structlog
import uvloop
from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from tests.support.simulated import machine
from tests.support.waiting import WAIT_S

from logboom.base.ids import Offset
from logboom.base.ports import Disk
from logboom.broker.broker import Broker
from logboom.broker.config import BrokerConfig
from logboom.kafka.config import KafkaConfig
from logboom.kafka.connection.services import ConnectionServices
from logboom.kafka.server.server import KafkaServer
from logboom.kafka.wire.messages import make, nested
from logboom.records import Record, build_batch

Result = TypeVar("Result")


def run(body: Callable[[], Awaitable[Result]], *, fast: bool = True) -> Result:
    """Run one test's coroutine, bounded; on uvloop as the broker does, or on asyncio's own loop."""

    async def bounded() -> Result:
        return await asyncio.wait_for(body(), WAIT_S)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if fast else None) as runner:
        return runner.run(bounded())


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.002)


def written(entity: Any) -> bytes:
    """An entity's bytes by kio's writer."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def batch(*values: bytes, timestamp_ms: int = 1_000, **fields: Any) -> bytes:
    """One record batch."""
    return bytes(build_batch([Record(Offset(n), timestamp_ms, None, v, ()) for n, v in enumerate(values)], **fields))


def frame(api_key: int, version: int, correlation_id: int, body: bytes, client_id: bytes | None = b"test") -> bytes:
    """A whole request with its length in front; the header of the version as kio's schema has it."""
    try:
        tags = b"\0" if load_request_schema(api_key, version).__header_schema__.__flexible__ else b""
    except KioIndexError:  # a version kio does not know: what the header holds matters to nobody
        tags = b""
    client = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id
    payload = struct.pack(">hhi", api_key, version, correlation_id) + client + tags + body
    return struct.pack(">i", len(payload)) + payload


class Client:
    """One raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation = 0
        self._waiting: list[tuple[int, int, int]] = []

    @classmethod
    async def connect(cls, address: tuple[str, int]) -> Self:
        return cls(*await asyncio.open_connection(*address, limit=1 << 27))

    def send(self, api_key: int, version: int, entity: Any = None, *, body: bytes | None = None) -> None:
        """Send a request without waiting."""
        self._correlation += 1
        self._waiting.append((api_key, version, self._correlation))
        self.writer.write(frame(api_key, version, self._correlation, written(entity) if body is None else body))

    async def frame(self) -> bytes:
        """The next reply's bytes, its correlation id included. IncompleteReadError where the connection is closed."""
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def reply(self) -> Any:
        """The next reply; its correlation id must be that of the oldest request unanswered."""
        api_key, version, correlation = self._waiting.pop(0)
        payload = await self.frame()
        cls: Any = load_response_schema(api_key, version)
        start = 5 if cls.__header_schema__.__flexible__ else 4
        assert struct.unpack_from(">i", payload)[0] == correlation
        entity, size = entity_reader(cls)(payload, start)
        assert start + size == len(payload), "the reply has bytes nobody asked for"
        return entity

    async def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """Send a request built by `make` and wait for its reply."""
        self.send(api_key, version, make(load_request_schema(api_key, version), **fields))
        return await self.reply()

    async def metadata(
        self,
        version: int,
        names: Sequence[str] | None,
        *,
        create: bool = False,
        topic: bool = False,
        cluster: bool = False,
    ) -> Any:
        """Ask for these streams; None: for all. `topic`, `cluster`: with the operations that are authorized on them."""
        cls = nested(load_request_schema(3, version), "topics")
        topics = None if names is None else tuple(make(cls, name=name, topic_id=None) for name in names)
        if version == 0 and topics is None:
            topics = ()  # which means all only there
        return await self.ask(
            3,
            version,
            topics=topics,
            allow_auto_topic_creation=create,
            include_cluster_authorized_operations=cluster,
            include_topic_authorized_operations=topic,
        )

    async def closed(self) -> bytes:
        """What still comes until the other side closes."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


class Running:
    """A broker and its door."""

    def __init__(self, broker: Broker, door: KafkaServer, address: tuple[str, int], log: Any) -> None:
        self.broker = broker
        self.door = door
        self.address = address
        self.log = log

    @property
    def metrics(self) -> Any:
        return self.door.metrics

    @property
    def services(self) -> ConnectionServices:
        return self.door._services

    def forget_warnings(self) -> None:
        """The next warning of each kind is logged, however soon it comes."""
        self.services.server.log._next_s.clear()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        client = await Client.connect(self.address)
        try:
            yield client
        finally:
            await client.close()


@asynccontextmanager
async def running(path: Path, kafka: dict[str, Any] | None = None, **broker_config: Any) -> AsyncIterator[Running]:
    """A door on a free port of 127.0.0.1 on a fresh broker; `open_disk` gives it another disk.

    In simulated time (tests.support.simulated) everything below it is simulated too.
    """
    runtime, disk_of = machine()
    open_disk: Callable[[str], Disk] = broker_config.pop("open_disk", disk_of)
    log: Any = structlog.testing.CapturingLogger()
    config = BrokerConfig(data_dir=path / "data", **broker_config)
    broker = await Broker.start(config, runtime=runtime, log=structlog.wrap_logger(log), open_disk=open_disk)
    settings = KafkaConfig.model_validate({"listen": "127.0.0.1:0", **(kafka or {})})
    door = KafkaServer(broker, settings, structlog.get_logger())  # fixtures put theirs in its place
    address = await door.start()
    try:
        yield Running(broker, door, address, log)
    finally:
        await door.stop(5.0)
        await broker.stop()
