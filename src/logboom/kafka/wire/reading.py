"""Reading requests that may be hostile: kio's schema compiled into one Python function per API and version.

Every count and length is checked against the bytes that are left before any memory is reserved for it, every element
counts against a budget, and strings must be UTF-8. For any bytes, a reader returns an entity or raises MalformedError.
`records` fields are writable views of the frame itself; no other field refers to the frame. Why not kio's own reader:
docs/decisions/0004-reading-requests.md. Knows kio's schema; no connection.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any, Final, TypeAlias
from uuid import UUID

from kio.serial._implicit_defaults import get_tagged_field_default

from logboom.base.errors import LogboomError
from logboom.kafka.wire.messages import request_class
from logboom.kafka.wire.schema import FIXED, Shape, Source, shape_of, split_fields


class MalformedError(LogboomError):
    """Bytes that are not a request of the API and version that their header names."""


Reader: TypeAlias = Callable[[memoryview, int, int], tuple[Any, int, int]]
"""(frame, position of the body, budget of elements) -> (kio entity, position after it, budget left)."""

_CONVERT: Final = {
    "uuid": "uuid({0})",
    "timedelta_i32": "timedelta(0, 0, {0} * 1000)",
    "timedelta_i64": "timedelta(0, 0, {0} * 1000)",
}
"""From the raw value to kio's, for types where these differ."""

_BYTES: Final = {"string": "str({0}, 'utf-8')", "bytes": "bytes({0})", "records": "{0}"}
_ZERO_UUID: Final = bytes(16)


@cache
def reader_for(api_key: int, version: int) -> Reader:
    """The reader of an API at a version, compiled on first use."""
    return compile_reader(request_class(api_key, version))


def compile_reader(cls: Any) -> Reader:
    """Compile the reader of one entity class."""
    return _Compiler(cls).compile()


# --- what the compiled functions call ------------------------------------------------------------------------------


def _uuid(raw: bytes) -> UUID | None:
    return None if raw == _ZERO_UUID else UUID(bytes=raw)


