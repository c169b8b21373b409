"""Values of SQL expressions that the kernels can make themselves, on whole Arrow columns, without Spark.

What is read here: literals, columns of text and whole numbers, attributes (which are texts), and `coalesce` and
`concat` (or `||`) of texts. For anything else `simple_value` gives None, and Spark computes the value. No such value
can fail.

It knows SQL's grammar. It must not know what a value is for.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.plan.nodes import EVENT_COLUMNS
from logboom.pipeline.route.conditions import Answer, ConditionParser, OtherSqlError, tokens

Values = Callable[[pa.RecordBatch], list[Any]]
"""From a batch of events to plain data by row."""

_JOINS: Final[dict[str, Callable[..., pa.Array]]] = {
    "coalesce": pc.coalesce,
    "concat": lambda *texts: pc.binary_join_element_wise(*texts, ""),
}
_DEPTH_MAX: Final = 20


@lru_cache(maxsize=1024)
def simple_value(sql: str) -> Values | None:
    """The expression as a function of batches, or None if Spark has to compute it."""
    try:
        return _ValueReader(tokens(sql), dict(EVENT_COLUMNS)).value()
    except OtherSqlError:
        return None


@lru_cache(maxsize=1024)
def simple_texts(sql: str) -> Answer | None:
    """The same as one Arrow column of texts, null if there is none; None if Spark has to compute it."""
    try:
        return _ValueReader(tokens(sql), dict(EVENT_COLUMNS)).texts()
    except OtherSqlError:
        return None


@lru_cache(maxsize=1024)
def simple_numbers(sql: str) -> Answer | None:
    """A column of whole numbers, or an attribute as a number, in doubles; None for anything else."""
    try:
        return _ValueReader(tokens(sql), dict(EVENT_COLUMNS)).numbers()
    except OtherSqlError:
        return None


@lru_cache(maxsize=1024)
def attribute_name(sql: str) -> str | None:
    """The name of the attribute that an expression is, and nothing else; None for any other.

    >>> attribute_name("attributes['url.path']"), attribute_name("attributes.a.b"), attribute_name("service")
    ('url.path', 'a.b', None)
    """
    try:
        return _ValueReader(tokens(sql), dict(EVENT_COLUMNS)).attribute()
    except OtherSqlError:
        return None


class _ValueReader(ConditionParser):
    def attribute(self) -> str | None:
        """The whole expression, where it is an attribute."""
        if not self._take("word", "attributes"):
            return None
        name = self._attribute()
        self._need("end", "")
        return name or None

    def numbers(self) -> Answer:
        """The whole expression, an operand with numbers."""
        numbers = self._operand().numbers
        self._need("end", "")
        if numbers is None:
            raise OtherSqlError
        return lambda batch: numbers(batch).cast(pa.float64())

    def texts(self) -> Answer:
        """The whole expression, numbers as they are written."""
        answer = self._joined(0)
        self._need("end", "")
        return lambda batch: answer(batch).cast(pa.string())

    def value(self) -> Values:
        """The whole expression."""
        constant = self._constant()
        if constant is not None:
            return lambda batch: [constant] * batch.num_rows
        answer = self._joined(0)
        self._need("end", "")
        return lambda batch: answer(batch).to_pylist()

    def _constant(self) -> int | float | bool | None:
        """A number, true or false, alone."""
        token, alone = self._tokens[0], self._tokens[1].kind == "end" if len(self._tokens) > 1 else False
        if not alone:
            return None
        if token.kind == "number" and len(token.value) <= 9:
            return int(token.value)
        if token.kind == "decimal" and len(token.value) <= 15:
            return float(token.value)
        return token.value == "true" if token.kind == "word" and token.value in ("true", "false") else None

    def _joined(self, depth: int) -> Answer:
        parts = [self._one(depth)]
        while self._take("sign", "||"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else _call("concat", parts)

    def _one(self, depth: int) -> Answer:
        token = self._tokens[self._at]
        if token.kind == "text":
            text = pa.scalar(self._next("text"), pa.string())
            return lambda batch: pa.repeat(text, batch.num_rows)
        follows = self._tokens[self._at + 1].value if token.kind == "word" else ""
        if token.kind == "word" and token.value in _JOINS and follows == "(" and depth < _DEPTH_MAX:
            self._at += 2
            parts = [self._joined(depth + 1)]
            while self._take("sign", ","):
                parts.append(self._joined(depth + 1))
            self._need("sign", ")")
            return _call(token.value, parts)
        operand = self._operand()
        if operand.texts is not None:
            return operand.texts
        if depth or len(self._tokens) > 2 or operand.numbers is None:
            raise OtherSqlError  # a number among texts is Spark's to convert
        return operand.numbers


def _call(name: str, parts: list[Answer]) -> Answer:
    join = _JOINS[name]
    return lambda batch: join(*(part(batch) for part in parts))
