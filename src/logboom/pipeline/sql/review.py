"""Checks that a condition only uses SQL which no record can make fail the batch: returns one sentence, or None.

Knows trees and the rules of functions. Must not know types: Spark's analyser checks later that every function has
arguments of the right types.
"""

import re
from typing import Any, Final

from logboom.pipeline.sql.functions import ALLOWED, COUNT_MAX, GROWTH_MAX, REFUSED, Rule
from logboom.pipeline.sql.regex import REGEX_FUNCTIONS, regex_fault
from logboom.pipeline.sql.tree import ALIAS, COLUMN, LAMBDA, LITERAL, PARAMETER, Tree

_DEPTH_MAX: Final = 100
_LEAVES: Final = frozenset((COLUMN, LITERAL, PARAMETER))
_TYPED: Final = frozenset(("cast", "from_json", "variant_get", "try_variant_get"))
_ZONE_LAST: Final = frozenset(("from_utc_timestamp", "to_utc_timestamp"))
_DECIMAL: Final = re.compile(r"\b(?:decimal|dec|numeric)\b", re.IGNORECASE)
_INTERVAL: Final = re.compile(r"\binterval\b", re.IGNORECASE)
_NOT_HERE: Final = {
    "ScalarSubquery": "subqueries cannot be used here: there are no tables",
    "InSubquery": "subqueries cannot be used here: there are no tables",
    "Exists": "subqueries cannot be used here: there are no tables",
    "ListQuery": "subqueries cannot be used here: there are no tables",
    "PosParameter": "there are no parameters here; write the value",
    "NamedParameter": "there are no parameters here; write the value",
    **dict.fromkeys(("UnresolvedStar", "NamePlaceholder"), "name the columns; '*' stands for none here"),
}
_DIVISIONS: Final = frozenset(("/", "div", "%", "mod", "pmod"))
_GROUP_REFERENCE: Final = re.compile(r"\$(?:[0-9]|\{)")


class _RefusedError(Exception):
    """Contains the sentence."""


def review(tree: Tree, node: Any) -> str | None:
    """Why the expression is not allowed; None if it is. Unknown functions are left to Spark."""
    try:
        growth = _Review(tree).size(node, 0, None)
    except _RefusedError as refused:
        return str(refused)
    if growth > GROWTH_MAX:
        return f"may create {growth:.0f} times the size of a record; the limit is {GROWTH_MAX} times"
    return None


