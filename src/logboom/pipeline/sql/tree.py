"""The tree that Spark's parser returns for an SQL expression, read and modified from Python through py4j.

Knows which Catalyst classes represent which SQL. Must not know what is allowed. A `Tree` belongs to one JVM: the bare
one of `check`, or that of a Spark session.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from logboom.pipeline.spark.jvm_classes import JvmClasses
from logboom.pipeline.sql import literals

_CATALYST: Final = "org.apache.spark.sql.catalyst"

OPERATORS: Final = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "And": "and",
    "Or": "or",
    "Not": "not",
    "In": "in",
    "IsNull": "isnull",
    "IsNotNull": "isnotnull",
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
    "IntegralDivide": "div",
    "Remainder": "%",
    "UnaryMinus": "negative",
    "UnaryPositive": "positive",
    "BitwiseAnd": "&",
    "BitwiseOr": "|",
    "BitwiseXor": "^",
    "BitwiseNot": "~",
    "ShiftLeft": "<<",
    "ShiftRight": ">>",
    "ShiftRightUnsigned": ">>>",
    "CaseWhen": "case",
    "Cast": "cast",
    "Concat": "concat",
    "Like": "like",
    "ILike": "ilike",
    "RLike": "rlike",
    "LikeAll": "like",
    "LikeAny": "like",
    "NotLikeAll": "like",
    "NotLikeAny": "like",
    "Lower": "lower",
    "StringTrim": "trim",
    "StringTrimLeft": "ltrim",
    "StringTrimRight": "rtrim",
    "StringLocate": "locate",
    "Substring": "substring",
    "Overlay": "overlay",
    "TimestampAdd": "dateadd",
    "TimestampDiff": "datediff",
    "CreateNamedStruct": "named_struct",
    "UnresolvedExtractValue": "element_at",
    "SemiStructuredExtract": "get_json_object",
    "Collate": "collate",
    "First": "first",
    "Last": "last",
    "AggregateExpression": "any_value",
    "WindowExpression": "row_number",
}
"""Classes that the parser uses for operators or special syntax, and the equivalent functions."""

_COMPARISONS: Final = (
    "EqualTo",
    "EqualNullSafe",
    "LessThan",
    "LessThanOrEqual",
    "GreaterThan",
    "GreaterThanOrEqual",
)
_ARITHMETIC: Final = ("Add", "Subtract", "Multiply", "Divide", "IntegralDivide", "Remainder")
_LEFT_RIGHT: Final = frozenset((*_COMPARISONS, *_ARITHMETIC, "And", "Or", "Like", "RLike"))
_ONE_CHILD: Final = frozenset(("Not", "IsNull", "IsNotNull", "UnaryMinus", "UnaryPositive", "Cast", "Alias"))
"""Classes whose children have names, which saves calls."""

COLUMN: Final = "UnresolvedAttribute"
PARAMETER: Final = "UnresolvedNamedLambdaVariable"
LAMBDA: Final = "LambdaFunction"
LITERAL: Final = "Literal"
ALIAS: Final = "Alias"
_LEAVES: Final = frozenset((COLUMN, LITERAL, PARAMETER, "AttributeReference"))
_NAME_SEPARATOR: Final = "\0"


class Tree:
    """Nodes of one JVM; a node is py4j's handle of an expression. Use one for one expression or a few, since it keeps
    each node that was read: an expression is walked several times, and each call of the JVM is slow."""

    def __init__(self, classes: JvmClasses) -> None:
        self._classes = classes
        self._kinds: dict[str, str] = {}
        self._children: dict[str, list[Any]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._literals: dict[str, str] = {}
        self._parser = self.module(f"{_CATALYST}.parser.CatalystSqlParser")

    def parse(self, sql: str) -> Any:
        """Parse an expression; nothing in it is resolved."""
        return self._parser.parseExpression(sql)

    def kind(self, node: Any) -> str:
        """The name of the node's class. For anonymous classes, of which `IS UNKNOWN` consists, that of the base
        class."""
        handle = _handle(node)
        if handle not in self._kinds:
            name = str(self.static("org.apache.spark.util.Utils", "getFormattedClassName")(node))
            self._kinds[handle] = name or str(node.getClass().getSuperclass().getSimpleName())
        return self._kinds[handle]

    def function(self, node: Any) -> str | None:
        """The lower-case name of the function that is called or that an operator represents; None for other nodes."""
        kind = self.kind(node)
        if kind == "UnresolvedFunction":
            return ".".join(self.names(node)).lower()
        return OPERATORS.get(kind)

    def names(self, node: Any) -> tuple[str, ...]:
        """The parts of the name of a column, a parameter or a called function."""
        handle = _handle(node)
        if handle not in self._names:
            self._names[handle] = tuple(str(node.nameParts().mkString(_NAME_SEPARATOR)).split(_NAME_SEPARATOR))
        return self._names[handle]

    def children(self, node: Any) -> list[Any]:
        handle = _handle(node)
        if handle not in self._children:
            self._children[handle] = self._asked_children(node, self.kind(node))
        return list(self._children[handle])

    @staticmethod
    def _asked_children(node: Any, kind: str) -> list[Any]:
        if kind in _LEAVES:
            return []
        if kind in _LEFT_RIGHT:
            return [node.left(), node.right()]
        if kind in _ONE_CHILD:
            return [node.child()]
        children = node.children()
        return [children.apply(index) for index in range(children.size())]

    def with_children(self, node: Any, children: Sequence[Any]) -> Any:
        """The node with other children."""
        return node.withNewChildren(self.seq(children))

    def walk(self, node: Any) -> Iterator[Any]:
        """The node and all below it."""
        yield node
        for child in self.children(node):
            yield from self.walk(child)

    def literal(self, node: Any) -> str | None:
        """The SQL of a literal, for `literals`; None for other nodes."""
        if self.kind(node) != LITERAL:
            return None
        handle = _handle(node)
        if handle not in self._literals:
            self._literals[handle] = str(node.sql())
        return self._literals[handle]

    def text(self, node: Any) -> str | None:
        """The value of a text literal; None for everything else."""
        sql = self.literal(node)
        return None if sql is None else literals.text_of(sql)

    def whole_number(self, node: Any) -> int | None:
        """The value of an integer literal, which may be negative; None for everything else."""
        if self.kind(node) == "UnaryMinus":
            inner = self.whole_number(self.children(node)[0])
            return None if inner is None else -inner
        sql = self.literal(node)
        return None if sql is None else literals.whole_number_of(sql)

    def is_zero(self, node: Any) -> bool:
        """Whether it is a literal number that is zero, perhaps with a sign."""
        if self.kind(node) in ("UnaryMinus", "UnaryPositive"):
            return self.is_zero(self.children(node)[0])
        sql = self.literal(node)
        return sql is not None and literals.is_zero(sql)

    def is_constant(self, node: Any) -> bool:
        """Whether it is a literal, perhaps with a sign."""
        kind = self.kind(node)
        return kind == LITERAL or (kind in ("UnaryMinus", "UnaryPositive") and self.is_constant(self.children(node)[0]))

    def is_time_zone(self, text: str) -> bool:
        """Whether Spark knows a time zone with this name."""
        try:
            self.module(f"{_CATALYST}.util.DateTimeUtils").getZoneId(text)
        except Py4JJavaError:
            return False
        return True

    def java_class(self, name: str) -> Any:
        """A class of the JVM, including classes that only Spark's class loader finds."""
        return self._classes.java_class(name)

    def static(self, java_class: str, name: str) -> Any:
        """The result of a static method of a JVM class, or the value of a static field."""
        return self._classes.static(java_class, name)

    def module(self, name: str) -> Any:
        """A Scala object."""
        return self._classes.module(name)

    def seq(self, items: Sequence[Any]) -> Any:
        """A Scala sequence."""
        return self._classes.seq(items)

    def new(self, name: str, *arguments: Any) -> Any:
        """Create an expression; `name` is its class in Catalyst's package of expressions."""
        return self._classes.named(f"{_CATALYST}.expressions.{name}")(*arguments)

    def object_type(self, name: str) -> Any:
        """Spark's type for values that are objects of a Java class."""
        return self._classes.named("org.apache.spark.sql.types.ObjectType")(self.java_class(name))

    def plain_type(self, name: str) -> Any:
        """One of Spark's own types."""
        return self._classes.static("org.apache.spark.sql.types.DataTypes", name)


def _handle(node: Any) -> str:
    return str(node._target_id)  # noqa: SLF001 - py4j's only name of an object; it gives no two the same
