"""Requests encoded once and sent many times, so that the load generator is not the limit.

Fetch 4, the oldest version that Kafka 4 still takes (KIP-896), has an answer that can be read without a schema.
"""

import struct
import time
from dataclasses import dataclass

from logboom.base.errors import LogboomError
from logboom.base.ids import Offset
from logboom.base.ports import Bytes
from logboom.client.frames import framed
from logboom.client.messages import PRODUCE, Api, TopicPartition, produce_request
from logboom.records import Record, build_batch

_CLIENT = "logboom-bench"
_PRODUCE_TIMEOUT_MS = 60_000
_FETCH: Api = (1, 4)
_FETCH_WAIT_MS = 500
_FETCH_HEAD = struct.Struct(">iiiibih")
_FETCH_PARTITION = struct.Struct(">iiqi")


class BenchError(LogboomError):
    """The server answered with an error, or went away."""


def produce_frame(stream: str, partition: int, batch: Bytes) -> bytes:
    """A Produce request with acks=all that holds one batch."""
    body = produce_request({TopicPartition(stream, partition): (batch,)}, _PRODUCE_TIMEOUT_MS)
    return b"".join(framed(PRODUCE, 0, _CLIENT, body))


FETCH_OFFSET_FROM_END = 12
"""Position of the fetch offset in a `fetch_frame`, counted from its end; the partition's byte limit follows it."""


def fetch_frame(stream: str, partition: int, offset: int, max_bytes: int) -> bytearray:
    """A Fetch request for one partition that waits up to half a second for a first byte."""
    name = stream.encode()
    head = _FETCH_HEAD.pack(-1, _FETCH_WAIT_MS, 1, max_bytes, 0, 1, len(name)) + name
    body = head + _FETCH_PARTITION.pack(1, partition, offset, max_bytes)
    return bytearray().join(framed(_FETCH, 0, _CLIENT, [body]))


def produce_error_at(stream: str) -> int:
    """Where the error code of the one partition stands in the answer to Produce, counted from its length on."""
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
