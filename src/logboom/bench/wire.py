"""Requests encoded once and sent many times, so that the load generator is not the limit.

The oldest versions that Kafka 4 still takes are used (Produce v3, Fetch v4: KIP-896), whose answers can be read without
a schema.
"""

import asyncio
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO

import kio.schema.fetch.v4.request as fetch_v4
import kio.schema.produce.v3.request as produce_v3
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_writer
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

from logboom.base.errors import LogboomError
from logboom.base.ids import Offset
from logboom.records import Record, build_batch

CORRELATION_AT = 8
"""Where the correlation id stands in a framed request: after length (4), API key (2) and version (2)."""

Frame = bytearray


class BenchError(LogboomError):
    """The server answered with an error, or went away."""


def _framed(api_key: int, version: int, body: bytes) -> Frame:
    out = BytesIO()
    header = RequestHeader(
        request_api_key=i16(api_key), request_api_version=i16(version), correlation_id=i32(0), client_id="logboom-bench"
    )
    entity_writer(RequestHeader)(out, header)
    payload = out.getvalue() + body
    return bytearray(struct.pack(">i", len(payload)) + payload)


def produce_frame(stream: str, partition: int, batch: bytes | bytearray) -> Frame:
    """A Produce request with acks=all that holds one batch."""
    request = produce_v3.ProduceRequest(
        transactional_id=None,
        acks=i16(-1),
        timeout=i32Timedelta.parse(timedelta(seconds=60)),
        topic_data=(
            produce_v3.TopicProduceData(
                name=TopicName(stream),
                partition_data=(produce_v3.PartitionProduceData(index=i32(partition), records=Records(bytes(batch))),),
            ),
        ),
    )
    out = BytesIO()
    entity_writer(produce_v3.ProduceRequest)(out, request)
    return _framed(0, 3, out.getvalue())


FETCH_OFFSET_FROM_END = 12
"""Where the offset stands in what `fetch_frame` gives, from its end: behind it comes the limit of the partition."""


def fetch_frame(stream: str, partition: int, offset: int, max_bytes: int) -> Frame:
    """A Fetch request for one partition that waits up to half a second for a first byte."""
    request = fetch_v4.FetchRequest(
        replica_id=BrokerId(-1),
        max_wait=i32Timedelta.parse(timedelta(milliseconds=500)),
        min_bytes=i32(1),
        max_bytes=i32(max_bytes),
        isolation_level=i8(0),
        topics=(
            fetch_v4.FetchTopic(
                topic=TopicName(stream),
                partitions=(
                    fetch_v4.FetchPartition(
                        partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(max_bytes)
                    ),
                ),
            ),
        ),
    )
    out = BytesIO()
    entity_writer(fetch_v4.FetchRequest)(out, request)
    return _framed(1, 4, out.getvalue())


def produce_error_at(stream: str) -> int:
    """Where the error code of the one partition stands in a Produce v3 answer, counted from its length on."""
    length, correlation, count, index = 4, 4, 4, 4
    return length + correlation + count + 2 + len(stream.encode()) + count + index


@dataclass(frozen=True)
class Fetched:
    """One partition of a fetch reply."""

    error: int
    high_watermark: int
    records: memoryview


def read_fetched(body: memoryview, stream: str) -> Fetched:
    """The one partition in a Fetch v4 answer (without correlation id)."""
    at = 4 + 4 + 2 + len(stream.encode()) + 4 + 4
    error, high_watermark, _stable = struct.unpack_from(">hqq", body, at)
    at += 18
    (aborted,) = struct.unpack_from(">i", body, at)
    at += 4 + 16 * max(aborted, 0)
    (length,) = struct.unpack_from(">i", body, at)
    return Fetched(error, high_watermark, body[at + 4 : at + 4 + max(length, 0)])


def batch_of(record_bytes: int, count: int) -> bytearray:
    """One uncompressed batch of `count` records of now, with values of `record_bytes` bytes.

    Records of 1970 would be older than any retention: Kafka deletes them at its next check, in the middle of a run.
    """
    now_ms = time.time_ns() // 1_000_000
    value = bytes((n * 167 + 13) % 251 for n in range(record_bytes))
    return build_batch([Record(Offset(n), now_ms, None, value, ()) for n in range(count)])


class Pipe(asyncio.BufferedProtocol):
    """One connection that hands every whole answer, without its length, to `on_answer`."""

    def __init__(self, on_answer: Callable[["Pipe", memoryview], None], on_lost: Callable[[], None]) -> None:
        self._on_answer = on_answer
        self._on_lost = on_lost
        self._buffer = bytearray(4 * 1024 * 1024)
        self._filled = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._filled == len(self._buffer):
            grown = bytearray(2 * len(self._buffer))
            grown[: self._filled] = self._buffer
            self._buffer = grown
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        view, at = memoryview(self._buffer), 0
        while self._filled - at >= 4:
            (length,) = struct.unpack_from(">i", view, at)
            if self._filled - at - 4 < length:
                break
            self._on_answer(self, view[at + 4 : at + 4 + length])
            at += 4 + length
        if at:
            self._filled -= at
            self._buffer[: self._filled] = self._buffer[at : at + self._filled]

    def send(self, frame: Frame, correlation: int) -> None:
        struct.pack_into(">i", frame, CORRELATION_AT, correlation)
        self.transport.write(bytes(frame))


async def connect(bootstrap: str, on_answer: Callable[[Pipe, memoryview], None], on_lost: Callable[[], None]) -> Pipe:
    """Open one connection; BenchError with what to check where nobody answers."""
    host, _, port = bootstrap.rpartition(":")
    try:
        _, pipe = await asyncio.get_running_loop().create_connection(lambda: Pipe(on_answer, on_lost), host, int(port))
    except (OSError, ValueError) as error:
        raise BenchError(f"no server at {bootstrap} ({error}): is it running, and is the address right?") from None
    return pipe
