"""The reading side of a latency run: a separate process that does the least work a consumer can.

Knows where a message's first eight bytes stand in a fetch reply and how late they are; no client library adds its
queues and threads. `librdkafka` reads in its place where the share of a client's consumer is asked for.
"""

import resource
import socket
import struct
import time
from array import array
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from logboom.bench import wire
from logboom.bench.blast import dial
from logboom.bench.streams import leaders_of
from logboom.records import HEADER_BYTES, iter_batches

READ_TIMEOUT_S = 600.0
FETCH_MAX_BYTES = 4 * 1024 * 1024
_STAMP = struct.Struct(">q")


def read(bootstrap: str, stream: str, total: int, skip: int, partitions: int, pipe: Connection) -> None:
    """Child process: report "ready" at the first message, read `total` more, send the latencies of all but `skip`.

    `partitions`: how many librdkafka's consumer reads; 0 for long polls of the first one."""
    latencies = array("q")
    deadline = time.monotonic() + READ_TIMEOUT_S
    source = _librdkafka(bootstrap, stream, partitions, deadline) if partitions else _raw(bootstrap, stream, deadline)
    seen, cpu_before, began = 0, 0.0, 0.0
    for meant, now in source:
        if meant == 0:
            pipe.send("ready")
            cpu_before, began = _cpu_s(), time.monotonic()
            continue
        latencies.append((now - meant) // 1_000)
        seen += 1
        if seen == total:
            break
    took_s = time.monotonic() - began
    pipe.send({"seen": seen, "cpu_share": round((_cpu_s() - cpu_before) / took_s, 3)})
    pipe.send_bytes(latencies[skip:].tobytes())


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _raw(bootstrap: str, stream: str, deadline: float) -> Iterator[tuple[int, int]]:
    """(intended send time, arrival time) of each message in nanoseconds, by long polls of one fetch."""
    buffer = bytearray(2 * FETCH_MAX_BYTES)
    offset = 0
    with dial(leaders_of(bootstrap, stream)[0]) as link:
        while time.monotonic() < deadline:
            link.sendall(wire.fetch_frame(stream, 0, offset, FETCH_MAX_BYTES))
            size = _receive(link, buffer)
            now = time.monotonic_ns()
            fetched = wire.read_fetched(memoryview(buffer)[4:size], stream)
            if fetched.error:
                raise wire.BenchError(f"fetch failed with code {fetched.error}")
            for position, header in iter_batches(fetched.records):
                for meant in _stamps(fetched.records, position + HEADER_BYTES, header.records_count):
                    yield meant, now
                offset = header.next_offset


def _receive(link: socket.socket, buffer: bytearray) -> int:
    """Read one answer, without its length, into `buffer`; its size."""
    head = link.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        raise wire.BenchError("the server closed the connection")
    size: int = struct.unpack(">i", head)[0]
    view, filled = memoryview(buffer)[:size], 0
    while filled < size:
        got = link.recv_into(view[filled:])
        if not got:
            raise wire.BenchError("the server closed the connection")
        filled += got
    return size


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _stamps(view: memoryview, at: int, count: int) -> Iterator[int]:
    """The first eight bytes of each value in an uncompressed batch of records without keys."""
    for _ in range(count):
        length, at = _varint(view, at)
        end = at + length
        _, at = _varint(view, at + 1)  # attributes, then the timestamp's delta
        _, at = _varint(view, at)  # the offset's delta
        _, at = _varint(view, at)  # the key's length: -1
        _, at = _varint(view, at)
        yield _STAMP.unpack_from(view, at)[0]
        at = end


def _librdkafka(bootstrap: str, stream: str, partitions: int, deadline: float) -> Iterator[tuple[int, int]]:
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "logboom-bench", "fetch.wait.max.ms": 500}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(stream, number, 0) for number in range(partitions)])
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        value = message.value()
        assert value is not None
        yield _STAMP.unpack_from(value)[0], time.monotonic_ns()
