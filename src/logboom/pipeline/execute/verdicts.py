"""The expressions that evaluate a condition or compute a value, for a session and for a JVM without one.

What fails inside an expression (a division by 0, a cast of a text that is not a number, an element that an array does
not have) is null there, so that `coalesce` and `IS NULL` can handle it. If the whole expression is null, it is
evaluated again in Spark's ANSI mode, in which failures raise. That happens only for such rows, and only if the two
modes differ for the expression. Null without a failure stays null, which for a condition is FALSE, as everywhere in
SQL.

Knows Catalyst's trees. Must not know rows or layouts.
"""

from typing import Any, Final

from py4j.protocol import Py4JJavaError

from logboom.pipeline.plan.nodes import Column
from logboom.pipeline.plan.outcomes import FAILED, FALSE, TRUE
from logboom.pipeline.plan.sql_text import bracketed
from logboom.pipeline.spark.catalyst import Catalyst
from logboom.pipeline.sql.expression import plain_expression, record_expression, replaced, with_children
from logboom.pipeline.sql.memory import event_bytes_max, sizes_of
from logboom.pipeline.sql.tree import Tree

_SECOND_TRY: Final = "_second_try"
_SIZES, _ANSWER = "_sizes", "_answer"
_TIMES: Final = r"yyyy-MM-dd\'T\'HH:mm:ss.SSSSSSXXX"


class Verdicts:
    """Builds expressions for conditions and values over the same columns in one JVM; they are not resolved yet. Life:
    that of its `Tree`."""

    def __init__(self, catalyst: Catalyst, refusals: tuple[type[Exception], ...] = (Py4JJavaError,)) -> None:
        """`refusals`: the exceptions raised in this process if Spark refuses an expression."""
        self._catalyst = catalyst
        self._tree = Tree(catalyst.classes)
        self._refusals = refusals

    def verdict(self, sql: str, columns: tuple[Column, ...]) -> Any:
        """The expression for a condition over these columns: TRUE, FALSE or FAILED."""
        raising = self._raising(sql, columns)
        if raising is None:
            answer = self._expression(f"CASE WHEN {bracketed(sql)} THEN {TRUE} ELSE {FALSE} END")
        else:
            second = f"CASE WHEN {_SECOND_TRY} THEN {TRUE} ELSE {FALSE} END"
            answer = self._expression(f"coalesce(CAST({bracketed(sql)} AS INT), {second})")
            answer = replaced(self._tree, answer, {_SECOND_TRY: raising})
        caught = self._catalyst.of("expressions.Coalesce")(
            self._catalyst.seq([self._caught(answer), self._catalyst.parse(str(FAILED))])
        )
        return self._bounded(caught, str(FAILED), sql, columns)

    def value(self, sql: str, columns: tuple[Column, ...]) -> Any:
        """The expression for a value over these columns, as `KernelTransform.event_values` has it; null if it
        failed. Times have their microseconds."""
        raising = self._raising(sql, columns)
        if raising is None:
            value = self._expression(_as_json(sql))
        else:
            kind = self._type(sql, columns)
            value = self._expression(_as_json(f"coalesce({bracketed(sql)}, CAST({_SECOND_TRY} AS {kind}))"))
            value = replaced(self._tree, value, {_SECOND_TRY: raising})
        return self._bounded(self._caught(value), "NULL", f"to_json({sql})", columns)

    def caught(self, sql: str) -> Any:
        """The expression for a value, null if computing it raises."""
        return self._caught(self._expression(sql))

    def _bounded(self, expression: Any, failed: str, sql: str, columns: tuple[Column, ...]) -> Any:
        """The expression, or `failed` for an event that is too large for it."""
        sizes = sizes_of(self._tree, sql, columns)
        limit = event_bytes_max(self._tree, sql)
        if sizes is None or limit is None:
            return expression
        whole = self._tree.parse(f"CASE WHEN {_SIZES} > {limit} THEN {failed} ELSE {_ANSWER} END")
        return replaced(self._tree, whole, {_SIZES: sizes, _ANSWER: expression})

    def _caught(self, expression: Any) -> Any:
        return self._catalyst.of("expressions.TryEval")(expression)

    def _expression(self, sql: str) -> Any:
        return record_expression(self._tree, sql)

    def _type(self, sql: str, columns: tuple[Column, ...]) -> str:
        """The type of an expression, as SQL has it."""
        (alias,) = self._catalyst.listed(self._catalyst.project(self._expression(sql), columns).projectList())
        return str(alias.dataType().sql())

    def _raising(self, sql: str, columns: tuple[Column, ...]) -> Any | None:
        """The expression in ANSI mode; None if it is the same, or if ANSI mode does not allow it: ANSI mode combines
        fewer types."""
        catalyst = self._catalyst
        usual = catalyst.folded(catalyst.project(plain_expression(self._tree, sql), columns))
        try:
            with catalyst.ansi():
                if catalyst.folded(catalyst.project(plain_expression(self._tree, sql), columns)).sameResult(usual):
                    return None
                resolved = catalyst.project(self._expression(sql), columns)
        except self._refusals:
            return None
        (alias,) = catalyst.listed(resolved.projectList())
        return self._by_name(alias.child())

    def _by_name(self, node: Any) -> Any:
        """A resolved expression over columns of any table with the same names."""
        if self._tree.kind(node) == "AttributeReference":
            return self._tree.parse(f"`{node.name()}`")
        children = self._tree.children(node)
        return with_children(self._tree, node, children, [self._by_name(one) for one in children])


def _as_json(sql: str) -> str:
    return f"to_json(named_struct('v', {bracketed(sql)}), map('timestampFormat', '{_TIMES}'))"
