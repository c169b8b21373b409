"""The format `key_value`: pairs with user-defined separators.

Knows pairs. Must not know the meaning of a key. Values stay text, since `007` is not a number; a word without a
separator is true; the last of duplicate keys is used. A line whose first word is not a pair is treated as prose and not
parsed.
"""

import re
from typing import Any, Final, Literal

import pyarrow as pa

from logboom.pipeline.findings import Part
from logboom.pipeline.normalise.rows import Row
from logboom.pipeline.parse.escapes import unescape
from logboom.pipeline.parse.formats.base import FormatNode, FormatType, RuleModel
from logboom.pipeline.parse.lines import EMPTY, NO_FIRST_PAIR, NO_VALUE, text_lines

_REST_OF_QUOTED: Final = re.compile(r'([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)


class KeyValueRuleModel(RuleModel):
    """Pairs with user-defined separators."""

    format: Literal["key_value"]
    pair_separator: str | None = None
    """The separator between pairs; default: a space."""

    key_value_separator: str | None = None
    """The separator between key and value; default `=`."""


class KeyValueFormat(FormatNode, frozen=True, kw_only=True, tag="key_value"):
    """Pairs with user-defined separators; white space around keys and values is ignored."""

    pair_separator: str = " "
    key_value_separator: str = "="

    def read_rows(self, values: pa.Array) -> list[Row]:
        return [
            NO_VALUE if line is None else _Line(line, self.pair_separator, self.key_value_separator).read()
            for line in text_lines(values).to_pylist()
        ]


def _compile(model: KeyValueRuleModel, part: Part) -> KeyValueFormat | None:
    pairs = " " if model.pair_separator is None else model.pair_separator
    inner = "=" if model.key_value_separator is None else model.key_value_separator
    if not pairs or not inner or pairs == inner or '"' in pairs + inner:
        part.problem((), "pair_separator and key_value_separator should be two different texts without quotes")
        return None
    return KeyValueFormat(pair_separator=pairs, key_value_separator=inner)


class _Line:
    """Parse one line of pairs. Remembers the next position of each separator, so that the time is proportional to the
    line."""

    def __init__(self, line: str, pairs: str, inner: str) -> None:
        self._line = line
        self._pairs = pairs
        self._inner = inner
        self._next_inner = -1
        self._next_pair = -1

    def read(self) -> Row:
        fields: dict[str, Any] = {}
        position = self._skip(0)
        while position < len(self._line):
            inner, stop = self._inner_from(position), self._pair_from(position)
            if inner < stop:
                key = self._line[position:inner].strip()
                found = self._value(inner + len(self._inner))
                if found is None or not key:
                    return f"no pair at character {position + 1}"
                fields[key], stop = found
            elif not fields:
                return NO_FIRST_PAIR
            elif self._line[position:stop].strip():
                fields[self._line[position:stop].strip()] = True
            position = self._skip(stop + len(self._pairs))
        return fields or EMPTY

    def _value(self, position: int) -> tuple[str, int] | None:
        """The value, and the end of its pair."""
        start = self._skip(position) if not self._pairs.isspace() else position
        if not self._line.startswith('"', start):
            stop = self._pair_from(position)
            return self._line[position:stop].strip(), stop
        match = _REST_OF_QUOTED.match(self._line, start + 1)
        if match is None:
            return None
        stop = self._pair_from(match.end())
        if self._line[match.end() : stop].strip():
            return None
        return unescape(match[1]), stop

    def _skip(self, position: int) -> int:
        while position < len(self._line) and self._line[position].isspace():
            position += 1
        return position

    def _inner_from(self, position: int) -> int:
        if self._next_inner < position:
            found = self._line.find(self._inner, position)
            self._next_inner = found if found >= 0 else len(self._line)
        return self._next_inner

    def _pair_from(self, position: int) -> int:
        if self._next_pair < position:
            found = self._line.find(self._pairs, position)
            self._next_pair = found if found >= 0 else len(self._line)
        return self._next_pair


FORMATS: Final = (FormatType("key_value", KeyValueRuleModel, KeyValueFormat, _compile),)
