"""Lines of pairs: logfmt, and pairs with separators of the user's choice.

It knows pairs. It must not know what a key means. Values stay text, since `007` is no number; a word without a
separator is true; the last of duplicate keys wins. A line whose first word is no pair is a sentence, not logfmt.
"""

import re
from typing import Any, Final

import pyarrow as pa

from logboom.pipeline.normalise.rows import Row
from logboom.pipeline.parse.lines import EMPTY, NO_VALUE

NO_FIRST_PAIR: Final = "the first word is no pair"

_QUOTED: Final = r'"(?P<quoted>[^"\\]*(?:\\.[^"\\]*)*)"'
_KEY: Final = r"""[^\s="'`|,;(){}<>]+"""
"""Anything but blanks, quotes, brackets and what separates parts of a line: `a|b=1` is no pair."""
_PAIR: Final = re.compile(
    rf'(?:(?P<key>{_KEY})(?P<is>=(?:{_QUOTED}|(?P<plain>[^\s"]\S*)?))|(?P<flag>[^\s="]+))(?P<end>\s+|$)', re.DOTALL
)
_REST_OF_QUOTED: Final = re.compile(r'([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def read_logfmt(lines: pa.Array) -> list[Row]:
    """Rows of a string array."""
    return [_logfmt(line) for line in lines.to_pylist()]


def read_key_value(lines: pa.Array, pair_separator: str, key_value_separator: str) -> list[Row]:
    """Rows of a string array; blanks around keys and values do not count."""
    return [
        NO_VALUE if line is None else _Separated(line, pair_separator, key_value_separator).read()
        for line in lines.to_pylist()
    ]


def logfmt_of(text: str) -> dict[str, Any] | None:
    """The fields of a logfmt text, or None."""
    found = _logfmt(text)
    return found if isinstance(found, dict) else None


def _logfmt(line: str | None) -> Row:
    if line is None:
        return NO_VALUE
    text = line.strip()
    fields: dict[str, Any] = {}
    position, end = 0, len(text)
    while position < end:
        match = _PAIR.match(text, position)
        if match is None:
            return f"no pair at character {position + 1}"
        key, given, quoted, plain, flag, _ = match.groups()
        if given is None:
            if not fields:
                return NO_FIRST_PAIR
            fields[flag] = True
        elif quoted is not None:
            fields[key] = unescape(quoted) if "\\" in quoted else quoted
        else:
            fields[key] = plain or ""
        position = match.end()
    return fields or EMPTY


class _Separated:
    """One line of pairs. Each separator is looked for once and remembered: the work grows with the line, whatever it
    holds."""

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
        """The value and where its pair ends."""
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


def unescape(text: str) -> str:
    r"""Backslash escapes of logfmt and JSON; a backslash in front of anything else stands for that thing.

    >>> unescape(r"a\"b\u00e9\n")
    'a"bé\n'
    """
    return _ESCAPE.sub(_escaped, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escaped(match: re.Match[str]) -> str:
    if match[1] is not None:
        return chr(int(match[1], 16))
    return _ESCAPED.get(match[2], match[2])