class _Review:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def size(self, node: Any, depth: int, parameters: frozenset[str] | None) -> float:
        """The size that the node's value can have, relative to the record's size; 0 for constants.

        `parameters`: those of the lambda that contains the node. Raises _RefusedError.
        """
        if depth > _DEPTH_MAX:
            raise _RefusedError(f"is nested deeper than {_DEPTH_MAX}")
        kind = self._tree.kind(node)
        if kind in _LEAVES:
            # The parser treats every name in such a lambda as a parameter.
            if parameters is not None and kind != LITERAL and self._tree.names(node)[0] not in parameters:
                raise _RefusedError("the lambda of an array function may only use its own parameters and constants")
            return 0.0 if kind == LITERAL else 1.0
        if kind in _NOT_HERE:
            raise _RefusedError(_NOT_HERE[kind])
        children = self._tree.children(node)
        name = self._tree.function(node)
        if kind == ALIAS and self._tree.kind(children[0]) == "SemiStructuredExtract":  # how `attributes:name` is parsed
            return self.size(self._tree.children(children[0])[0], depth + 1, parameters)
        if kind == ALIAS:
            return self.size(children[0], depth + 1, parameters)  # the checker reports this error
        if name is None:
            raise _RefusedError(f"{node.prettyName()} cannot be used here")
        rule = self._rule(name)
        if rule is None:
            return sum(self.size(child, depth + 1, parameters) for child in children)
        sizes = []
        for child in children:
            if self._tree.kind(child) == LAMBDA:
                sizes.append(self._lambda(name, rule, child, depth, parameters))
            else:
                sizes.append(self.size(child, depth + 1, parameters))
        self._check(name, rule, node, children)
        return sum(sizes) * max(rule.growth, self._own_growth(name, children))

    def _rule(self, name: str) -> Rule | None:
        """None for a function that does not exist: Spark's analyser will suggest another."""
        if name in REFUSED:
            raise _RefusedError(
                REFUSED[name] if _is_sentence(name) else f"{name}() cannot be used here: {REFUSED[name]}"
            )
        return ALLOWED.get(name)

    def _lambda(self, name: str, rule: Rule, node: Any, depth: int, parameters: frozenset[str] | None) -> float:
        if not rule.lambda_argument:
            raise _RefusedError(f"{name} cannot take a lambda here")
        if parameters is not None:
            raise _RefusedError("the lambda of an array function cannot contain another one")
        body, *names = self._tree.children(node)
        self.size(body, depth + 1, frozenset(self._tree.names(each)[0] for each in names))
        return 0.0

    def _check(self, name: str, rule: Rule, node: Any, children: list[Any]) -> None:
        if len(children) > rule.arguments_max:
            raise _RefusedError(f"{name} takes at most {rule.arguments_max} arguments here")
        constant = [self._tree.is_constant(child) for child in children]
        if rule.one_column and constant.count(False) > 1:
            raise _RefusedError(f"{name}: all its arguments but one should be constants")
        if any(position < len(children) and not constant[position] for position in rule.constants):
            raise _RefusedError(f"{name}: its first argument should be a constant")
        if rule.counts:
            for child in children[1:]:
                number = self._tree.whole_number(child)
                if number is None and self._tree.text(child) is None:
                    raise _RefusedError(f"{name}: lengths and numbers of digits should be constants")
                if number is not None and abs(number) > COUNT_MAX:
                    raise _RefusedError(f"{name}: {number} is too large; the limit is {COUNT_MAX}")
        if name in _TYPED:
            self._check_types(name, node, children)
        self._check_zones(name, children)
        if name in _DIVISIONS and self._tree.is_zero(children[-1]):
            raise _RefusedError("divides by 0, which is null for every record, so a comparison with it is never true")
        if name in REGEX_FUNCTIONS:
            fault = regex_fault(self._tree, name, node, children)
            if fault is not None:
                raise _RefusedError(f"{name}: {fault}")

    def _check_zones(self, name: str, children: list[Any]) -> None:
        zones = children[-1:] if name in _ZONE_LAST else children[:-1] if name == "convert_timezone" else []
        for zone in zones:
            text = self._tree.text(zone)
            if text is not None and not self._tree.is_time_zone(text):
                raise _RefusedError(f"{name}: {text!r} is not a time zone, so it fails for every record")

    def _check_types(self, name: str, node: Any, children: list[Any]) -> None:
        if name == "cast":
            types = str(node.dataType().sql())
        else:
            types = " ".join(self._tree.text(child) or "" for child in children[1:])
        if name == "from_json" and _DECIMAL.search(types):
            raise _RefusedError("from_json takes hours to make a decimal of 1e-999999999; take double, or variant_get")
        if _INTERVAL.search(types):
            raise _RefusedError("texts cannot be converted to intervals here; write INTERVAL 1 HOUR")

    def _own_growth(self, name: str, children: list[Any]) -> float:
        """The additional growth because of a call's constants."""
        texts = [self._tree.text(child) or "" for child in children]
        if name == "replace" and len(texts) == 3:
            return max(1.0, len(texts[2].encode()) / max(len(texts[1].encode()), 1))
        if name == "regexp_replace" and len(texts) >= 3:
            # An empty match before every character inserts the replacement there, and each reference inserts a match
            # again.
            return 1.0 + len(texts[2].encode()) + len(_GROUP_REFERENCE.findall(texts[2]))
        if name == "concat_ws":
            return 1.0 + len(texts[0].encode())
        if name == "array_join":
            return 1.0 + sum(len(text.encode()) for text in texts[1:])
        return 1.0


def _is_sentence(name: str) -> bool:
    """Whether the reason applies to a whole kind of functions, so that the sentence need not name this one."""
    return REFUSED[name].startswith(("aggregates", "random values", "the current time"))
