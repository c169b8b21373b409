"""Conditions that the kernels can evaluate themselves, on whole Arrow columns, without Spark.

A condition is Spark SQL. What is read here is the part of it that routes and filters mostly use and whose meaning is
the same everywhere: columns of text and whole numbers compared with literals, IN, BETWEEN, LIKE with `%`, RLIKE, IS
NULL, AND, OR, NOT. For anything else, and anything in doubt, `simple_condition` gives None, and Spark evaluates
the condition.

An attribute, `attributes.NAME` or `attributes['NAME']`, is a text, and a number where it is compared with one; see
`logboom.pipeline.event.attributes`.

It knows SQL's grammar and its three truth values. It must not know the graph. No such condition can fail on a record.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.attributes import attribute_numbers, attribute_texts
from logboom.pipeline.parse.grok import PatternError, check_search
from logboom.pipeline.plan.nodes import EVENT_COLUMNS, Column

Answer = Callable[[pa.RecordBatch], pa.Array]
"""From a batch of events to true, false or null by row."""

_INTS: Final[dict[str, pa.DataType]] = {"int": pa.int32(), "bigint": pa.int64()}
BLANKS: Final = " \t\r\n"
"""Between two words. Spark takes some others too, but not all that Python does."""
_TOKEN: Final = re.compile(
    rf"[{BLANKS}]*"
    r"(?:[rR]'([^']*)'|([A-Za-z_][A-Za-z_0-9]*)|([0-9]+)(?![\w.])|'([^'\\]*)'"
    r"|(<>|!=|<=|>=|==|\|\||[=<>(),.\[\]-])|([0-9]+\.[0-9]+)(?![\w.])|`([^`]+)`)"
)
_KINDS: Final = ("text", "word", "number", "text", "sign", "decimal", "quoted")
_COMPARE: Final[dict[str, Callable[[pa.Array, pa.Scalar], pa.Array]]] = {
    "=": pc.equal,
    "==": pc.equal,
    "!=": pc.not_equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_DIGITS_MAX: Final = 9
"""More may be no `int`, and then Spark compares by other rules."""
_LIKE_SPECIAL: Final = re.compile(r"[_\\]")
_DEPTH_MAX: Final = 50


class OtherSqlError(Exception):
    """Not of the part of SQL that is read here."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word, literal or sign of SQL."""

    kind: str
    """One of `_KINDS`, or `end`."""
    value: str
    """Of a word: in lower case."""
    written: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class _Operand:
    """What stands on the left of a predicate: a column, or an attribute."""

    texts: Answer | None
    """Its text by row; None for a column of numbers."""
    numbers: Answer | None
    """Its number by row; None for a column of texts."""
    number_type: pa.DataType


@lru_cache(maxsize=1024)
def simple_condition(sql: str, columns: tuple[Column, ...] = EVENT_COLUMNS) -> Answer | None:
    """The condition over these columns as a function of batches, or None if Spark has to evaluate it."""
    try:
        return ConditionParser(tokens(sql), dict(columns)).whole()
    except OtherSqlError:
        return None


def tokens(sql: str) -> list[Token]:
    """The SQL in words, literals and signs, and an end; OtherSqlError for anything else."""
    found: list[Token] = []
    position, text = 0, sql.rstrip(BLANKS)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise OtherSqlError
        kind = _KINDS[(match.lastindex or 0) - 1]
        # Two texts side by side are one to Spark; a quote right behind a quote is one of that kind or an escape.
        if kind == "text" and found and found[-1].kind == "text":
            raise OtherSqlError
        value = match[match.lastindex or 0]
        found.append(Token(kind, value.lower() if kind == "word" else value, value))
        position = match.end()
    return [*found, Token("end", "")]


