"""How often the parts of an expression are evaluated: some functions stand for SQL that has an argument several times.

Inside each other they multiply, so that a short line of SQL would take minutes until its first batch, and as long for
each record. Knows Catalyst's trees, as the parser gives them. Must not know types.
"""

from itertools import islice
from typing import Any, Final, NamedTuple

from logboom.pipeline.sql.tree import Tree

TIMES_MAX: Final = 100
"""So often may one part of an expression be evaluated for a record."""
ADDED_PARTS_MAX: Final = 2_000
"""So many parts may an expression have beside those that it is written with: a second or two of a start."""

_COPIES: Final = {
    "between": 2,
    "nullif": 2,
    "nullifzero": 2,
    "regexp_extract": 3,
    "regexp_substr": 2,
    "right": 2,
}
"""So often is the first argument evaluated: by Spark, or where `expression` and `regex` write the function out."""
_PATTERNS_OF: Final = frozenset(("LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny"))
_ADVICE: Final = (
    "BETWEEN, nullif, right and regexp_substr evaluate what stands first in them twice, regexp_extract three times, "
    "LIKE ANY and LIKE ALL for each pattern, CASE x WHEN for each branch; compute the inner ones with a reshape first"
)


class _Size(NamedTuple):
    written: int
    """Parts."""
    evaluated: int
    """The same with those counted several times that are evaluated several times."""
    times: int
    """The most that a part is evaluated."""


def written_fault(tree: Tree, node: Any, pieces: int) -> str | None:
    """Why an expression of this many words and signs is too large as it was parsed: the parser gives each branch of
    `CASE x WHEN` an `x` of its own. No more is walked than may be."""
    allowed = pieces + ADDED_PARTS_MAX
    if sum(1 for _ in islice(tree.walk(node), allowed + 1)) <= allowed:
        return None
    return f"has more than {ADDED_PARTS_MAX:,} parts beside those that are written: {_ADVICE}"


def copies_fault(tree: Tree, node: Any) -> str | None:
    """Why an expression is too large as it is evaluated, None if it is not."""
    size = _size(tree, node)
    if size.times > TIMES_MAX:
        return f"evaluates a part of it {size.times:,} times, and {TIMES_MAX} times is the most: {_ADVICE}"
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
