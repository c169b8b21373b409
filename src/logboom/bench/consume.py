"""How fast one consumer reads a stream from its start, batches left undecoded, beside a plain copy of the same bytes.

The consumer is a plain blocking socket that asks for the next fetch once it has the last one whole, as the reader of
the copy is a plain blocking socket: what differs is the server. Copies and reads take turns, and the ratio is that of
their medians: a machine that is busy for a while is busy for both.
"""

import struct
import time
from dataclasses import dataclass
from statistics import median

from logboom.bench import wire
from logboom.bench.baseline import loopback_copy
from logboom.bench.blast import dial
from logboom.bench.streams import leaders_of
from logboom.records import iter_batches

_TIMEOUT_S = 120.0
_COPY_BYTES_MIN = 1024 * 1024


@dataclass
class _Passed:
    """What one pass over the stream brought."""

    bytes: int = 0
    records: int = 0
    fetches: int = 0


class _Socket:
    """One connection that brings whole answers into one buffer."""

    def __init__(self, address: str) -> None:
        self.socket = dial(address)
        self.socket.settimeout(_TIMEOUT_S)
        self._buffer = memoryview(bytearray(4 * 1024 * 1024))

    def ask(self, frame: bytes | bytearray) -> memoryview:
        """Send a request; its answer without length and correlation id, good until the next one."""
        self.socket.sendall(frame)
        filled = self._fill(0, 4)
        (length,) = struct.unpack_from(">i", self._buffer)
        if length + 4 > len(self._buffer):
            grown = memoryview(bytearray(length + 4))
            grown[:filled] = self._buffer[:filled]
            self._buffer = grown
        self._fill(filled, length + 4)
        return self._buffer[8 : length + 4]

    def _fill(self, filled: int, wanted: int) -> int:
        while filled < wanted:
            got = self.socket.recv_into(self._buffer[filled:])
            if not got:
                raise wire.BenchError("the server closed the connection")
            filled += got
        return filled


def _pass(connection: _Socket, stream: str, end: int, max_bytes: int) -> _Passed:
    passed, offset = _Passed(), 0
    frame = wire.fetch_frame(stream, 0, 0, max_bytes)
    while offset < end:
        struct.pack_into(">q", frame, len(frame) - wire.FETCH_OFFSET_FROM_END, offset)
        fetched = wire.read_fetched(connection.ask(frame), stream)
        if fetched.error:
            raise wire.BenchError(f"fetch failed with code {fetched.error}")
        for _, header in iter_batches(fetched.records):
            offset = header.next_offset
            passed.records += header.records_count
        passed.bytes += len(fetched.records)
        passed.fetches += 1
    return passed


def run_consume(bootstrap: str, stream: str, end: int, max_bytes: int, *, rounds: int = 5) -> dict[str, object]:
    """Read partition 0 of `stream` up to offset `end` over one connection, `rounds` times, beside plain copies.

    Rates are per second and medians, MB are 10^6 bytes. The first pass warms both sides and is not counted.
    """
    connection = _Socket(leaders_of(bootstrap, stream)[0])
    with connection.socket:
        passed = _pass(connection, stream, end, max_bytes)
        reads, copies = [], []
        for _ in range(rounds):
            copies.append(loopback_copy(max(passed.bytes, _COPY_BYTES_MIN)))
            began = time.perf_counter()
            passed = _pass(connection, stream, end, max_bytes)
            reads.append(time.perf_counter() - began)
    took_s = median(reads)
    copied = [float(str(copy["mb_per_s"])) for copy in copies]
    mb_per_s = passed.bytes / took_s / 1e6
    return {
        "records_per_s": round(passed.records / took_s, 1),
        "mb_per_s": round(mb_per_s, 2),
        "plain_loopback_copy_mb_per_s": round(median(copied), 2),
        "ratio_to_plain_copy": round(mb_per_s / median(copied), 3),
        "rounds": [
            {"mb_per_s": round(passed.bytes / took / 1e6, 2), "plain_copy_mb_per_s": copy}
            for took, copy in zip(reads, copied, strict=True)
        ],
        "fetches": passed.fetches,
        "bytes": passed.bytes,
        "records": passed.records,
        "seconds": round(took_s, 3),
        "max_bytes": max_bytes,
    }
