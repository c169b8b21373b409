"""One attribute of many events as a column: what `attributes.NAME` and `attributes['NAME']` mean in a condition.

A name with dots is found as one name where the event has it so, else by its parts in objects inside each other:
`http.request.method` is the field of that name, or `request.method` in `http`, or `method` in `request` in `http`.
This is the rule of masks and of `expect` too. The value is a text: numbers and true or false as they are written,
objects and lists as JSON. It is a number where the text is one.

`logboom.pipeline.sql.attributes` writes the same as Spark SQL; a test holds both to the same answers. Knows JSON texts
and Arrow. Must not know conditions.
"""

import re
from functools import lru_cache
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.names import spellings

NUMBER: Final = r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?$"
"""RE2 and Java's: the texts that are numbers."""

_number = re.compile(NUMBER.replace("$", r"\Z"))
_encode = msgspec.json.encode
_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def attribute_texts(attributes: pa.Array, name: str) -> pa.Array:
    """The attribute's text by row; null where a row has none. `attributes`: JSON objects, or null."""
    rows = rows_with_attribute(attributes, name)
    if not len(rows):
        return pa.nulls(len(attributes), pa.string())
    some = attributes if len(rows) == len(attributes) else attributes.take(rows)
    decode, tops = _reader(name)
    joined = b"[" + b",".join(some.cast(pa.binary()).to_pylist()) + b"]"
    texts = [_text(one, tops) for one in decode(joined)]
    if len(rows) == len(attributes):
        return pa.array(texts, pa.string())
    mask = pc.is_in(pa.array(range(len(attributes)), rows.type), value_set=rows)
    return pc.replace_with_mask(pa.nulls(len(attributes), pa.string()), mask, pa.array(texts, pa.string()))


def attribute_numbers(attributes: pa.Array, name: str) -> pa.Array:
    """The attribute as a double by row; null where it is no number."""
    return pa.array([number_of(text) for text in attribute_texts(attributes, name).to_pylist()], pa.float64())


def rows_with_attribute(attributes: pa.Array, name: str) -> pa.Array:
    """The rows that may have the attribute: those whose JSON has one of the names that it may stand under."""
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
    """The objects with one more member at their end, where there is a value and no member of that name. `values`: JSON
    texts, null where there is none."""
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


@lru_cache(maxsize=256)
def _reader(name: str) -> tuple[Any, tuple[tuple[str, tuple[str, ...]], ...]]:
    """A decoder of many objects that reads no more of each than the attribute needs, and where the value then is: the
    decoder's field, and the path from there."""
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
    return msgspec.json.Decoder(list[shape]).decode, tuple(tops)  # type: ignore[valid-type]


def _text(one: Any, tops: tuple[tuple[str, tuple[str, ...]], ...]) -> str | None:
    for field, path in tops:
        raw = getattr(one, field)
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
