"""How much JVM memory an expression may take for an event, and the check that is evaluated before the expression.

An error inside an expression makes its event a dead letter. Exhausted memory does not: the JVM ends, and the next JVM
would end at the same event. `review` limits the size of an expression's result, but a text of 10 MB that is split at
each comma becomes a million objects of some hundred bytes. So an event that is too large for an expression is not
evaluated, and counts as one for which the expression failed.

Knows Catalyst's trees, the rules of functions, and measurements of their memory. Must not know rows or layouts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from logboom.base.units import MIB
from logboom.pipeline.sql.functions import ALLOWED
from logboom.pipeline.sql.tree import COLUMN, LAMBDA, Tree

EXPRESSION_BYTES_MAX: Final = 256 * MIB
"""The most memory of an expression for one event: a quarter of the smallest default heap of a run."""
_TEXT: Final = 4.0
"""Bytes for each byte of a text that a function creates: it exists as a Spark and as a Java string during
conversion."""
_OF_ATTRIBUTES: Final = 20.0
"""Bytes for each byte of JSON that becomes a variant."""
_UNBOUNDED_BELOW: Final = _TEXT
"""An expression that takes at most this much per byte can process every event that a broker accepts."""
_ELEMENTS: Final = 100.0
_HEAVY: Final[Mapping[str, float]] = {
    **dict.fromkeys(("split", "split_part"), _ELEMENTS),
    "from_json": _ELEMENTS,
    **dict.fromkeys(("parse_json", "try_parse_json"), _OF_ATTRIBUTES),
    **dict.fromkeys(("json_object_keys", "get_json_object", "translate", "url_encode"), _OF_ATTRIBUTES),
    **dict.fromkeys(("lcase", "lower", "ucase", "upper", "initcap", "to_json"), 3 * _TEXT),
    **dict.fromkeys(("array_join", "array_compact", "map_entries", "map_keys", "map_values"), _ELEMENTS / 2),
}
"""Bytes for each byte of the arguments, if the result consists of many objects. Measured with Spark 4.2.1 on texts with
an element at every second byte: 88 for `split`, 56 for a map out of `from_json`, 24 for `parse_json`."""
_SMALL: Final = (
    "! != <> < <= <=> = == > >= and or not in between equal_null isnull isnotnull isnan like ilike rlike regexp "
    "regexp_like startswith endswith contains % * + - / div mod pmod negative positive & | ^ ~ ascii bit_length length "
    "len char_length character_length octet_length crc32 hash md5 sha sha1 sha2 xxhash64 find_in_set luhn_check "
    "is_valid_utf8 instr locate position array_contains array_position array_size cardinality size map_contains_key "
    "exists forall json_array_length is_valid_variant is_variant_null"
)
_SMALL_RESULTS: Final = frozenset(_SMALL.split())
"""Functions whose result is a number, a boolean or a few bytes, whatever their arguments."""
_HARDLY_GROW: Final = frozenset(("lcase", "lower", "ucase", "upper", "initcap", "to_json"))
"""Functions that may enlarge rare characters three or six times (not the same characters)."""
_LISTS: Final = re.compile(r"\b(?:array|map|struct)\s*<", re.IGNORECASE)
_VARIANT_GET: Final = ("variant_get", "try_variant_get")
_GROW_BY_CONSTANTS: Final = frozenset(("replace", "regexp_replace", "concat_ws", "array_join"))
_TELLING: Final = frozenset(
    (*_HEAVY, *_GROW_BY_CONSTANTS, *(name for name, rule in ALLOWED.items() if rule.growth != 1))
)
"""An expression without these words takes no more memory than the columns that it reads and one text of them."""
_WORD: Final = re.compile(r"[a-z_][a-z_0-9]*")


def memory_factor(tree: Tree, sql: str) -> float:
    """Bytes of memory that the expression may take for each byte of the columns that it names."""
    words = set(_WORD.findall(sql.lower()))
    read = _OF_ATTRIBUTES if "attributes" in words else 0.0
    if not words & _TELLING and _LISTS.search(sql) is None:
        return read + _TEXT  # without asking the JVM for the tree
    return read + _Estimate(tree).of(tree.parse(sql))[1]


def event_bytes_max(tree: Tree, sql: str) -> int | None:
    """The largest total size of the columns that it names; None if there is no limit."""
    factor = memory_factor(tree, sql)
    return None if factor <= _UNBOUNDED_BELOW else int(EXPRESSION_BYTES_MAX / factor)


def variant_of(text: str) -> str:
    """The SQL for the variant of a JSON column. A column that is too large becomes JSON null, which no event has."""
    most = int(EXPRESSION_BYTES_MAX / _OF_ATTRIBUTES)
    return f"CASE WHEN octet_length({text}) > {most} THEN parse_json('null') ELSE try_parse_json({text}) END"


class _Estimate:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def of(self, node: Any) -> tuple[float, float]:
        """The size of the node's value and the memory for it, both in bytes per byte of the record."""
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
            done += needed if size else 0.0  # only a number is kept of it
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
        """The type that a call returns, if it is given in the call."""
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
    """The expression for the bytes of an event that this SQL refers to; None if it refers to no column that can be
    large."""
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
