"""Reading requests from strangers: kio's schema compiled into one straight-line Python function per API and version.

Every count and length is checked against the bytes that are left before anything is reserved for it, every element
counts against a budget, and strings must be UTF-8. Whatever the bytes are, a reader gives an entity or raises
MalformedError. `records` fields come out as writable views of the frame itself; nothing else refers to it afterwards.
Why not kio's own reader: docs/decisions/0004-reading-requests.md. This module knows kio's schema and no connection.
"""

from __future__ import annotations

import dataclasses
import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeAlias, Union, get_args, get_origin
from uuid import UUID

from kio.serial._implicit_defaults import get_tagged_field_default

from logboom.base.errors import LogboomError
from logboom.kafka.messages import request_class


class MalformedError(LogboomError):
    """Bytes that are no request of the API and version they claim to be."""


Reader: TypeAlias = Callable[[memoryview, int, int], tuple[Any, int]]
"""(frame, position of the body, most elements) -> (kio entity, position behind it)."""

# struct's letter, bytes on the wire, expression that turns the raw value into kio's (None: as it is)
_FIXED: Final[dict[str, tuple[str, int, str | None]]] = {
    "bool": ("?", 1, None),
    "int8": ("b", 1, None),
    "int16": ("h", 2, None),
    "int32": ("i", 4, None),
    "int64": ("q", 8, None),
    "uint8": ("B", 1, None),
    "uint16": ("H", 2, None),
    "uint32": ("I", 4, None),
    "uint64": ("Q", 8, None),
    "float64": ("d", 8, None),
    "uuid": ("16s", 16, "uuid({0})"),
    "timedelta_i32": ("i", 4, "timedelta(0, 0, {0} * 1000)"),
    "timedelta_i64": ("q", 8, "timedelta(0, 0, {0} * 1000)"),
}
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
    """An unsigned varint of at most 32 bits: (value, position behind it); IndexError at the end of the frame."""
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
    """Pass over tagged fields nobody here knows (KIP-482): (position behind them, budget left)."""
    count, position = read_uvarint(frame, position)
    budget -= count
    if budget < 0:
        raise MalformedError("too many tagged fields")
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        if size > end - position:
            raise MalformedError("a tagged field is longer than the request")
        position += size
    return position, budget


def _malformed(reason: str) -> MalformedError:
    return MalformedError(reason)


# --- the compiler --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Shape:
    """What an annotation of kio says: optional or not, an array or not, of which entity or primitive."""

    optional: bool
    array: bool
    entity: Any | None
    kafka_type: str


def _shape(field: dataclasses.Field[Any]) -> _Shape:
    annotation: Any = field.type
    optional = False
    if get_origin(annotation) in (UnionType, Union):
        optional = True
        annotation = next(one for one in get_args(annotation) if one is not NoneType)
    array = get_origin(annotation) is tuple
    if array:
        annotation = get_args(annotation)[0]
    entity = annotation if dataclasses.is_dataclass(annotation) else None
    return _Shape(optional, array, entity, field.metadata.get("kafka_type", ""))


def _least_bytes(cls: Any) -> int:
    """The fewest bytes an entity takes on the wire: what bounds the count of an array of them."""
    total = 1 if cls.__flexible__ else 0
    for field in dataclasses.fields(cls):
        if "tag" in field.metadata:
            continue
        total += _least_field_bytes(cls, _shape(field))
    return max(total, 1)


def _least_field_bytes(cls: Any, shape: _Shape) -> int:
    if shape.array:
        return 1 if cls.__flexible__ else 4
    if shape.entity is not None:
        return 1 if shape.optional else _least_bytes(shape.entity)
    if shape.kafka_type in _FIXED:
        return _FIXED[shape.kafka_type][1]
    if cls.__flexible__:
        return 1
    return 2 if shape.kafka_type == "string" else 4


