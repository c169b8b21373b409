"""Lines as words, and what of a line a template leaves open. Knows only texts.

A line counts up to its first line break, 4,096 characters and 100 words; what is behind belongs to no template.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

OPEN: Final = "<*>"
"""In a template: anything without a blank."""
WORDS_MAX: Final = 100
Opening = tuple[int, int, int]
"""The place of a word that is open, and how many characters of it are fixed in front and behind."""

_CHARACTERS_MAX: Final = 4_096
_VARIABLE: Final = (
    r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"  # a UUID
    r"|\b0x[0-9a-f]+\b"
    r"|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b"  # a MAC address
    r"|\b[0-9a-f]*[0-9][0-9a-f]{7,}\b"  # a hash or a long id
    r"|[0-9]+(?:[.:,/-][0-9]+)*"  # numbers, times, dates, addresses
)
"""RE2: what is never part of a template."""


def first_lines(bodies: pa.Array) -> pa.Array:
    """What of each text counts; null for none and for blanks."""
    lines = pc.utf8_slice_codeunits(bodies, 0, _CHARACTERS_MAX)
    lines = pc.utf8_trim_whitespace(lines)
    lines = pc.replace_substring_regex(lines, r"(?s)[\r\n].*", "")
    return pc.if_else(pc.equal(lines, ""), pa.scalar(None, pa.string()), lines)


def without_values(lines: pa.Array) -> pa.Array:
    """The lines with OPEN in place of numbers and ids, so that most lines of one program are the same few."""
    return pc.replace_substring_regex(lines, _VARIABLE, OPEN)


def words_of(line: str) -> list[str]:
    """The words that a template may fix, at least one."""
    return line.split(None, WORDS_MAX)[:WORDS_MAX] or [""]


def openings_of(template: Sequence[str]) -> tuple[Opening, ...]:
    """Where a template is open.

    >>> openings_of(["user=<*>", "left", "<*>"])
    ((0, 5, 0), (2, 0, 0))
    """
    found = [(place, word.find(OPEN), word.rfind(OPEN)) for place, word in enumerate(template) if OPEN in word]
    return tuple((place, start, len(template[place]) - end - len(OPEN)) for place, start, end in found)


def values_in(openings: Sequence[Opening], line: str) -> list[str]:
    """What stands in a line where its template is open, in order; of a word that is open in part, that part.

    >>> values_in(openings_of(["user=<*>", "left", "<*>"]), "user=7 left home")
    ['7', 'home']
    """
    words = line.split(None, WORDS_MAX)
    return [
        words[place][start : len(words[place]) - behind] if start or behind else words[place]
        for place, start, behind in openings
    ]
