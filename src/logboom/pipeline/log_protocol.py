"""The few words of Kafka's protocol that writing takes: requests as bytes, answers as values.

Knows layouts of the oldest versions that Kafka 4 still takes (KIP-896): Metadata 1, InitProducerId 0, Produce 3. Must
not know sockets, retries or what is written. Answers come from the user's own brokers; one that ends too early or has
impossible lengths raises ProtocolError.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Final, NamedTuple

PRODUCE, METADATA, INIT_PRODUCER_ID = (0, 3), (3, 1), (22, 0)
ACKS_ALL: Final = -1

_SHORT, _INT, _LONG = Struct(">h"), Struct(">i"), Struct(">q")
_HEAD: Final = Struct(">hhi")
_COUNT_MAX: Final = 1_000_000

Api = tuple[int, int]


class ProtocolError(Exception):
    """An answer that is none."""


class Slot(NamedTuple):
    """One partition of a stream."""

    stream: str
    partition: int


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Leaders:
    """Which broker leads what, and for streams that cannot be told of, the error code."""

    addresses: Mapping[Slot, Address]
    errors: Mapping[str, int]


def framed(api: Api, correlation: int, client: str, body: Iterable[bytes | memoryview]) -> list[bytes | memoryview]:
    """A request in parts, ready for `sendmsg`."""
    parts = [_HEAD.pack(*api, correlation) + _text(client), *body]
    return [_INT.pack(sum(len(part) for part in parts)), *parts]


def metadata_request(streams: Sequence[str]) -> list[bytes]:
    """Asks who leads the partitions of these streams."""
    return [_INT.pack(len(streams)), *(_text(stream) for stream in streams)]


def init_producer_id_request() -> list[bytes]:
    """Asks for an id by which the log knows repeats."""
    return [_SHORT.pack(-1) + _INT.pack(0x7FFFFFFF)]


def produce_request(batches: Mapping[Slot, Sequence[bytes | memoryview]], timeout_ms: int) -> list[bytes | memoryview]:
    """One batch, in parts, for each partition."""
    by_stream: dict[str, list[Slot]] = {}
    for slot in batches:
        by_stream.setdefault(slot.stream, []).append(slot)
    parts: list[bytes | memoryview] = [_SHORT.pack(-1) + _SHORT.pack(ACKS_ALL) + _INT.pack(timeout_ms)]
    parts.append(_INT.pack(len(by_stream)))
    for stream, slots in by_stream.items():
        parts.append(_text(stream) + _INT.pack(len(slots)))
        for slot in slots:
            size = sum(len(part) for part in batches[slot])
            parts += [_INT.pack(slot.partition) + _INT.pack(size), *batches[slot]]
    return parts


def _text(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


class _Answer:
    """Reads an answer from left to right."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, kind: Struct) -> int:
        try:
            value: int = kind.unpack_from(self._data, self._at)[0]
        except error as short:
            raise ProtocolError("an answer of the log ends too early") from short
        self._at += kind.size
        return value

    def count(self) -> int:
        count = self.number(_INT)
        if not -1 <= count <= _COUNT_MAX:
            raise ProtocolError(f"an answer of the log claims {count} entries")
        return max(count, 0)

    def text(self) -> str:
        length = max(self.number(_SHORT), 0)
        text = self._data[self._at : self._at + length]
        self._at += length
        return text.decode(errors="replace")

    def skip_ints(self) -> None:
        count = self.count()
        self._at += _INT.size * count


def read_metadata(data: bytes) -> Leaders:
    """The answer to `metadata_request`."""
    answer = _Answer(data)
    brokers: dict[int, Address] = {}
    for _ in range(answer.count()):
        node, host, port = answer.number(_INT), answer.text(), answer.number(_INT)
        answer.text()  # its rack
        brokers[node] = Address(host, port)
    answer.number(_INT)  # the controller
    addresses: dict[Slot, Address] = {}
    errors: dict[str, int] = {}
    for _ in range(answer.count()):
        _read_stream(answer, brokers, addresses, errors)
    return Leaders(addresses, errors)


_BOOL: Final = Struct(">b")


def _read_stream(
    answer: _Answer, brokers: Mapping[int, Address], addresses: dict[Slot, Address], errors: dict[str, int]
) -> None:
    code, stream = answer.number(_SHORT), answer.text()
    answer.number(_BOOL)  # whether it is internal
    if code:
        errors[stream] = code
    for _ in range(answer.count()):
        code, partition, leader = answer.number(_SHORT), answer.number(_INT), answer.number(_INT)
        answer.skip_ints()  # its replicas
        answer.skip_ints()  # those in sync
        if leader in brokers:
            addresses[Slot(stream, partition)] = brokers[leader]
        elif code:
            errors[stream] = code


def read_producer_id(data: bytes) -> tuple[int, int, int]:
    """Error code, id and epoch."""
    answer = _Answer(data)
    answer.number(_INT)  # throttle time
    return answer.number(_SHORT), answer.number(_LONG), answer.number(_SHORT)


def read_produced(data: bytes) -> dict[Slot, int]:
    """The error code of each partition."""
    answer = _Answer(data)
    codes: dict[Slot, int] = {}
    for _ in range(answer.count()):
        stream = answer.text()
        for _ in range(answer.count()):
            partition, code = answer.number(_INT), answer.number(_SHORT)
            answer.number(_LONG)  # base offset
            answer.number(_LONG)  # append time
            codes[Slot(stream, partition)] = code
    return codes
