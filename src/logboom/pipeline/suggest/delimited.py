"""Lines of columns: the same number of signs between texts.

Knows texts and how lines begin. Must not know what a rule reads of them.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from logboom.pipeline.suggest.header import TIMES, TimeForm, is_level

_DELIMITERS: Final = ("|", "\t", ";")
_LEAST: Final = 2
"""Delimiters in a line."""
_MOST: Final = 0.8
"""Of the lines have to agree."""


class Columns(NamedTuple):
    """What lines are made of."""

    delimiter: str
    names: tuple[str, ...]
    time: TimeForm | None


def columns_of(lines: Sequence[str]) -> Columns | None:
    """The columns of most of these lines; None if they have none."""
    for delimiter in _DELIMITERS:
        (count, agreeing) = Counter(line.count(delimiter) for line in lines).most_common(1)[0]
        if count >= _LEAST and agreeing >= _MOST * len(lines):
            rows = [line.split(delimiter) for line in lines if line.count(delimiter) == count]
            return _named(delimiter, [[cell.strip() for cell in column] for column in zip(*rows, strict=True)])
    return None


def _named(delimiter: str, columns: Sequence[Sequence[str]]) -> Columns:
    names: list[str | None] = []
    time: TimeForm | None = None
    for cells in columns:
        form = next((one for one in TIMES if _most(cells, partial(_is_time, one))), None)
        if form is not None and time is None:
            time = form
            names.append("time")
        elif _most(cells, is_level) and "severity" not in names:
            names.append("severity")
        else:
            names.append(None)
    unnamed = [place for place, name in enumerate(names) if name is None]
    if unnamed:  # the column with the most words, the last of several
        body = max(unnamed, key=lambda place: (sum(cell.count(" ") for cell in columns[place]), place))
        names[body] = "body"
    found = tuple(name or f"field_{place + 1}" for place, name in enumerate(names))
    return Columns(delimiter, found, time)


def _most(cells: Sequence[str], holds: Callable[[str], bool]) -> bool:
    return sum(holds(cell) for cell in cells) >= _MOST * len(cells)


def _is_time(form: TimeForm, cell: str) -> bool:
    return re.fullmatch(form.expression, cell) is not None
