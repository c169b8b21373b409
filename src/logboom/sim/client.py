"""A small Kafka client on a simulated loop: one connection, one request at a time, every answer read or refused.

Built on the frames of `logboom.client` and on kio's own entities, so that the broker is not checked with its own
encoder. All APIs at versions of one age (Kafka 2.4), the last with plain heads wherever one has. Retries are the
workload's affair.
"""

import asyncio
import io
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from logboom.base.errors import LogboomError
from logboom.base.ids import Offset
from logboom.client.frames import Frames, framed
from logboom.client.messages import Api
from logboom.kafka.wire.messages import make, milliseconds, nested, request_class, response_class
from logboom.records import Record, iter_batches, iter_records

PRODUCE: Final[Api] = (0, 8)
_FETCH: Final[Api] = (1, 11)
_LIST_OFFSETS: Final[Api] = (2, 5)
_OFFSET_COMMIT: Final[Api] = (8, 7)
_OFFSET_FETCH: Final[Api] = (9, 5)
_CREATE_TOPICS: Final[Api] = (19, 4)
_ALTER_CONFIGS: Final[Api] = (44, 0)
_INIT_PRODUCER_ID: Final[Api] = (22, 1)

_NO_TAGS: Final = b"\0"
"""What flexible versions have at the end of their heads."""
ANSWER_S: Final = 5.0
"""How long a client waits for an answer, and a broker for what an ack waits for."""
_LATEST: Final = -1
_EARLIEST: Final = -2
_FETCH_BYTES: Final = 1 << 20
_STREAM_RESOURCE: Final = 2
_SET, _DELETE = 0, 1
_RECORDS_BYTES_MAX: Final = 1 << 26
_BATCHES_KEPT: Final = 1 << 15


class AskError(LogboomError):
    """No answer: the request may have been carried out or not."""