def read_uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits: (value, position after it); IndexError at the end of the frame."""
    value = 0
    for shift in range(0, 35, 7):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise MalformedError("a varint has more than 32 bits")


def skip_tags(frame: memoryview, position: int, end: int, budget: int) -> tuple[int, int]:
    """Skip unknown tagged fields (KIP-482): (position after them, budget left). Raises MalformedError."""
    count, position = read_uvarint(frame, position)
    budget -= count
    if budget < 0:
        raise MalformedError("too many tagged fields", limit="kafka.max_request_elements")
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        if size > end - position:
            raise MalformedError("a tagged field is longer than the request")
        position += size
    return position, budget


# --- the compiler --------------------------------------------------------------------------------------------------


def _least_bytes(cls: Any) -> int:
    """The fewest bytes an entity takes on the wire, which bounds the count of an array of them."""
    total = 1 if cls.__flexible__ else 0
    total += sum(_least_field_bytes(cls, shape_of(field)) for field in split_fields(cls)[0])
    return max(total, 1)


def _least_field_bytes(cls: Any, shape: Shape) -> int:
    if shape.array:
        return 1 if cls.__flexible__ else 4
    if shape.entity is not None:
        return 1 if shape.optional else _least_bytes(shape.entity)
    if shape.kafka_type in FIXED:
        return FIXED[shape.kafka_type][1]
    if cls.__flexible__:
        return 1
    return 2 if shape.kafka_type == "string" else 4


class _Compiler:
    """Writes the source of one reader; used for one call of `compile`.

    Neighbouring values of fixed size are collected in a run and read by one `struct` call, together with the length
    that follows them where that has a fixed size too.
    """

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self._run: list[tuple[str, str]] = []
        self._source = Source(
            EndErrors=(IndexError, struct.error),
            malformed=MalformedError,
            new=object.__new__,
            read_uvarint=read_uvarint,
            skip_tags=skip_tags,
            timedelta=timedelta,
            unpack_from=struct.unpack_from,
            uuid=_uuid,
        )
        self._emit, self._block = self._source.emit, self._source.block
        self._name, self._constant = self._source.name, self._source.constant

    def compile(self) -> Reader:
        name = self._cls.__name__
        self._emit("end = len(frame)")
        with self._block("try:"):
            result = self._entity(self._cls, "end")
            self._emit(f"return {result}, pos, budget")
        for error, what in (
            ("EndErrors", "ends too early"),
            ("UnicodeDecodeError", "holds a string that is no UTF-8"),
            ("OverflowError", "holds a duration out of range"),
        ):
            with self._block(f"except {error}:"):
                self._emit(f"raise malformed('{name} {what}') from None")
        reader: Reader = self._source.build("read(frame, pos, budget)", f"<reader of {self._cls.__module__}.{name}>")
        return reader

    # --- runs of fixed size ---

    def _fixed(self, kafka_type: str, name: str) -> None:
        self._run.append((kafka_type, name))

    def _flush(self) -> None:
        if not self._run:
            return
        _, layout = self._source.struct("".join(FIXED[kafka_type][0] for kafka_type, _ in self._run))
        unpack = self._constant("unpack", layout.unpack_from)
        targets = ", ".join(name for _, name in self._run)
        self._emit(f"{targets}, = {unpack}(frame, pos)", f"pos += {layout.size}")
        for kafka_type, name in self._run:
            if kafka_type in _CONVERT:
                self._emit(f"{name} = {_CONVERT[kafka_type].format(name)}")
        self._run = []

    # --- entities and fields ---

    def _entity(self, cls: Any, end: str) -> str:
        """Emit the reading of an entity. Returns the name of the variable that holds it."""
        fields, tagged = split_fields(cls)
        names = {field.name: self._name() for field in (*fields, *tagged)}
        for field in fields:
            self._field(cls, shape_of(field), names[field.name], end)
        self._flush()
        if cls.__flexible__:
            self._tags(cls, {field: names[field.name] for field in tagged}, end)
        result = self._name("entity")
        self._emit(f"{result} = new({self._constant('Entity', cls)})")
        for field in (*fields, *tagged):
            # The class is frozen, and its __init__ slow: filling the slots through their descriptors takes a third of
            # the time.
            setter = self._constant("set", getattr(cls, field.name).__set__)
            self._emit(f"{setter}({result}, {names[field.name]})")
        return result

    def _field(self, cls: Any, shape: Shape, name: str, end: str) -> None:
        if shape.array:
            self._array(cls, shape, name, end)
        elif shape.entity is not None:
            self._nested(shape, name, end)
        elif shape.kafka_type in FIXED:
            self._fixed(shape.kafka_type, name)
        else:
            self._bytes(cls, shape, name, end)

    def _nested(self, shape: Shape, name: str, end: str) -> None:
        self._flush()
        if not shape.optional:
            self._emit(f"{name} = {self._entity(shape.entity, end)}")
            return
        self._fixed("int8", name)  # nullable entities have a marker byte (KIP-893): below 0 stands for null
        self._flush()
        with self._block(f"if {name} < 0:"):
            self._emit(f"{name} = None")
        with self._block("else:"):
            self._emit(f"{name} = {self._entity(shape.entity, end)}")

    def _length(self, flexible: bool, legacy_type: str, name: str) -> None:
        """Emit the reading of a length or count; -1 stands for null in either encoding."""
        if not flexible:
            self._fixed(legacy_type, name)
            self._flush()
            return
        self._flush()
        self._emit(f"{name} = frame[pos]")
        with self._block(f"if {name} > 127:"):
            self._emit(f"{name}, pos = read_uvarint(frame, pos)")
        with self._block("else:"):
            self._emit("pos += 1")
        self._emit(f"{name} -= 1")

    @contextmanager
    def _unless_null(self, shape: Shape, length: str, name: str) -> Iterator[None]:
        """Emit the branch for null; what is emitted in the body belongs to the branch for a value."""
        with self._block(f"if {length} < 0:"):
            if shape.optional:
                with self._block(f"if {length} != -1:"):
                    self._emit("raise malformed('a length is negative')")
                self._emit(f"{name} = None")
            else:
                self._emit("raise malformed('null where the schema allows none')")
        with self._block("else:"):
            yield

    def _bytes(self, cls: Any, shape: Shape, name: str, end: str) -> None:
        length, stop = self._name("n"), self._name("stop")
        self._length(cls.__flexible__, "int16" if shape.kafka_type == "string" else "int32", length)
        with self._unless_null(shape, length, name):
            self._emit(f"{stop} = pos + {length}")
            with self._block(f"if {stop} > {end}:"):
                self._emit("raise malformed('a length is beyond the end')")
            self._emit(f"{name} = {_BYTES[shape.kafka_type].format(f'frame[pos:{stop}]')}", f"pos = {stop}")

    def _array(self, cls: Any, shape: Shape, name: str, end: str) -> None:
        count = self._name("n")
        self._length(cls.__flexible__, "int32", count)
        least = _least_field_bytes(cls, shape.item)
        with self._unless_null(shape, count, name):
            with self._block(f"if {count} * {least} > {end} - pos:"):
                self._emit("raise malformed('a count is beyond the end')")
            self._emit(f"budget -= {count}")
            with self._block("if budget < 0:"):
                self._emit("raise malformed('too many elements', limit='kafka.max_request_elements')")
            self._items(cls, shape, name, count, end)

    def _items(self, cls: Any, shape: Shape, name: str, count: str, end: str) -> None:
        if shape.kafka_type in FIXED and shape.kafka_type not in _CONVERT:
            letter, size = FIXED[shape.kafka_type]
            self._emit(f"{name} = unpack_from(f'>{{{count}}}{letter}', frame, pos)", f"pos += {count} * {size}")
            return
        items = self._name("items")
        self._emit(f"{items} = []")
        with self._block(f"for _ in range({count}):"):
            if shape.entity is not None:
                item = self._entity(shape.entity, end)
            else:
                item = self._name()
                self._field(cls, shape.item, item, end)
                self._flush()
            self._emit(f"{items}.append({item})")
        self._emit(f"{name} = tuple({items})")

    # --- tagged fields (KIP-482) ---

    def _tags(self, cls: Any, tagged: dict[dataclasses.Field[Any], str], end: str) -> None:
        for field, name in tagged.items():
            self._emit(f"{name} = {self._constant('default', get_tagged_field_default(field))}")
        with self._block("if frame[pos]:"):
            if tagged:
                self._known_tags(cls, tagged, end)
            else:
                self._emit(f"pos, budget = skip_tags(frame, pos, {end}, budget)")
        with self._block("else:"):
            self._emit("pos += 1")

    def _known_tags(self, cls: Any, tagged: dict[dataclasses.Field[Any], str], end: str) -> None:
        count, tag, last, size, stop = (self._name(stem) for stem in ("n", "tag", "last", "size", "stop"))
        self._emit(f"{count}, pos = read_uvarint(frame, pos)", f"budget -= {count}")
        with self._block("if budget < 0:"):
            self._emit("raise malformed('too many tagged fields', limit='kafka.max_request_elements')")
        self._emit(f"{last} = -1")
        with self._block(f"for _ in range({count}):"):
            self._emit(f"{tag}, pos = read_uvarint(frame, pos)", f"{size}, pos = read_uvarint(frame, pos)")
            self._emit(f"{stop} = pos + {size}")
            with self._block(f"if {stop} > {end} or {tag} <= {last}:"):
                self._emit("raise malformed('a tagged field is too long or out of order')")
            self._emit(f"{last} = {tag}")
            for number, (field, name) in enumerate(tagged.items()):
                with self._block(f"{'el' if number else ''}if {tag} == {field.metadata['tag']}:"):
                    self._field(cls, shape_of(field), name, stop)
                    self._flush()
                    with self._block(f"if pos != {stop}:"):
                        self._emit("raise malformed('a tagged field has a length that is not its own')")
            self._emit(f"pos = {stop}")
