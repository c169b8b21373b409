"""What kio's entity classes say about their fields, and writing source code from it.

`reading`, `writing` and `error_counts` compile one function per entity class with this. Nothing here runs per request.
"""

from __future__ import annotations

import dataclasses
import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

FIXED: Final[dict[str, tuple[str, int]]] = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint8": ("B", 1),
    "uint16": ("H", 2),
    "uint32": ("I", 4),
    "uint64": ("Q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
    "error_code": ("h", 2),
    "timedelta_i32": ("i", 4),
    "timedelta_i64": ("q", 8),
    "datetime_i64": ("q", 8),
}
"""Types of fixed size: the letter of `struct`, bytes on the wire."""


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """What an annotation of kio says: whether it is optional, whether it is an array, of which entity or primitive."""

    optional: bool
    array: bool
    entity: Any | None
    kafka_type: str

    @property
    def item(self) -> Shape:
        """The shape of an array's items; they are never null."""
        return dataclasses.replace(self, array=False, optional=False)


def shape_of(field: dataclasses.Field[Any]) -> Shape:
    """The shape of a field."""
    annotation: Any = field.type
    optional = False
    if get_origin(annotation) in (UnionType, Union):
        optional = True
        annotation = next(one for one in get_args(annotation) if one is not NoneType)
    array = get_origin(annotation) is tuple
    if array:
        annotation = get_args(annotation)[0]
    entity = annotation if dataclasses.is_dataclass(annotation) else None
    return Shape(optional, array, entity, field.metadata.get("kafka_type", ""))


def split_fields(cls: Any) -> tuple[list[dataclasses.Field[Any]], list[dataclasses.Field[Any]]]:
    """Fields that are always on the wire, and tagged fields (KIP-482) in the order of their tags."""
    fields = dataclasses.fields(cls)
    tagged = sorted((field for field in fields if "tag" in field.metadata), key=lambda field: field.metadata["tag"])
    assert cls.__flexible__ or not tagged, "only flexible versions have tagged fields"
    return [field for field in fields if "tag" not in field.metadata], tagged


class Source:
    """The lines of a function that is being written, and the values it refers to."""

    def __init__(self, **scope: Any) -> None:
        self._lines: list[str] = []
        self._indent = 1
        self._names = 0
        self._scope = scope

    def emit(self, *lines: str) -> None:
        """Append lines at the current indentation."""
        self._lines.extend("    " * self._indent + line for line in lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indent what is emitted inside, under `head`."""
        self.emit(head)
        self._indent += 1
        yield
        self._indent -= 1

    def name(self, stem: str = "v") -> str:
        """A new variable name."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: Any) -> str:
        """A new name that the function finds `value` under."""
        name = self.name(stem)
        self._scope[name] = value
        return name

    def struct(self, letters: str) -> tuple[str, Struct]:
        """A Struct in network byte order: the name that the function finds it under, and the Struct."""
        layout = Struct(">" + letters)
        return self.constant("layout", layout), layout

    def build(self, signature: str, filename: str) -> Any:
        """Compile `def SIGNATURE:` with these lines. Tracebacks show them under `filename`."""
        source = "\n".join([f"def {signature}:", *self._lines, ""])
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        exec(compile(source, filename, "exec"), self._scope)  # noqa: S102  # the source is made of kio's schema alone
        return self._scope[signature.partition("(")[0]]
