"""Requests nobody should send, drawn by hypothesis from kio's schema: any API and version, whole, strange and broken.

A request is drawn as its entity is described: every field from the values its type can carry, those at the edges and
those that mean something here (names of streams that are there, offsets, members) more often than others. Its bytes
are kio's, and may then be changed. What must hold is said by `Besieged.strike`.
"""

import dataclasses
import socket
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

from hypothesis import strategies as st
from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from tests.kafka.attack import Raw, good, with_body
from tests.kafka.door import frame, written
from tests.support.server import BrokerProcess

from logboom.kafka.apis import load_handlers
from logboom.kafka.wire.messages import milliseconds
from logboom.records import Codec
from logboom.records.header import write_crc

TIMEOUT_S = 300.0
STREAMS = ("s0", "s1", "witness")
PRODUCE, FETCH, JOIN, SYNC = 0, 1, 11, 14
MAY_WAIT = {JOIN: 0.02, SYNC: 0.02}
"""Seconds after which nobody waits any more for an answer that may take as long as its sender allows."""

LIMITS = {
    "LOGBOOM_KAFKA__MAX_FETCH_WAIT_MS": "20",
    "LOGBOOM_BROKER__MAX_PARTITIONS": "60",
    "LOGBOOM_BROKER__MAX_DECOMPRESSED_BYTES": "8MiB",
}
SUBSCRIPTION = bytes.fromhex("0000 0000 0001 0002") + b"s0" + bytes.fromhex("ffffffff")

