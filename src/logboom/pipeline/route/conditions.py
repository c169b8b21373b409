"""Conditions that the kernels can evaluate themselves, on whole Arrow columns, without Spark.

A condition is Spark SQL. What is read here is the part of it that routes and filters mostly use and whose meaning is
the same everywhere: columns of text and whole numbers compared with literals, IN, BETWEEN, LIKE with `%`, RLIKE, IS
NULL, AND, OR, NOT. For anything else, and anything in doubt, `simple_condition` gives None, and Spark evaluates
the condition.

It knows SQL's grammar and its three truth values. It must not know the graph. No such condition can fail on a record.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.parse.grok import PatternError, check_search
from logboom.pipeline.plan.nodes import EVENT_COLUMNS

Answer = Callable[[pa.RecordBatch], pa.Array]
"""From a batch of events to true, false or null by row."""

_INTS: Final = {name: pa.int64() if kind == "bigint" else pa.int32() for name, kind in EVENT_COLUMNS if "int" in kind}
_TEXTS: Final = frozenset(name for name, kind in EVENT_COLUMNS if kind == "string")
_TOKEN: Final = re.compile(
    r"\s*(?:[rR]'([^']*)'|([A-Za-z_][A-Za-z_0-9]*)|([0-9]+)(?![\w.])|'([^'\\]*)'|(<>|!=|<=|>=|==|[=<>(),-]))"
)
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


class _OtherSqlError(Exception):
    """Not of the part that is read here."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """`word` (in lower case), `number`, `text`, `sign` or `end`."""
    value: str


@lru_cache(maxsize=1024)
def simple_condition(sql: str) -> Answer | None:
    """The condition as a function of batches, or None where Spark has to evaluate it."""
    try:
        return _Reader(_tokens(sql)).whole()
    except _OtherSqlError:
        return None


def _tokens(sql: str) -> list[_Token]:
    found: list[_Token] = []
    position, text = 0, sql.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _OtherSqlError
        kind = ("text", "word", "number", "text", "sign")[(match.lastindex or 0) - 1]
        # Two texts side by side are one to Spark; a quote right behind a quote is one of that kind or an escape.
        if kind == "text" and found and found[-1].kind == "text":
            raise _OtherSqlError
        value = match[match.lastindex or 0]
        found.append(_Token(kind, value.lower() if kind == "word" else value))
        position = match.end()
    return [*found, _Token("end", "")]


class _Reader:
    """Recursive descent, loosest binding first: OR, AND, NOT, then one predicate."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Answer:
        answer = self._either()
        self._need("end", "")
        return answer

    def _take(self, kind: str, value: str) -> bool:
        if self._tokens[self._at] == _Token(kind, value):
            self._at += 1
            return True
        return False

    def _need(self, kind: str, value: str) -> None:
        if not self._take(kind, value):
            raise _OtherSqlError

    def _next(self, kind: str) -> str:
        token = self._tokens[self._at]
        if token.kind != kind:
            raise _OtherSqlError
        self._at += 1
        return token.value

    def _either(self) -> Answer:
        answer = self._both()
        while self._take("word", "or"):
            answer = _joined(pc.or_kleene, answer, self._both())
        return answer

    def _both(self) -> Answer:
        answer = self._negated()
        while self._take("word", "and"):
            answer = _joined(pc.and_kleene, answer, self._negated())
        return answer

    def _negated(self) -> Answer:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise _OtherSqlError
        try:
            return _inverted(self._negated()) if self._take("word", "not") else self._predicate()
        finally:
            self._depth -= 1

    def _predicate(self) -> Answer:
        if self._take("sign", "("):
            answer = self._either()
            self._need("sign", ")")
            return answer
        name = self._next("word")
        if name in ("true", "false"):
            return _constant(name == "true")
        if name not in _INTS and name not in _TEXTS:
            raise _OtherSqlError
        if self._take("word", "is"):
            negated = self._take("word", "not")
            self._need("word", "null")
            return _is_null(name, negated=negated)
        if self._tokens[self._at].kind == "sign":
            return self._comparison(name)
        negated = self._take("word", "not")
        answer = self._of_several(name)
        return _inverted(answer) if negated else answer

    def _comparison(self, name: str) -> Answer:
        compare = _COMPARE.get(self._next("sign"))
        if compare is None:
            raise _OtherSqlError
        return _compared(compare, name, self._literal(name))

    def _of_several(self, name: str) -> Answer:
        if self._take("word", "between"):
            low = _compared(pc.greater_equal, name, self._literal(name))
            self._need("word", "and")
            return _joined(pc.and_kleene, low, _compared(pc.less_equal, name, self._literal(name)))
        if self._take("word", "in"):
            return self._in(name)
        if name in _TEXTS and (self._take("word", "rlike") or self._take("word", "regexp")):
            return self._rlike(name)
        self._need("word", "like")
        pattern = self._next("text")
        if name not in _TEXTS or _LIKE_SPECIAL.search(pattern):
            raise _OtherSqlError
        return lambda batch: pc.match_like(batch.column(name), pattern)

    def _rlike(self, name: str) -> Answer:
        pattern = self._next("text")
        try:
            check_search(pattern)
        except PatternError:
            raise _OtherSqlError from None  # the check of the file has refused it
        return lambda batch: pc.match_substring_regex(batch.column(name), pattern)

    def _in(self, name: str) -> Answer:
        self._need("sign", "(")
        values = [self._literal(name)]
        while self._take("sign", ","):
            values.append(self._literal(name))
        self._need("sign", ")")
        wanted = pa.array([value.as_py() for value in values], values[0].type)
        unknown = pa.scalar(None, pa.bool_())

        def answer(batch: pa.RecordBatch) -> pa.Array:
            column = batch.column(name)
            return pc.if_else(column.is_valid(), pc.is_in(column, value_set=wanted), unknown)

        return answer

    def _literal(self, name: str) -> pa.Scalar:
        if name in _TEXTS:
            return pa.scalar(self._next("text"), pa.string())
        negative = self._take("sign", "-")
        digits = self._next("number")
        if len(digits) > _DIGITS_MAX:
            raise _OtherSqlError
        return pa.scalar(-int(digits) if negative else int(digits), _INTS[name])


def _compared(compare: Callable[[pa.Array, pa.Scalar], pa.Array], name: str, value: pa.Scalar) -> Answer:
    return lambda batch: compare(batch.column(name), value)


def _joined(join: Callable[[pa.Array, pa.Array], pa.Array], left: Answer, right: Answer) -> Answer:
    return lambda batch: join(left(batch), right(batch))


def _inverted(answer: Answer) -> Answer:
    return lambda batch: pc.invert(answer(batch))


def _is_null(name: str, *, negated: bool) -> Answer:
    return lambda batch: batch.column(name).is_valid() if negated else batch.column(name).is_null()


def _constant(value: bool) -> Answer:
    return lambda batch: pa.array([value] * batch.num_rows, pa.bool_())
