"""How lines begin: a time in one of the forms that programs write, or a word or two and then a time, and the severity.

Knows texts and the library of patterns. Must not know what follows.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

_LEVELS: Final = (
    "trace debug info information notice warn warning error err severe critical crit fatal alert emerg emergency panic"
)
_LEVEL: Final = re.compile(rf"(\W{{0,2}})({'|'.join(_LEVELS.split())})(\W{{0,2}})", re.IGNORECASE)
_LEVEL_PLACES: Final = 5
_LEAD_MOST: Final = 2
"""Words in front of the time: a file's name, a container, a host."""
_MOST: Final = 0.8
"""Of the lines have to agree."""


class TimeForm(NamedTuple):
    """One way to write a time."""

    expression: str
    """Python's, to recognise it."""
    pattern: str
    """For a rule; a group `time` or `%{NAME:time}`."""
    format: str | None = None
    """The rule's `time_format`, where it is not recognised by itself."""


TIMES: Final = (
    TimeForm(
        r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?",
        "%{TIMESTAMP_ISO8601:time}",
        "iso8601",
    ),
    TimeForm(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}", "%{HTTPDATE:time}", "clf"),
    TimeForm(
        r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}",
        r"(?P<time>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})",
        "ctime",
    ),
    TimeForm(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d", "%{SYSLOGTIMESTAMP:time}", "syslog"),
    TimeForm(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d", r"(?P<time>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)", "%Y/%m/%d %H:%M:%S"),
    TimeForm(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d", r"(?P<time>\d\d/\d\d/\d\d \d\d:\d\d:\d\d)", "%y/%m/%d %H:%M:%S"),
    TimeForm(r"\d{6} \d{6}", r"(?P<time>\d{6} \d{6})", "%y%m%d %H%M%S"),
    TimeForm(r"\d{10}(?:\.\d+)?(?!\d)|\d{13}(?!\d)", r"(?P<time>\d{10}(?:\.\d+)?|\d{13})", "epoch"),
)


class Header(NamedTuple):
    """What lines begin with, up to the blank before their words."""

    time: TimeForm
    before: str
    """Right in front of the time: a bracket, say."""
    behind: str
    """Between the time and the blanks before the words."""
    gap: str
    """The blanks, as an expression: one, or any number where some lines have more (`%5p` pads severities)."""
    lead: int = 0
    """Words in front of all this."""


def header_of(lines: Sequence[str]) -> Header | None:
    """The header of most of these lines; None if they have no time among their first words."""
    for lead in range(_LEAD_MOST + 1):
        found = [one for time in TIMES if (one := _header(lines, time, lead)) is not None]
        count, best = max(found, key=lambda one: one[0], default=(0, None))  # of several as frequent, the first
        if count >= _MOST * len(lines) / 2:
            return best
    return None


def _header(lines: Sequence[str], time: TimeForm, lead: int) -> tuple[int, Header] | None:
    """What most lines with a time behind so many words begin with, and how many do."""
    beginning = re.compile(rf"{_leading(lead)}(\W{{0,2}})(?:{time.expression})(\W{{0,3}}(?: +|$))")
    found = [(match[1], match[2]) for line in lines if (match := beginning.match(line))]
    seen = Counter((before, behind.rstrip(" ")) for before, behind in found)
    if not seen:
        return None
    (before, behind), count = seen.most_common(1)[0]
    blanks = {each[len(behind) :] for first, each in found if (first, each.rstrip(" ")) == (before, behind)}
    return count, Header(time, before, behind, " +" if blanks - {" ", ""} else " ", lead)


def _leading(words: int) -> str:
    return rf"(?:\S+ +){{{words}}}" if words else ""


def words_behind(header: Header | None, line: str) -> list[str] | None:
    """The words of a line behind its header; None if the line does not begin so."""
    if header is None:
        return line.split(" ")
    start = f"{_leading(header.lead)}{re.escape(header.before)}(?:{header.time.expression}){re.escape(header.behind)}"
    match = re.match(f"{start}(?:{header.gap}|$)", line)
    return None if match is None else line[match.end() :].split(" ")


def level_place(lines: Sequence[Sequence[str]]) -> int | None:
    """The place of the word that is a severity in most lines, among the first few; None if there is none."""
    for place in range(_LEVEL_PLACES):
        words = [line[place] for line in lines if len(line) > place]
        if words and sum(map(is_level, words)) >= _MOST * len(lines):
            return place
    return None


def without_padding(lines: Sequence[Sequence[str]], level: int) -> tuple[list[Sequence[str]], bool]:
    """The lines without the blanks that pad their severities to one width (`%-5p`); whether any had more than one."""
    found: list[Sequence[str]] = []
    for line in lines:
        words = next((at for at in range(level + 1, len(line)) if line[at]), level + 1)
        found.append([*line[: level + 1], *line[words:]] if len(line) > level and is_level(line[level]) else line)
    return found, any(len(line) < len(padded) for line, padded in zip(found, lines, strict=True))


def with_one_level(lines: Sequence[Sequence[str]], level: int) -> list[Sequence[str]]:
    """The lines with one word for all severities: what a program says at several of them is one template."""
    return [
        [*line[:level], _LEVEL.sub(r"\1info\3", line[level]), *line[level + 1 :]]
        if len(line) > level and is_level(line[level])
        else line
        for line in lines
    ]


def is_level(word: str) -> bool:
    """Whether a word is a severity, with up to two signs on each side."""
    return _LEVEL.fullmatch(word) is not None


def level_parts(word: str) -> tuple[str, str]:
    """What stands before and behind the severity in a word.

    >>> level_parts("[error]")
    ('[', ']')
    """
    match = _LEVEL.fullmatch(word)
    return (match[1], match[3]) if match is not None else ("", "")