WORDS = st.sampled_from(
    [
        *STREAMS,
        *("", ".", "..", "a/b", "a.b", "a_b", "\0", "ż" * 40, "s0 ", "S0", "x" * 249, "x" * 250, "x" * 30_000),
        *("__consumer_offsets", "__x", "1", "-1", "g", "g2", "consumer", "range", "member", "t"),
        *("retention.ms", "segment.bytes", "max.message.bytes", "cleanup.policy", "logboom.flush", "NaN", "1e9"),
    ]
)
EDGES = {bits: [0, 1, -1, 2, 7, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2 ** (bits // 2)] for bits in (8, 16, 32, 64)}
COUNTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}


def served() -> Iterator[tuple[int, int]]:
    """Every API and version."""
    for handler in load_handlers().values():
        for version in range(handler.first_advertised, handler.max_version + 1):
            yield handler.api_key, version


# --- values --------------------------------------------------------------------------------------------------------


def integers(bits: int) -> st.SearchStrategy[int]:
    half = 2 ** (bits - 1)
    return st.sampled_from(EDGES[bits]) | st.integers(-half, half - 1)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A record batch: right, of strange numbers, or changed with and without a CRC that fits."""
    values = draw(st.lists(st.binary(max_size=60), min_size=1, max_size=5))
    codec = draw(st.sampled_from(Codec))
    producer = draw(st.sampled_from([(-1, -1, -1), (0, 0, 0), (5, 0, 3), (2**63 - 1, 2**15 - 1, 2**31 - 1)]))
    data = good(*values, codec=codec, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2])
    kind = draw(st.sampled_from(["right", "right", "changed", "resealed", "body", "noise", "two"]))
    match kind:
        case "changed":
            data = bytearray(draw(mutations(bytes(data))))
        case "resealed":
            data = bytearray(draw(mutations(bytes(data))))
            if len(data) > 61:
                if draw(st.booleans()):
                    struct.pack_into(">i", data, 8, len(data) - 12)
                write_crc(data, 0, len(data))
        case "body":
            data = with_body(b"", draw(st.integers(1, 4)), codec, packed=draw(st.binary(max_size=80)))
        case "noise":
            data = bytearray(draw(st.binary(max_size=120)))
        case "two":
            data = data * 2
    return bytes(data)


def primitives(kafka_type: str) -> st.SearchStrategy[Any]:
    if kafka_type in COUNTS:
        return integers(COUNTS[kafka_type])
    if kafka_type in UNSIGNED:
        return st.integers(0, 2 ** UNSIGNED[kafka_type] - 1)
    match kafka_type:
        case "bool":
            return st.booleans()
        case "float64":
            return st.floats() | st.sampled_from([0.0, -1.0, 1e308])
        case "string":
            return WORDS | st.text(st.characters(codec="utf-8"), max_size=12)
        case "timedelta_i32":
            return integers(32).map(milliseconds)
        case "timedelta_i64":
            return st.sampled_from([0, 1, -1, 10**13, -(10**13)]).map(milliseconds)
        case "uuid":
            return st.just(UUID(int=77)) | st.uuids()
        case "records":
            return batches()
        case "bytes":
            return st.binary(max_size=40) | mutations(SUBSCRIPTION) | st.sampled_from([SUBSCRIPTION, bytes(3_000)])
    assert kafka_type == "error_code"
    return st.sampled_from(ErrorCode)


@cache
def entities(cls: Any) -> st.SearchStrategy[Any]:
    """Any entity of a class."""
    return st.builds(cls, **{field.name: values(field.type, field) for field in dataclasses.fields(cls)})


def values(annotation: Any, field: Any) -> st.SearchStrategy[Any]:
    if get_origin(annotation) in (UnionType, Union):
        inner = next(one for one in get_args(annotation) if one is not NoneType)
        return st.none() | values(inner, field)
    if get_origin(annotation) is tuple:
        item = values(get_args(annotation)[0], field)
        few = st.lists(item, max_size=3).map(tuple)
        return few | st.tuples(item).map(lambda one: one * 3)  # the same one again and again
    if dataclasses.is_dataclass(annotation):
        cls: Any = annotation
        return entities(cls)
    return primitives(field.metadata["kafka_type"])


# --- bytes ---------------------------------------------------------------------------------------------------------

INSERTS = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\0\0\0",
    b"\xff" * 8,
    b"\0",
    b"\x01",
    b"\xff\x7f",
    b"\x80",
)


@st.composite
def mutations(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes with some things wrong: cut, overwritten, put in, taken out, doubled."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(out)))
        match draw(st.sampled_from(["cut", "over", "in", "out", "bit", "double"])):
            case "cut":
                del out[place:]
            case "over":
                new = draw(st.sampled_from(INSERTS))
                out[place : place + len(new)] = new
            case "in":
                out[place:place] = draw(st.sampled_from(INSERTS) | st.binary(min_size=1, max_size=6))
            case "out":
                del out[place : place + draw(st.integers(1, 8))]
            case "bit" if place < len(out):
                out[place] ^= 1 << draw(st.integers(0, 7))
            case "double":
                out[place:place] = out[max(0, place - draw(st.integers(1, 30))) : place]
    return bytes(out)


@st.composite
def bodies(draw: st.DrawFn, api_key: int, version: int) -> bytes:
    """The body of a request."""
    cls = load_request_schema(api_key, max(version, 3) if api_key == PRODUCE else version)
    body = written(draw(entities(cls)))
    return draw(mutations(body)) if draw(st.integers(0, 2)) == 0 else body


# --- a broker that is struck ---------------------------------------------------------------------------------------


class Besieged:
    """A broker in a process of its own. After every strike it must have answered or closed, and be without a fault."""

    def __init__(self, directory: Path, **limits: str) -> None:
        self.broker = BrokerProcess(directory / "data", environment={**LIMITS, **limits})
        self._seen = 0
        self._client: Raw | None = None
        self.answered = self.closed = self.left = 0

    def start(self) -> None:
        """Start it, with streams that are there."""
        self.broker.start()
        with Raw(self.broker.kafka) as client:
            for name in STREAMS:
                assert client.create(name) in (ErrorCode.none, ErrorCode.topic_already_exists)

    def strike(self, api_key: int, version: int, body: bytes) -> Any:
        """Send a request and a question that anybody may ask; the entity that answers, None where there is none."""
        if self._client is None:
            self._client = Raw(self.broker.kafka, TIMEOUT_S)
        client, reply = self._client, None
        client.socket.settimeout(MAY_WAIT.get(api_key, TIMEOUT_S))
        try:
            client.socket.sendall(frame(api_key, version, 1, body) + frame(18, 0, 77, b""))
            while (payload := client.reply())[:4] != b"\0\0\0\x4d":
                reply = read(api_key, version, payload)
            self.answered += 1
        except TimeoutError:
            assert api_key in MAY_WAIT, f"no answer to {api_key} v{version}"
            self.left += 1
            self.leave()
        except ConnectionError:
            self.closed += 1
            self.leave()
        except BaseException:
            self.leave()
            raise
        self.must_be_sound()
        return reply

    def leave(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.socket.close()
        self._client = None

    def must_be_sound(self) -> None:
        """No fault of its own in the log, and the process lives."""
        text = self.broker.log_path.read_text(errors="replace")[self._seen :]
        self._seen += len(text)
        assert self.broker.running, text[-3_000:]
        faults = [line for line in text.splitlines() if "Traceback" in line or "a request failed" in line]
        assert not faults, "\n".join(faults)[-6_000:]

    def strange(self, data: bytes, *, half: bool = False) -> None:
        """Send bytes that need not be frames, and hear it out."""
        with Raw(self.broker.kafka, TIMEOUT_S) as client:
            try:
                client.socket.sendall(data)
                client.socket.shutdown(socket.SHUT_WR)
                while not half and client.socket.recv(1 << 16):
                    pass
            except ConnectionError:
                pass
        self.must_be_sound()


def read(api_key: int, version: int, payload: bytes) -> Any:
    """The reply by kio's reader: all of its bytes, and no word of an error that has no name."""
    try:
        cls: Any = load_response_schema(api_key, version)
    except KioIndexError:  # Produce versions that are older than kio
        return None
    start = 5 if cls.__header_schema__.__flexible__ else 4
    entity, size = entity_reader(cls)(payload, start)
    assert start + size == len(payload), "the reply has bytes nobody asked for"
    nameless = [where for where in errors_in(entity) if where[1] is ErrorCode.unknown_server_error]
    assert not nameless, f"{cls.__name__} v{version}: {nameless}"
    return entity


def errors_in(entity: Any, path: str = "") -> Iterator[tuple[str, ErrorCode]]:
    """Every error code of a reply, with where it stands."""
    for field in dataclasses.fields(entity):
        value = getattr(entity, field.name)
        if isinstance(value, ErrorCode):
            yield f"{path}.{field.name}", value
        elif dataclasses.is_dataclass(value):
            yield from errors_in(value, f"{path}.{field.name}")
        elif isinstance(value, tuple):
            for number, one in enumerate(value):
                if dataclasses.is_dataclass(one):
                    yield from errors_in(one, f"{path}.{field.name}[{number}]")
