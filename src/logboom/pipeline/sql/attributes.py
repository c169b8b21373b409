"""Rewrites `attributes.NAME` and `attributes['NAME']` in SQL to typed access of the VARIANT column.

In Spark `attributes` is a VARIANT, whose fields have no type: without this a file would have to contain
`variant_get(attributes, '$["url.path"]', 'string')`. The type is chosen as in `logboom.pipeline.event.attributes`: a
text, or a number where it is compared with one or used in arithmetic.

Knows only Catalyst's trees.
"""

from typing import Any, Final

from logboom.pipeline.event.attributes import NUMBER
from logboom.pipeline.event.names import spellings
from logboom.pipeline.sql import literals
from logboom.pipeline.sql.tree import COLUMN, Tree

_ATTRIBUTES: Final = "attributes"
_COMPARISONS: Final = frozenset(
    ("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "In")
)
_ARITHMETIC: Final = frozenset(("Add", "Subtract", "Multiply", "Divide", "Remainder", "UnaryMinus", "IntegralDivide"))
_OF_NUMBERS: Final = frozenset(
    ("abs", "ceil", "ceiling", "exp", "floor", "ln", "log", "log10", "log2", "pow", "power", "round", "sign", "sqrt")
)


class PlainAttributes:
    """Rewrites the expressions of one JVM."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def parsed(self, sql: str) -> Any:
        """Parse an expression and rewrite it."""
        return self.rewrite(self._tree.parse(sql), sql)

    def rewrite(self, parsed: Any, sql: str) -> Any:
        """Replace every plain use of an attribute in a parsed expression by an expression that reads it."""
        # Without the word there is none. Walking the tree would call the JVM some hundred times.
        return self._rewritten(parsed, "text") if _ATTRIBUTES in sql.lower() else parsed

    def _rewritten(self, node: Any, wanted: str) -> Any:
        name = self._name(node)
        if name is not None:
            return self._tree.parse(_SQL[wanted](name))
        children = self._tree.children(node)
        if not children:
            return node
        wanted = self._wanted_inside(node, children)
        changed = [self._rewritten(child, wanted) for child in children]
        if all(old is new for old, new in zip(children, changed, strict=True)):
            return node
        return self._tree.with_children(node, changed)

    def _wanted_inside(self, node: Any, children: list[Any]) -> str:
        kind = self._tree.kind(node)
        function = self._tree.function(node)
        if kind in _ARITHMETIC or function in _OF_NUMBERS:
            return "number"
        if kind in _COMPARISONS or function == "between":
            others = [child for child in children if self._name(child) is None]
            if others and all(self._is_number(other) for other in others):
                return "number"
            if others and all(self._is_boolean(other) for other in others):
                return "boolean"
        return "text"

    def _name(self, node: Any) -> str | None:
        """The name of the attribute that a node refers to, its parts joined by dots."""
        kind = self._tree.kind(node)
        if kind == COLUMN:
            first, *others = self._tree.names(node)
            return ".".join(others) if others and first.lower() == _ATTRIBUTES else None
        if kind != "UnresolvedExtractValue":
            return None
        holder, key = self._tree.children(node)
        text = self._tree.text(key)
        if text is None:
            return None
        if self._tree.kind(holder) == COLUMN and ".".join(self._tree.names(holder)).lower() == _ATTRIBUTES:
            return text
        outer = self._name(holder)
        return None if outer is None else f"{outer}.{text}"

    def _is_number(self, node: Any) -> bool:
        kind = self._tree.kind(node)
        if kind == "UnaryMinus" or kind in _ARITHMETIC:
            return all(self._is_number(child) or self._name(child) is not None for child in self._tree.children(node))
        sql = self._tree.literal(node)
        return sql is not None and literals.is_number(sql)

    def _is_boolean(self, node: Any) -> bool:
        sql = self._tree.literal(node)
        return sql is not None and literals.is_boolean(sql)


def text_sql(name: str) -> str:
    """SQL over `attributes` for the text of an attribute.

    >>> text_sql("path")
    "try_variant_get(attributes, '$[\\\\'path\\\\']', 'string')"
    """
    found = [
        f"try_variant_get(attributes, {_literal('$' + ''.join(map(_step, path)))}, 'string')"
        for path in spellings(name)
    ]
    return found[0] if len(found) == 1 else f"coalesce({', '.join(found)})"


def number_sql(name: str) -> str:
    """The same for the number in the text; null if it is not a number."""
    text = text_sql(name)
    return f"CASE WHEN regexp_like({text}, '{NUMBER}') THEN try_cast({text} AS DOUBLE) END"


def _boolean_sql(name: str) -> str:
    return f"CASE {text_sql(name)} WHEN 'true' THEN true WHEN 'false' THEN false END"


_SQL: Final = {"text": text_sql, "number": number_sql, "boolean": _boolean_sql}


def _step(part: str) -> str:
    return f"['{part}']" if "'" not in part else f'["{part}"]'


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