class RefusedError(LogboomError):
    """The broker answered with an error."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Polled(NamedTuple):
    """What one fetch of one partition gave."""

    records: list[tuple[Offset, bytes]]
    next_offset: Offset
    high_watermark: Offset


class TopicPartition(NamedTuple):
    """One partition."""

    stream: str
    partition: int


class SimClient:
    """Life: `connect`, then asks one at a time, then `close`; after an AskError it is of no further use."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._correlation = 0
        self._frames = Frames()

    @classmethod
    async def connect(cls, address: tuple[str, int], client_id: str) -> Self:
        """Raises AskError where nobody listens."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return cls(*await asyncio.open_connection(*address), client_id)
        except (OSError, TimeoutError) as error:
            raise AskError(f"cannot connect: {error}") from error

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def ask(self, api: Api, *, answer_s: float = ANSWER_S, **fields: Any) -> Any:
        """Send a request, its fields as kio names them, and wait for its answer. Raises AskError where none comes.

        A list of dictionaries stands for entities inside the request.
        """
        self._send(api, fields)
        try:
            async with asyncio.timeout(answer_s):
                payload = await self._answer()
        except (OSError, TimeoutError) as error:
            self._writer.transport.abort()
            raise AskError(f"no answer: {error!r}") from error
        return decoded(api, payload)

    def _send(self, api: Api, fields: Mapping[str, Any]) -> None:
        request, body = _entity(request_class(*api), fields), io.BytesIO()
        body.write(_NO_TAGS * request.__flexible__)
        entity_writer(type(request))(body, request)
        self._correlation += 1
        self._writer.writelines(framed(api, self._correlation, self._client_id, [body.getvalue()]))

    async def _answer(self) -> bytes:
        while data := await self._reader.read(1 << 16):
            for correlation, body in self._frames.take(data):
                assert correlation == self._correlation, "an answer to another request"
                return bytes(body)
        raise ConnectionResetError("the broker closed the connection")

    # --- streams and records --------------------------------------------------------------------------------------

    async def create_stream(self, name: str, partitions: int, config: Mapping[str, str], replicas: int = 1) -> None:
        """Create a stream; one that is there already will do. Raises RefusedError."""
        settings = [{"name": key, "value": value} for key, value in config.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": replicas, "configs": settings}
        answer = await self.ask(_CREATE_TOPICS, topics=[{**topic, "assignments": []}])
        check(answer.topics[0].error_code, ErrorCode.topic_already_exists)

    async def configure_stream(self, name: str, setting: str, value: str | None) -> None:
        """Change one setting of a stream; None gives it back to its default. Raises RefusedError."""
        change = {"name": setting, "config_operation": _DELETE if value is None else _SET, "value": value}
        resource = {"resource_type": _STREAM_RESOURCE, "resource_name": name, "configs": [change]}
        answer = await self.ask(_ALTER_CONFIGS, resources=[resource], validate_only=False)
        check(answer.responses[0].error_code)

    async def new_producer(self) -> tuple[int, int]:
        """Id and epoch of an idempotent producer."""
        answer = await self.ask(_INIT_PRODUCER_ID, transactional_id=None, transaction_timeout=milliseconds(60_000))
        check(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    async def produce(self, where: TopicPartition, batch: bytes, acks: int = -1) -> int | None:
        """Append a batch; its base offset, or None with acks=0, which has no answer. Raises RefusedError."""
        fields = produce_fields(where, batch, acks)
        if acks == 0:
            self._send(PRODUCE, fields)
            await self._drained()
            return None
        answer = await self.ask(PRODUCE, **fields)
        part = answer.responses[0].partition_responses[0]
        check(part.error_code)
        return int(part.base_offset)

    async def leader(self, where: TopicPartition) -> tuple[str, int]:
        """Where the leader of a partition listens. Raises AskError."""
        address: tuple[str, int] = self._writer.get_extra_info("peername")
        return address

    async def _drained(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._writer.drain()
        except (OSError, TimeoutError) as error:
            self._writer.transport.abort()
            raise AskError(f"not taken: {error!r}") from error

    async def fetch(self, where: TopicPartition, offset: Offset, wait_ms: int) -> Polled:
        """Values of committed records from an offset on, waiting for some. Raises RefusedError."""
        found = await self._fetch(where, offset, wait_ms)
        records, next_offset = _records(found.records or b"", offset)
        values = [(record.offset, bytes(record.value)) for record in records]
        return Polled(values, next_offset, Offset(found.high_watermark))

    async def fetch_records(self, where: TopicPartition, offset: Offset, wait_ms: int) -> tuple[list[Any], Offset]:
        """Committed records from an offset on, whole, and the offset to go on from. Raises RefusedError."""
        return _records((await self._fetch(where, offset, wait_ms)).records or b"", offset)

    async def fetch_bytes(self, where: TopicPartition, offset: Offset) -> tuple[bytes, Offset]:
        """Batches as they are stored from an offset on, and the offset to go on from. Raises RefusedError."""
        data = bytes((await self._fetch(where, offset, 0)).records or b"")
        return data, max((header.next_offset for _, header in iter_batches(data)), default=offset)

    async def _fetch(self, where: TopicPartition, offset: Offset, wait_ms: int) -> Any:
        parts = [{"partition": where.partition, "fetch_offset": offset, "partition_max_bytes": _FETCH_BYTES}]
        answer = await self.ask(
            _FETCH,
            answer_s=ANSWER_S + wait_ms / 1_000,
            max_wait=milliseconds(wait_ms),
            min_bytes=1,
            topics=[{"topic": where.stream, "partitions": parts}],
            forgotten_topics_data=[],
        )
        check(answer.error_code)
        found = answer.responses[0].partitions[0]
        check(found.error_code)
        return found

    async def end_offset(self, where: TopicPartition) -> Offset:
        """The high-water mark. Raises RefusedError."""
        return await self._offset_at(where, _LATEST)

    async def start_offset(self, where: TopicPartition) -> Offset:
        """The log start offset. Raises RefusedError."""
        return await self._offset_at(where, _EARLIEST)

    async def _offset_at(self, where: TopicPartition, timestamp: int) -> Offset:
        parts = [{"partition_index": where.partition, "timestamp": timestamp}]
        topics = [{"name": where.stream, "partitions": parts}]
        answer = await self.ask(_LIST_OFFSETS, replica_id=-1, isolation_level=0, topics=topics)
        found = answer.topics[0].partitions[0]
        check(found.error_code)
        return Offset(found.offset)

    # --- groups ---------------------------------------------------------------------------------------------------

    async def commit(
        self, group: str, where: TopicPartition, offset: Offset, *, member_id: str = "", generation: int = -1
    ) -> None:
        """Commit an offset, as a member of a generation or as a consumer without membership. Raises RefusedError."""
        parts = [{"partition_index": where.partition, "committed_offset": offset, "committed_metadata": None}]
        topics = [{"name": where.stream, "partitions": parts}]
        answer = await self.ask(
            _OFFSET_COMMIT,
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=topics,
        )
        check(answer.topics[0].partitions[0].error_code)

    async def committed(self, group: str, where: TopicPartition) -> Offset:
        """The committed offset; -1 where there is none. Raises RefusedError."""
        topics = [{"name": where.stream, "partition_indexes": (where.partition,)}]
        answer = await self.ask(_OFFSET_FETCH, group_id=group, topics=topics)
        check(answer.error_code)
        found = answer.topics[0].partitions[0]
        check(found.error_code)
        return Offset(found.committed_offset)


def produce_fields(where: TopicPartition, batch: bytes, acks: int) -> dict[str, Any]:
    """What a produce request says that brings one batch."""
    parts = [{"index": where.partition, "records": batch}]
    topics = [{"name": where.stream, "partition_data": parts}]
    return {"acks": acks, "timeout": milliseconds(int(ANSWER_S * 1_000)), "topic_data": topics}


def decoded(api: Api, payload: bytes) -> Any:
    """An answer, as kio's entity."""
    response = response_class(*api)
    entity, size = entity_reader(response)(payload, len(_NO_TAGS) * response.__flexible__)
    assert size == len(payload) - len(_NO_TAGS) * response.__flexible__, "an answer with bytes behind it"
    return entity


def _entity(cls: Any, fields: Mapping[str, Any]) -> Any:
    """An entity of kio's, lists of dictionaries made entities too."""
    made = {
        name: tuple(_entity(nested(cls, name), one) for one in value) if isinstance(value, list) else value
        for name, value in fields.items()
    }
    return make(cls, **made)


def check(code: ErrorCode, *accepted: ErrorCode) -> None:
    """Raise RefusedError for an error that is not accepted."""
    if code is not ErrorCode.none and code not in accepted:
        raise RefusedError(code)


def _records(data: bytes, offset: Offset) -> tuple[list[Any], Offset]:
    """Records from `offset` on, and the offset behind the last batch; the batch that holds `offset` comes whole."""
    records: list[Record] = []
    next_offset = offset
    for position, header in iter_batches(data):
        found = records_of(bytes(data[position : position + header.size_bytes]))
        skipped = header.base_offset < offset
        records += [record for record in found if record.offset >= offset] if skipped else found
        next_offset = header.next_offset
    return records, next_offset


@lru_cache(maxsize=_BATCHES_KEPT)
def records_of(batch: bytes) -> tuple[Record, ...]:
    """The records of one batch. Each is read some ten times: by consumers, and whenever copies are compared or looked
    into."""
    _, header = next(iter_batches(batch))
    return tuple(iter_records(batch, 0, header, _RECORDS_BYTES_MAX))
