"""Backslash escapes in logfmt and in quoted values of pairs. Knows only text."""

import re
from typing import Final

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


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
