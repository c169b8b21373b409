"""Counts how often parts of an expression are evaluated: some functions are expanded to SQL that repeats an argument.

Nested, these multiply, so that a short line of SQL would take minutes until the first batch and for each record. Knows
Catalyst's trees, as parsed. Must not know types.
"""

from itertools import islice
from typing import Any, Final, NamedTuple

from logboom.pipeline.sql.tree import Tree

TIMES_MAX: Final = 100
"""Limit for the evaluations of one part of an expression per record."""
ADDED_PARTS_MAX: Final = 2_000
"""Limit for the parts that expansion may add: they delay the start by a second or two."""

_COPIES: Final = {
    "between": 2,
    "nullif": 2,
    "nullifzero": 2,
    "regexp_extract": 3,
    "regexp_substr": 2,
    "right": 2,
}
"""How often the first argument is evaluated, by Spark or after `expression` and `regex` have expanded the function."""
_PATTERNS_OF: Final = frozenset(("LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny"))
_ADVICE: Final = (
    "BETWEEN, nullif, right and regexp_substr evaluate their first argument twice, regexp_extract three times, "
    "LIKE ANY and LIKE ALL once for each pattern, CASE x WHEN once for each branch; compute the inner expressions "
    "with a reshape first"
)


class _Size(NamedTuple):
    written: int
    """Number of parts as written."""
    evaluated: int
    """Number of parts as evaluated."""
    times: int
    """The most evaluations of one part."""


def written_fault(tree: Tree, node: Any, pieces: int) -> str | None:
    """Why a parsed expression is too large for its number of tokens: for each branch of `CASE x WHEN` the parser copies
    `x`. Stops counting at the limit."""
    allowed = pieces + ADDED_PARTS_MAX
    if sum(1 for _ in islice(tree.walk(node), allowed + 1)) <= allowed:
        return None
    return f"has more than {ADDED_PARTS_MAX:,} additional parts when it is expanded: {_ADVICE}"


def copies_fault(tree: Tree, node: Any) -> str | None:
    """Why an evaluated expression would be too large; None if it is not."""
    size = _size(tree, node)
    if size.times > TIMES_MAX:
        return f"evaluates one of its parts {size.times:,} times, and {TIMES_MAX} times is the limit: {_ADVICE}"
    if size.evaluated - size.written > ADDED_PARTS_MAX:
        return (
            f"has {size.evaluated:,} parts as it is evaluated, of {size.written:,} that are written, and at most "
            f"{ADDED_PARTS_MAX:,} may be added: {_ADVICE}"
        )
    return None


def copies_of(tree: Tree, node: Any, position: int) -> int:
    """How often the argument at a position is evaluated."""
    if position > 0:
        return 2 if position == 1 and tree.function(node) == "right" else 1
    if tree.kind(node) in _PATTERNS_OF:
        return int(node.patterns().size())
    return _COPIES.get(tree.function(node) or "", 1)


def _size(tree: Tree, node: Any) -> _Size:
    written, evaluated, times = 1, 1, 1
    for position, child in enumerate(tree.children(node)):
        inside, copies = _size(tree, child), copies_of(tree, node, position)
        written += inside.written
        evaluated += copies * inside.evaluated
        times = max(times, copies * inside.times)
    return _Size(written, evaluated, times)
