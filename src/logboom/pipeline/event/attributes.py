"""One attribute of many events as a column: what `attributes.NAME` and `attributes['NAME']` mean in a condition.

A name with dots is looked up as one name first, then by its parts in nested objects: `http.request.method` is the field
of that name, or `request.method` in `http`, or `method` in `request` in `http`. This is the rule of masks and of
`expect` too. The value is a text: numbers and booleans as they are written, objects and lists as JSON. It is also a
number if the text is a number.

`logboom.pipeline.sql.attributes` writes the same as Spark SQL; a test checks that both give the same answers. Knows
JSON texts and Arrow. Must not know conditions.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.flat_attributes import flat_texts
from logboom.pipeline.event.names import spellings

NUMBER: Final = r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?$"
"""Matches texts that are numbers, in RE2 and in Java."""

_PLAIN_NUMBER: Final = r"^-?[0-9]{1,15}([.][0-9]{1,15})?$"
"""Matches numbers that are converted as whole columns."""

_number = re.compile(NUMBER.replace("$", r"\Z"))
_encode = msgspec.json.encode
_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_objects = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_NO_FIELD: Final = re.compile(r'["\\\x00-\x1f]')
"""Characters that a msgspec struct does not allow in a field's name."""


def attribute_texts(attributes: pa.Array, name: str) -> pa.Array:
    """The attribute's text by row; null if a row has none. `attributes`: JSON objects, or null."""
    found = flat_texts(attributes, f"{_encode(name).decode()}:".encode())
    left = pa.array(np.flatnonzero(~found.known))
    if not len(left):
        return found.texts
    texts = pa.array(_decoded(attributes.take(left), name), pa.string())
    return pc.replace_with_mask(found.texts, pa.array(~found.known), texts)


def _decoded(attributes: pa.Array, name: str) -> list[str | None]:
    """As `attribute_texts`, each object decoded."""
    rows = rows_with_attribute(attributes, name).to_pylist()
    texts: list[str | None] = [None] * len(attributes)
    if rows:
        decode, get, tops = _reader(name)
        joined = b"[" + b",".join(attributes.take(pa.array(rows)).cast(pa.binary()).to_pylist()) + b"]"
        for row, one in zip(rows, decode(joined), strict=True):
            texts[row] = _text(one, get, tops)
    return texts


def attribute_numbers(attributes: pa.Array, name: str) -> pa.Array:
    """The attribute as a double by row; null if it is not a number."""
    texts = attribute_texts(attributes, name)
    is_plain = pc.fill_null(pc.match_substring_regex(texts, _PLAIN_NUMBER), False)
    numbers = pc.if_else(is_plain, texts, None).cast(pa.float64())
    others = pc.and_(texts.is_valid(), pc.invert(is_plain))
    if not pc.any(others).as_py():
        return numbers
    found = [number_of(text) for text in texts.filter(others).to_pylist()]
    return pc.replace_with_mask(numbers, others, pa.array(found, pa.float64()))


def rows_with_attribute(attributes: pa.Array, name: str) -> pa.Array:
    """The rows that may have the attribute: their JSON contains one of its possible names."""
    parts = name.split(".")
    starts = dict.fromkeys(".".join(parts[:1]) if depth else name for depth in range(len(parts)))
    hit = None
    for start in starts:
        here = pc.match_substring(attributes, f"{_encode(start).decode()}:")
        hit = here if hit is None else pc.or_(hit, here)
    return pc.indices_nonzero(pc.fill_null(hit, False))


def number_of(text: str | None) -> float | None:
    """The number that a text is.

    >>> number_of("1e3"), number_of("12 ms")
    (1000.0, None)
    """
    return float(text) if text is not None and _number.match(text) is not None else None


def with_member(attributes: pa.Array, name: str, values: pa.Array) -> pa.Array:
    """The objects with one more member at their end, if there is a value and no member of that name. `values`: JSON
    texts, null if there is none."""
    member = f"{_encode(name).decode()}:"
    has_value = pc.and_(values.is_valid(), attributes.is_valid())
    may_have = pc.indices_nonzero(pc.fill_null(pc.match_substring(attributes, member), False))
    if len(may_have):
        taken = [name in _raw(text) for text in attributes.take(may_have).to_pylist()]
        has_one = pc.is_in(pa.array(range(len(attributes)), may_have.type), value_set=may_have.filter(pa.array(taken)))
        has_value = pc.and_(has_value, pc.invert(has_one))
    is_empty = pc.equal(attributes, "{}")
    front = pc.if_else(is_empty, "{", pc.binary_join_element_wise(_without_end(attributes), ",", ""))
    longer = pc.binary_join_element_wise(front, member, values, "}", "")
    return pc.if_else(has_value, longer, attributes)


def _without_end(attributes: pa.Array) -> pa.Array:
    return pc.utf8_slice_codeunits(attributes, 0, -1)


_Tops = tuple[tuple[str, tuple[str, ...]], ...]
"""A possible location of a value: a field of the outermost object, and the path from there."""


@lru_cache(maxsize=256)
def _reader(name: str) -> tuple[Callable[[bytes], Any], Callable[[Any, str], Any], _Tops]:
    """A decoder that reads only the fields that the attribute needs, and a function that gets a field of a decoded
    object."""
    if _NO_FIELD.search(name) is not None:
        return _objects, _member, tuple((path[0], path[1:]) for path in spellings(name))
    fields: dict[str, str] = {}
    tops = []
    for path in spellings(name):
        field = fields.setdefault(path[0], f"top_{len(fields)}")
        tops.append((field, path[1:]))
    shape = msgspec.defstruct(
        "Attribute",
        [(field, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for field in fields.values()],
        rename={field: top for top, field in fields.items()},
        gc=False,
    )
    return msgspec.json.Decoder(list[shape]).decode, getattr, tuple(tops)  # type: ignore[valid-type]


def _member(tree: dict[str, Any], name: str) -> Any:
    return tree.get(name, msgspec.UNSET)


def _text(one: Any, get: Callable[[Any, str], Any], tops: _Tops) -> str | None:
    for field, path in tops:
        raw = get(one, field)
        for part in path:
            if raw is msgspec.UNSET or bytes(raw)[:1] != b"{":
                raw = msgspec.UNSET
                break
            raw = _raw(raw).get(part, msgspec.UNSET)
        if raw is not msgspec.UNSET:
            text = _as_text(bytes(raw))
            if text is not None:
                return text
    return None


def _as_text(raw: bytes) -> str | None:
    """The text of a JSON value, as Spark makes it of a variant; None for null."""
    first = raw[:1]
    if first == b'"':
        found: str = msgspec.json.decode(raw)
        return found
    if first == b"n":
        return None
    if first in b"{[":
        return _encode(msgspec.json.decode(raw), order="sorted").decode()
    text = raw.decode()
    if first in b"tf":
        return text
    if "e" in text or "E" in text:
        return _java_double(float(text))
    return text.rstrip("0").rstrip(".") if "." in text else text


def _java_double(number: float) -> str:
    """As Java's Double.toString."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    mantissa, _, exponent = f"{number!r}".partition("e")
    if not exponent:
        digits = mantissa.replace(".", "").replace("-", "").strip("0")
        shifted = f"{number:.{max(len(digits) - 1, 1)}e}"
        mantissa, _, exponent = shifted.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
