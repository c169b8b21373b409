"""How much memory of the JVM an expression may take for an event, and the test of it that stands in front of the rest.

An error inside an expression makes its event a dead letter. Memory that is full makes none: the JVM ends, and so would
the next one at the same event. `review` bounds what an expression makes of a record, but a text of 10 MB that is split
at each of its commas is a million objects of some hundred bytes. So an event that is too large for an expression is not
given to it, and has no answer, like every event on which it fails.

Knows Catalyst's trees, the rules of functions, and what was measured of them. Must not know rows or layouts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from logboom.base.units import MIB
from logboom.pipeline.sql.functions import ALLOWED
from logboom.pipeline.sql.tree import COLUMN, LAMBDA, Tree

EXPRESSION_BYTES_MAX: Final = 256 * MIB
"""What an expression may take for one event: a quarter of the smallest heap that a run has by itself."""
_TEXT: Final = 4.0
"""Bytes for each byte of a text that a function makes: of Spark's and of Java's, while one is made of the other."""
_OF_ATTRIBUTES: Final = 20.0
"""For each byte of JSON that becomes a variant."""
_UNBOUNDED_BELOW: Final = _TEXT
"""No event that a broker takes is too large for what takes no more."""
_ELEMENTS: Final = 100.0
_HEAVY: Final[Mapping[str, float]] = {
    **dict.fromkeys(("split", "split_part"), _ELEMENTS),
    "from_json": _ELEMENTS,
    **dict.fromkeys(("parse_json", "try_parse_json"), _OF_ATTRIBUTES),
    **dict.fromkeys(("json_object_keys", "get_json_object", "translate", "url_encode"), _OF_ATTRIBUTES),
    **dict.fromkeys(("lcase", "lower", "ucase", "upper", "initcap", "to_json"), 3 * _TEXT),
    **dict.fromkeys(("array_join", "array_compact", "map_entries", "map_keys", "map_values"), _ELEMENTS / 2),
}
"""For each byte of the arguments, where a result is of many objects. Measured with Spark 4.2.1 on texts of one element
every other byte: 88 for `split`, 56 for a map out of `from_json`, 24 for `parse_json`."""
_SMALL: Final = (
    "! != <> < <= <=> = == > >= and or not in between equal_null isnull isnotnull isnan like ilike rlike regexp "
    "regexp_like startswith endswith contains % * + - / div mod pmod negative positive & | ^ ~ ascii bit_length length "
    "len char_length character_length octet_length crc32 hash md5 sha sha1 sha2 xxhash64 find_in_set luhn_check "
    "is_valid_utf8 instr locate position array_contains array_position array_size cardinality size map_contains_key "
    "exists forall json_array_length is_valid_variant is_variant_null"
)
_SMALL_RESULTS: Final = frozenset(_SMALL.split())
"""Functions whose result is a number, a truth or a few bytes, whatever their arguments."""
_HARDLY_GROW: Final = frozenset(("lcase", "lower", "ucase", "upper", "initcap", "to_json"))
"""By three or six times of characters that are rare, and not of the same ones."""
_LISTS: Final = re.compile(r"\b(?:array|map|struct)\s*<", re.IGNORECASE)
_VARIANT_GET: Final = ("variant_get", "try_variant_get")
_GROW_BY_CONSTANTS: Final = frozenset(("replace", "regexp_replace", "concat_ws", "array_join"))
_TELLING: Final = frozenset(
    (*_HEAVY, *_GROW_BY_CONSTANTS, *(name for name, rule in ALLOWED.items() if rule.growth != 1))
)
"""Words without which an expression takes no more than what it reads, and a text of it."""
_WORD: Final = re.compile(r"[a-z_][a-z_0-9]*")


def memory_factor(tree: Tree, sql: str) -> float:
    """Bytes of memory that the expression may take for each byte of the columns that it names."""
    words = set(_WORD.findall(sql.lower()))
    read = _OF_ATTRIBUTES if "attributes" in words else 0.0
    if not words & _TELLING and _LISTS.search(sql) is None:
        return read + _TEXT  # without asking the JVM for the tree
    return read + _Estimate(tree).of(tree.parse(sql))[1]


def event_bytes_max(tree: Tree, sql: str) -> int | None:
    """How large the columns that it names may be together; None if any event may have its answer."""
    factor = memory_factor(tree, sql)
    return None if factor <= _UNBOUNDED_BELOW else int(EXPRESSION_BYTES_MAX / factor)


def variant_of(text: str) -> str:
    """The SQL for the variant of a column of JSON. One that is too large is an empty one that no event has."""
    most = int(EXPRESSION_BYTES_MAX / _OF_ATTRIBUTES)
    return f"CASE WHEN octet_length({text}) > {most} THEN parse_json('null') ELSE try_parse_json({text}) END"


class _Estimate:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def of(self, node: Any) -> tuple[float, float]:
        """The size of the node's value, in sizes of the record, and the memory for it, in bytes for each of the
        record's."""
        kind = self._tree.kind(node)
        if kind == COLUMN:
            return 1.0, 0.0
        name = self._tree.function(node) or ""
        sizes, memory = 0.0, 0.0
        done = 0.0
        for child in self._tree.children(node):
            if self._tree.kind(child) == LAMBDA:  # for one element at a time
                continue
            size, needed = self.of(child)
            memory = max(memory, done + needed)
            done += needed if size else 0.0  # a number is all that is left of it
            sizes += size
        own = sizes * self._weight(name, node)
        result = 0.0 if name in _SMALL_RESULTS else sizes * self._own_growth(name, node)
        return result, max(memory, done) + own

    def _weight(self, name: str, node: Any) -> float:
        if _LISTS.search(self._type(name, node)):
            return _ELEMENTS
        if name in _HEAVY:
            return _HEAVY[name]
        return _TEXT if name in _SMALL_RESULTS else _TEXT * self._own_growth(name, node)

    def _type(self, name: str, node: Any) -> str:
        """The type that a call gives, where it names one."""
        if name == "cast":
            return str(node.dataType().sql())
        return (self._tree.text(self._tree.children(node)[-1]) or "") if name in _VARIANT_GET else ""

    def _own_growth(self, name: str, node: Any) -> float:
        if name in _HARDLY_GROW:
            return 1.0
        rule = ALLOWED.get(name)
        texts = [self._tree.text(child) or "" for child in self._tree.children(node)[1:]]
        by_constants = 1.0 + max((len(text.encode()) for text in texts), default=0)
        if name in _GROW_BY_CONSTANTS:
            return by_constants
        return 1.0 if rule is None else max(1.0, rule.growth)


def sizes_of(tree: Tree, sql: str, columns: Sequence[tuple[str, str]]) -> Any | None:
    """The expression for the bytes of an event that this SQL names; None if it names none that can be large."""
    words = set(_WORD.findall(sql.lower()))
    found: Any | None = None
    for size in (size for name, kind in columns if name in words for size in _sizes(tree, name, kind)):
        found = size if found is None else tree.new("Add", found, size)
    return found


def _sizes(tree: Tree, name: str, kind: str) -> Iterator[Any]:
    if kind in ("string", "binary"):
        yield tree.parse(f"coalesce(octet_length(`{name}`), 0)")
    if kind == "variant":
        for part in ("getValue", "getMetadata"):
            read = tree.new(
                "objects.Invoke",
                tree.parse(f"`{name}`"),
                part,
                tree.plain_type("BinaryType"),
                tree.seq([]),
                tree.seq([]),
                True,
                True,
                True,
            )
            yield tree.new("Coalesce", tree.seq([tree.new("OctetLength", read), tree.parse("0")]))
        yield tree.parse(f"CASE WHEN is_variant_null(`{name}`) THEN {EXPRESSION_BYTES_MAX} ELSE 0 END")  # `variant_of`
