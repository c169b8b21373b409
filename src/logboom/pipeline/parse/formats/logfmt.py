"""The format `logfmt`: `key=value key="quoted value" flag`.

Knows pairs. Must not know the meaning of a key. Values stay text, since `007` is not a number; a word without a
separator is true; the last of duplicate keys is used. A line whose first word is not a pair is treated as prose and not
parsed.
"""

import re
from typing import Any, Final

import pyarrow as pa

from logboom.pipeline.normalise.rows import Row
from logboom.pipeline.parse.escapes import unescape
from logboom.pipeline.parse.formats.base import FormatNode, plain_format
from logboom.pipeline.parse.lines import EMPTY, NO_FIRST_PAIR, NO_VALUE, text_lines

_QUOTED: Final = r'"(?P<quoted>[^"\\]*(?:\\.[^"\\]*)*)"'
_KEY: Final = r"""[^\s="'`|,;(){}<>]+"""
"""Characters of a key: not white space, quotes, brackets or separators in a line, so that `a|b=1` is not a pair."""
_PAIR: Final = re.compile(
    rf'(?:(?P<key>{_KEY})(?P<is>=(?:{_QUOTED}|(?P<plain>[^\s"]\S*)?))|(?P<flag>[^\s="]+))(?P<end>\s+|$)', re.DOTALL
)


class LogfmtFormat(FormatNode, frozen=True, tag="logfmt"):
    """`key=value key="quoted value" flag`."""

    def read_rows(self, values: pa.Array) -> list[Row]:
        return [_logfmt(line) for line in text_lines(values).to_pylist()]


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


FORMATS: Final = (plain_format("logfmt", LogfmtFormat()),)
