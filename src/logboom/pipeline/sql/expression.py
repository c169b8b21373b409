"""Converts SQL of a file to the expression that is evaluated: rewrites attributes, uses RE2/J for regular expressions,
and prevents evaluation outside its guard.

Spark resolves BETWEEN and `nullif` to an expression with a common part (`With`), which its optimiser computes in a
separate projection before the expression. An exception there is outside of the `TryEval` around the whole expression,
and fails the batch. Also, an expression with such a part cannot be resolved twice. So both are expanded here.

Knows only Catalyst's trees.
"""

from typing import Any, Final

from logboom.pipeline.plan.sampling import CAUGHT
from logboom.pipeline.sql.attributes import PlainAttributes
from logboom.pipeline.sql.regex import OnRe2
from logboom.pipeline.sql.tree import COLUMN, Tree

_WRITTEN_OUT: Final = {
    "between": "_argument_0 >= _argument_1 AND _argument_0 <= _argument_2",
    "nullif": "CASE WHEN _argument_0 = _argument_1 THEN NULL ELSE _argument_0 END",
}


def plain_expression(tree: Tree, sql: str) -> Any:
    """The expression with attributes rewritten and regular expressions unchanged. It can be compared with another
    expression, while two compiled patterns are never equal."""
    return _written_out(tree, PlainAttributes(tree).parsed(sql))


def record_expression(tree: Tree, sql: str) -> Any:
    """The expression for evaluation on records, inside a guard."""
    return OnRe2(tree).rewrite(plain_expression(tree, sql))


def replaced(tree: Tree, node: Any, by: dict[str, Any]) -> Any:
    """The expression with some columns replaced by other expressions."""
    if tree.kind(node) == COLUMN:
        return by.get(".".join(tree.names(node)), node)
    children = tree.children(node)
    return with_children(tree, node, children, [replaced(tree, one, by) for one in children])


def with_children(tree: Tree, node: Any, children: list[Any], changed: list[Any]) -> Any:
    """The node with other children; the same node if they are unchanged."""
    if all(old is new for old, new in zip(children, changed, strict=True)):
        return node
    return tree.with_children(node, changed)


def _written_out(tree: Tree, node: Any) -> Any:
    children = tree.children(node)
    if not children:
        return node
    changed = [_written_out(tree, one) for one in children]
    function = tree.function(node) or ""
    if function == CAUGHT:
        return tree.new("TryEval", *changed)
    plain = _WRITTEN_OUT.get(function)
    if plain is None:
        return with_children(tree, node, children, changed)
    arguments = {f"_argument_{number}": one for number, one in enumerate(changed)}
    return replaced(tree, tree.parse(plain), arguments)
