"""The expression that judges a condition, for a session and for a bare JVM alike: TRUE, FALSE or FAILED by row.

What fails inside an expression (a division by 0, a cast of a text that is no number, an element that an array does not
have) is null there, so that `coalesce` and `IS NULL` can say what it means. A condition that is null itself has no
answer: it is asked again as under Spark's ANSI mode, where what fails raises. That happens for such rows alone, and
only where the two modes differ for the expression at all; null without a failure is FALSE, as everywhere in SQL.

Knows Catalyst's trees. Must not know rows or layouts.
"""

from typing import Any, Final

from py4j.protocol import Py4JJavaError

from logboom.pipeline.plan.nodes import Column
from logboom.pipeline.plan.outcomes import FAILED, FALSE, TRUE
from logboom.pipeline.spark.catalyst import Catalyst
from logboom.pipeline.sql.attributes import PlainAttributes
from logboom.pipeline.sql.regex import OnRe2
from logboom.pipeline.sql.tree import COLUMN, Tree

_SECOND_TRY: Final = "_second_try"
_WRITTEN_OUT: Final = {
    "between": "_argument_0 >= _argument_1 AND _argument_0 <= _argument_2",
    "nullif": "CASE WHEN _argument_0 = _argument_1 THEN NULL ELSE _argument_0 END",
}
"""Functions that Spark resolves to one with a common part (`With`), which cannot be resolved a second time."""


class Verdicts:
    """Judges conditions over the same columns in one JVM; what it gives is not resolved yet."""

    def __init__(self, catalyst: Catalyst, refusals: tuple[type[Exception], ...] = (Py4JJavaError,)) -> None:
        """`refusals`: what is raised in this process where Spark refuses an expression."""
        self._catalyst = catalyst
        self._tree = Tree(catalyst.jvm)
        self._refusals = refusals

    def verdict(self, sql: str, columns: tuple[Column, ...]) -> Any:
        """The expression for a condition over these columns."""
        raising = self._raising(sql, columns)
        if raising is None:
            answer = self._expression(f"CASE WHEN (\n{sql}\n) THEN {TRUE} ELSE {FALSE} END")
        else:
            second = f"CASE WHEN {_SECOND_TRY} THEN {TRUE} ELSE {FALSE} END"
            answer = self._expression(f"coalesce(CAST((\n{sql}\n) AS INT), {second})")
            answer = self._replaced(answer, {_SECOND_TRY: raising})
        caught = self._catalyst.of("expressions.TryEval")(answer)
        return self._catalyst.of("expressions.Coalesce")(
            self._catalyst.seq([caught, self._catalyst.parse(str(FAILED))])
        )

    def _expression(self, sql: str) -> Any:
        return OnRe2(self._tree).rewrite(self._plain(sql))

    def _plain(self, sql: str) -> Any:
        return PlainAttributes(self._tree).rewrite(self._tree.parse(sql))

    def _raising(self, sql: str, columns: tuple[Column, ...]) -> Any | None:
        """The condition as ANSI has it; None where that is the same, or where ANSI has no such condition: it takes
        fewer types side by side."""
        catalyst = self._catalyst
        # Before regular expressions are compiled: two patterns are never equal.
        usual = catalyst.folded(catalyst.project(self._plain(sql), columns))
        try:
            with catalyst.ansi():
                if catalyst.folded(catalyst.project(self._plain(sql), columns)).sameResult(usual):
                    return None
                resolved = catalyst.project(self._written_out(self._expression(sql)), columns)
        except self._refusals:
            return None
        (alias,) = catalyst.listed(resolved.projectList())
        return self._by_name(alias.child())

    def _written_out(self, node: Any) -> Any:
        children = self._tree.children(node)
        if not children:
            return node
        changed = [self._written_out(one) for one in children]
        plain = _WRITTEN_OUT.get(self._tree.function(node) or "")
        if plain is None:
            return self._with_children(node, children, changed)
        arguments = {f"_argument_{number}": one for number, one in enumerate(changed)}
        return self._replaced(self._tree.parse(plain), arguments)

    def _by_name(self, node: Any) -> Any:
        """A resolved expression over columns of any table with the same names."""
        if self._tree.kind(node) == "AttributeReference":
            return self._tree.parse(f"`{node.name()}`")
        children = self._tree.children(node)
        return node if not children else self._with_children(node, children, [self._by_name(one) for one in children])

    def _replaced(self, node: Any, by: dict[str, Any]) -> Any:
        """The expression with others in the place of some columns."""
        if self._tree.kind(node) == COLUMN:
            return by.get(str(node.nameParts().mkString(".")), node)
        children = self._tree.children(node)
        changed = [self._replaced(one, by) for one in children]
        return node if not children else self._with_children(node, children, changed)

    def _with_children(self, node: Any, children: list[Any], changed: list[Any]) -> Any:
        if all(old is new for old, new in zip(children, changed, strict=True)):
            return node
        return self._tree.with_children(node, changed)
