r"""The groups of an RE2 expression: where they open, which of them capture, and which can match together.

It reads just enough of RE2's syntax (https://github.com/google/re2/wiki/Syntax) to tell a parenthesis that opens a
group from one that stands for itself: escapes (`\(`), quotations (`\Q...\E`), character classes (`[(]`, `[]()]`,
`[[:alpha:]]`) and references (`%{NAME:field}`) are passed over as they are. It does not check whether the
expression is valid; the engines do.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"(?P<reference>%\{[^{}]*\})"
    r"|(?P<quotation>\\Q.*?(?:\\E|\Z))"
    r"|(?P<escape>\\.)"
    # A bracket directly after the opening one (or its ^) is a member of the class and does not end it.
    r"|(?P<set>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]?)"
    r"|\(\?P?<(?P<name>[A-Za-z_][\w.]*)>"
    r"|(?P<special>\(\?)"
    r"|(?P<open>\()"
    r"|(?P<close>\))"
    r"|(?P<bar>\|)",
    re.DOTALL,
)

Branch = tuple[tuple[int, int], ...]
"""A group's serial number and the index of its alternative, from the outermost group inwards."""


class Group(NamedTuple):
    """A named group and its position in the alternatives of the enclosing groups."""

    name: str
    branch: Branch

    def excludes(self, other: "Group") -> bool:
        """Whether the two are in different alternatives of one group, so that a text fills at most one of them."""
        for mine, others in zip(self.branch, other.branch, strict=False):
            if mine != others:
                return mine[0] == others[0]
        return False


def replace_groups(expression: str, named: Callable[[str], str], unnamed: str) -> str:
    """The expression with other openings of its capturing groups: `named` returns that of a named group.

    >>> replace_groups(r"(a|[(]b\\() (?P<x>c)(?i:d)", lambda name: f"(?P<{name}>", "(?:")
    '(?:a|[(]b\\\\() (?P<x>c)(?i:d)'
    """

    def opening(match: re.Match[str]) -> str:
        if match["name"] is not None:
            return named(match["name"])
        return unnamed if match["open"] is not None else match[0]

    return _TOKEN.sub(opening, expression)


def named_groups(expression: str) -> Iterator[Group]:
    """The named groups from left to right."""
    serial = 0
    open_groups = [(serial, 0)]
    for match in _TOKEN.finditer(expression):
        if match["name"] is not None:
            yield Group(match["name"], tuple(open_groups))
        if match["name"] is not None or match["open"] is not None or match["special"] is not None:
            # `(?i)` sets a flag and opens no group; its closing parenthesis removes this entry again.
            serial += 1
            open_groups.append((serial, 0))
        elif match["close"] is not None and len(open_groups) > 1:
            open_groups.pop()
        elif match["bar"] is not None:
            group, alternative = open_groups[-1]
            open_groups[-1] = (group, alternative + 1)


def has_single_bytes(expression: str) -> bool:
    r"""Whether it contains `\\C`, which matches half a character: the content of such a group is not text."""
    return any(match["escape"] == r"\C" for match in _TOKEN.finditer(expression))