class _Compiler:
    """Writes the source of one reader. Life: one call of `compile`.

    Neighbouring values of fixed size are collected in a run and read by one `struct` call, together with the length
    of what follows them where that has a fixed size too.
    """

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self._lines: list[str] = []
        self._indent = 2
        self._names = 0
        self._run: list[tuple[str, str, str | None]] = []
        self._scope: dict[str, Any] = {
            "IndexErrors": (IndexError, struct.error),
            "MalformedError": MalformedError,
            "malformed": _malformed,
            "new": object.__new__,
            "read_uvarint": read_uvarint,
            "skip_tags": skip_tags,
            "timedelta": timedelta,
            "unpack_from": struct.unpack_from,
            "uuid": _uuid,
        }

    def compile(self) -> Reader:
        name = self._cls.__name__
        result = self._entity(self._cls, "end")
        source = "\n".join(
            [
                "def read(frame, pos, budget):",
                "    end = len(frame)",
                "    try:",
                *self._lines,
                f"        return {result}, pos",
                "    except IndexErrors:",
                f"        raise malformed('{name} ends too early') from None",
                "    except UnicodeDecodeError:",
                f"        raise malformed('{name} holds a string that is no UTF-8') from None",
                "    except OverflowError:",
                f"        raise malformed('{name} holds a duration out of range') from None",
                "",
            ]
        )
        filename = f"<reader of {self._cls.__module__}.{name}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        exec(compile(source, filename, "exec"), self._scope)  # noqa: S102  # the source is made of kio's schema alone
        reader: Reader = self._scope["read"]
        return reader

    # --- writing lines ---

    def _emit(self, *lines: str) -> None:
        self._lines.extend("    " * self._indent + line for line in lines)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self._emit(head)
        self._indent += 1
        yield
        self._indent -= 1

    def _name(self, stem: str = "v") -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def _constant(self, stem: str, value: Any) -> str:
        name = self._name(stem)
        self._scope[name] = value
        return name

    # --- runs of fixed size ---

    def _fixed(self, kafka_type: str, name: str) -> None:
        letter, _, convert = _FIXED[kafka_type]
        self._run.append((letter, name, convert))

    def _flush(self) -> None:
        if not self._run:
            return
        layout = struct.Struct(">" + "".join(letter for letter, _, _ in self._run))
        unpack = self._constant("unpack", layout.unpack_from)
        targets = ", ".join(name for _, name, _ in self._run)
        self._emit(f"{targets}, = {unpack}(frame, pos)", f"pos += {layout.size}")
        self._emit(*(f"{name} = {convert.format(name)}" for _, name, convert in self._run if convert is not None))
        self._run = []

    # --- entities and fields ---

    def _entity(self, cls: Any, end: str) -> str:
        """Emit the reading of an entity; gives the name that holds it."""
        fields = dataclasses.fields(cls)
        tagged = [field for field in fields if "tag" in field.metadata]
        names = {field.name: self._name() for field in fields}
        for field in fields:
            if field not in tagged:
                self._field(cls, _shape(field), names[field.name], end)
        self._flush()
        if cls.__flexible__:
            self._tags(cls, {field: names[field.name] for field in tagged}, end)
        else:
            assert not tagged, "tags are a matter of flexible versions"
        result = self._name("entity")
        self._emit(f"{result} = new({self._constant('Entity', cls)})")
        for field in fields:
            # The class is frozen; its slots are filled through their descriptors, at a third of its __init__'s price.
            setter = self._constant("set", getattr(cls, field.name).__set__)
            self._emit(f"{setter}({result}, {names[field.name]})")
        return result

    def _field(self, cls: Any, shape: _Shape, name: str, end: str) -> None:
        if shape.array:
            self._array(cls, shape, name, end)
        elif shape.entity is not None:
            self._nested(shape, name, end)
        elif shape.kafka_type in _FIXED:
            self._fixed(shape.kafka_type, name)
        else:
            self._bytes(cls, shape, name, end)

    def _nested(self, shape: _Shape, name: str, end: str) -> None:
        self._flush()
        if not shape.optional:
            self._emit(f"{name} = {self._entity(shape.entity, end)}")
            return
        self._fixed("int8", name)  # the marker of KIP-893: below 0 there is none
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
    def _unless_null(self, shape: _Shape, length: str, name: str) -> Iterator[None]:
        """Emit the branch for null, then run the body in the branch for a value."""
        with self._block(f"if {length} < 0:"):
            if shape.optional:
                with self._block(f"if {length} != -1:"):
                    self._emit("raise malformed('a length is negative')")
                self._emit(f"{name} = None")
            else:
                self._emit("raise malformed('null where the schema allows none')")
        with self._block("else:"):
            yield

    def _bytes(self, cls: Any, shape: _Shape, name: str, end: str) -> None:
        length, stop = self._name("n"), self._name("stop")
        self._length(cls.__flexible__, "int16" if shape.kafka_type == "string" else "int32", length)
        with self._unless_null(shape, length, name):
            self._emit(f"{stop} = pos + {length}")
            with self._block(f"if {stop} > {end}:"):
                self._emit("raise malformed('a length is beyond the end')")
            self._emit(f"{name} = {_BYTES[shape.kafka_type].format(f'frame[pos:{stop}]')}", f"pos = {stop}")

    def _array(self, cls: Any, shape: _Shape, name: str, end: str) -> None:
        count = self._name("n")
        self._length(cls.__flexible__, "int32", count)
        if shape.entity is not None:
            least = _least_bytes(shape.entity)
        else:
            least = _least_field_bytes(cls, dataclasses.replace(shape, array=False))
        with self._unless_null(shape, count, name):
            with self._block(f"if {count} * {least} > {end} - pos:"):
                self._emit("raise malformed('a count is beyond the end')")
            self._emit(f"budget -= {count}")
            with self._block("if budget < 0:"):
                self._emit("raise malformed('too many elements')")
            self._items(cls, shape, name, count, end)

    def _items(self, cls: Any, shape: _Shape, name: str, count: str, end: str) -> None:
        letter, size, convert = _FIXED.get(shape.kafka_type, ("", 0, None))
        if size and convert is None:
            self._emit(f"{name} = unpack_from(f'>{{{count}}}{letter}', frame, pos)", f"pos += {count} * {size}")
            return
        items = self._name("items")
        self._emit(f"{items} = []")
        with self._block(f"for _ in range({count}):"):
            if shape.entity is not None:
                item = self._entity(shape.entity, end)
            else:
                item = self._name()
                self._field(cls, dataclasses.replace(shape, array=False, optional=False), item, end)
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
            self._emit("raise malformed('too many tagged fields')")
        self._emit(f"{last} = -1")
        with self._block(f"for _ in range({count}):"):
            self._emit(f"{tag}, pos = read_uvarint(frame, pos)", f"{size}, pos = read_uvarint(frame, pos)")
            self._emit(f"{stop} = pos + {size}")
            with self._block(f"if {stop} > {end} or {tag} <= {last}:"):
                self._emit("raise malformed('a tagged field is too long or out of order')")
            self._emit(f"{last} = {tag}")
            for number, (field, name) in enumerate(tagged.items()):
                with self._block(f"{'el' if number else ''}if {tag} == {field.metadata['tag']}:"):
                    self._field(cls, _shape(field), name, stop)
                    self._flush()
                    with self._block(f"if pos != {stop}:"):
                        self._emit("raise malformed('a tagged field has a length that is not its own')")
            self._emit(f"pos = {stop}")
