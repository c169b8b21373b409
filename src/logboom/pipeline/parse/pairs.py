"""Lines of pairs: logfmt, and pairs with separators of the user's choice.

It knows pairs. It must not know what a key means. Values stay text, since `007` is no number; a word without a
separator is true; the last of duplicate keys wins. A line whose first word is no pair is a sentence, not logfmt.
"""

import re
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from logboom.pipeline.normalise_rows import Row
from logboom.pipeline.parse.lines import EMPTY, NO_VALUE

_QUOTED: Final = r'"(?P<quoted>[^"\\]*(?:\\.[^"\\]*)*)"'
_PAIR: Final = re.compile(rf'(?P<key>[^\s="]+)(?P<is>=(?:{_QUOTED}|(?P<plain>[^\s"]\S*)?))?(?P<end>\s+|$)', re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def read_logfmt(lines: pa.Array) -> list[Row]:
    """Rows of a string array."""
    return [_logfmt(line) for line in lines.to_pylist()]


def read_key_value(lines: pa.Array, pair_separator: str, key_value_separator: str) -> list[Row]:
    """Rows of a string array; blanks around keys and values do not count."""
    pattern = _key_value_pattern(pair_separator, key_value_separator)
    return [_pairs(line, pattern) for line in lines.to_pylist()]


def logfmt_of(text: str) -> dict[str, Any] | None:
    """The fields of a logfmt text, or None."""
    found = _logfmt(text)
    return found if isinstance(found, dict) else None


def _logfmt(line: str | None) -> Row:
    if line is None:
        return NO_VALUE
    text = line.strip()
    if not text:
        return EMPTY
    return _pairs(text, _PAIR)


def _pairs(line: str | None, pattern: re.Pattern[str]) -> Row:
    if line is None:
        return NO_VALUE
    fields: dict[str, Any] = {}
    position, end = 0, len(line)
    while position < end:
        match = pattern.match(line, position)
        if match is None or match.end() == position:
            return f"no pair at character {position + 1}"
        key, given, quoted, plain, _ = match.groups()
        if given is None:
            if not fields:
                return "the first word is no pair"
            fields[key] = True
        elif quoted is not None:
            fields[key] = unescape(quoted) if "\\" in quoted else quoted
        else:
            fields[key] = plain or ""
        position = match.end()
    return fields or EMPTY


@lru_cache(maxsize=64)
def _key_value_pattern(pairs: str, inner: str) -> re.Pattern[str]:
    between = r"\s+" if pairs == " " else rf"\s*{re.escape(pairs)}\s*"
    key = rf'(?:(?!{re.escape(inner)}|{between})[^"])+?'
    plain = rf'(?!")(?:(?!{between}).)*'
    return re.compile(
        rf"\s*(?P<key>{key})\s*(?P<is>{re.escape(inner)}\s*(?:{_QUOTED}|(?P<plain>{plain})?))?(?P<end>{between}|\s*$)",
        re.DOTALL,
    )


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