class ConditionParser:
    """Recursive descent, loosest binding first: OR, AND, NOT, then one predicate."""

    def __init__(self, tokens: list[Token], columns: dict[str, str]) -> None:
        self._tokens = tokens
        self._columns = columns
        self._at = 0
        self._depth = 0

    def whole(self) -> Answer:
        """The whole condition."""
        answer = self._either()
        self._need("end", "")
        return answer

    def _take(self, kind: str, value: str) -> bool:
        if self._tokens[self._at] == Token(kind, value):
            self._at += 1
            return True
        return False

    def _need(self, kind: str, value: str) -> None:
        if not self._take(kind, value):
            raise OtherSqlError

    def _next(self, kind: str) -> str:
        token = self._tokens[self._at]
        if token.kind != kind:
            raise OtherSqlError
        self._at += 1
        return token.value

    def _either(self) -> Answer:
        answers = [self._both()]
        while self._take("word", "or"):
            answers.append(self._both())
        return _joined(pc.or_kleene, answers)

    def _both(self) -> Answer:
        answers = [self._negated()]
        while self._take("word", "and"):
            answers.append(self._negated())
        return _joined(pc.and_kleene, answers)

    def _negated(self) -> Answer:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise OtherSqlError
        try:
            return _inverted(self._negated()) if self._take("word", "not") else self._predicate()
        finally:
            self._depth -= 1

    def _predicate(self) -> Answer:
        if self._take("sign", "("):
            answer = self._either()
            self._need("sign", ")")
            return answer
        if self._tokens[self._at].kind == "word" and self._tokens[self._at].value in ("true", "false"):
            return _constant(self._next("word") == "true")
        operand = self._operand()
        if self._take("word", "is"):
            negated = self._take("word", "not")
            self._need("word", "null")
            return _is_null(_either_of(operand), negated=negated)
        if self._tokens[self._at].kind == "sign":
            return self._comparison(operand)
        negated = self._take("word", "not")
        answer = self._of_several(operand)
        return _inverted(answer) if negated else answer

    def _operand(self) -> _Operand:
        name = self._next("word")
        kind = self._columns.get(name)
        if kind == "string":
            return _Operand(_column(name), None, pa.null())
        if kind in _INTS:
            return _Operand(None, _column(name), _INTS[kind])
        attribute = self._attribute() if kind == "variant" else ""
        if not attribute:
            raise OtherSqlError
        return _Operand(
            lambda batch: attribute_texts(batch.column(name), attribute),
            lambda batch: attribute_numbers(batch.column(name), attribute),
            pa.float64(),
        )

    def _attribute(self) -> str:
        """The parts behind `attributes`, joined by dots."""
        parts: list[str] = []
        while True:
            if self._take("sign", "."):
                token = self._tokens[self._at]
                if token.kind not in ("word", "quoted"):
                    raise OtherSqlError
                self._at += 1
                parts.append(token.written)
            elif self._take("sign", "["):
                parts.append(self._next("text"))
                self._need("sign", "]")
            else:
                return ".".join(parts)

    def _comparison(self, operand: _Operand) -> Answer:
        compare = _COMPARE.get(self._next("sign"))
        if compare is None:
            raise OtherSqlError
        value = self._literal(operand)
        return _compared(compare, _of_type(operand, value.type), value)

    def _of_several(self, operand: _Operand) -> Answer:
        if self._take("word", "between"):
            low = self._literal(operand)
            self._need("word", "and")
            high = self._literal(operand)
            values = _of_type(operand, _one_type((low, high)))
            ends = [_compared(pc.greater_equal, values, low), _compared(pc.less_equal, values, high)]
            return _joined(pc.and_kleene, ends)
        if self._take("word", "in"):
            return self._in(operand)
        if operand.texts is None:
            raise OtherSqlError
        texts = operand.texts
        if self._take("word", "rlike") or self._take("word", "regexp"):
            return self._rlike(texts)
        self._need("word", "like")
        pattern = self._next("text")
        if _LIKE_SPECIAL.search(pattern):
            raise OtherSqlError
        return lambda batch: pc.match_like(texts(batch), pattern)

    def _rlike(self, texts: Answer) -> Answer:
        pattern = self._next("text")
        try:
            check_search(pattern)
        except PatternError:
            raise OtherSqlError from None  # the check of the file has refused it
        return lambda batch: pc.match_substring_regex(texts(batch), pattern)

    def _in(self, operand: _Operand) -> Answer:
        self._need("sign", "(")
        literals = [self._literal(operand)]
        while self._take("sign", ","):
            literals.append(self._literal(operand))
        self._need("sign", ")")
        kind = _one_type(literals)
        values = _of_type(operand, kind)
        wanted = pa.array([value.as_py() for value in literals], kind)
        unknown = pa.scalar(None, pa.bool_())

        def answer(batch: pa.RecordBatch) -> pa.Array:
            column = values(batch)
            return pc.if_else(column.is_valid(), pc.is_in(column, value_set=wanted), unknown)

        return answer

    def _literal(self, operand: _Operand) -> pa.Scalar:
        token = self._tokens[self._at]
        if token.kind == "text" and operand.texts is not None:
            return pa.scalar(self._next("text"), pa.string())
        if operand.numbers is None:
            raise OtherSqlError
        sign = -1 if self._take("sign", "-") else 1
        if operand.number_type == pa.float64() and self._tokens[self._at].kind == "decimal":
            return pa.scalar(sign * float(self._next("decimal")), pa.float64())
        digits = self._next("number")
        if len(digits) > _DIGITS_MAX:
            raise OtherSqlError
        return pa.scalar(sign * int(digits), operand.number_type)


def _column(name: str) -> Answer:
    return lambda batch: batch.column(name)


def _either_of(operand: _Operand) -> Answer:
    values = operand.texts or operand.numbers
    assert values is not None
    return values


def _of_type(operand: _Operand, kind: pa.DataType) -> Answer:
    values = operand.texts if pa.types.is_string(kind) else operand.numbers
    assert values is not None
    return values


def _one_type(literals: Sequence[pa.Scalar]) -> pa.DataType:
    """Texts and numbers side by side are Spark's to compare."""
    if any(literal.type != literals[0].type for literal in literals):
        raise OtherSqlError
    return literals[0].type


def _compared(compare: Callable[[pa.Array, pa.Scalar], pa.Array], values: Answer, value: pa.Scalar) -> Answer:
    return lambda batch: compare(values(batch), value)


def _joined(join: Callable[[pa.Array, pa.Array], pa.Array], answers: Sequence[Answer]) -> Answer:
    """One after the other: of thousands, each inside the next, Python would find too many calls inside each other."""
    if len(answers) == 1:
        return answers[0]
    return lambda batch: reduce(join, (answer(batch) for answer in answers))


def _inverted(answer: Answer) -> Answer:
    return lambda batch: pc.invert(answer(batch))


def _is_null(values: Answer, *, negated: bool) -> Answer:
    return lambda batch: values(batch).is_valid() if negated else values(batch).is_null()


def _constant(value: bool) -> Answer:
    return lambda batch: pa.array([value] * batch.num_rows, pa.bool_())
