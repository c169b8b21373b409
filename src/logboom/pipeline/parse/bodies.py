"""Parses bodies that are themselves in a format: JSON inside a syslog line, an access line inside JSON and the like.

Knows rows. Must not know any particular format, nor the meaning of other fields. A body that cannot be parsed stays a
text.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from logboom.pipeline.normalise.fields import body_names, rival_names
from logboom.pipeline.normalise.rows import Fields, Row
from logboom.pipeline.parse.rule import ParseRule

_PLAIN: Final = frozenset((str, int, float, bool))
"""An object under such a name has another meaning."""


def open_bodies(rule: ParseRule, rows: list[Row]) -> None:
    """Parse bodies again if the rule says so; changes rows in place."""
    form = rule.of_bodies
    if form is None:
        return
    names, rivals = body_names(rule), rival_names(rule)
    found = [(row, name) for row in rows if isinstance(row, dict) and (name := _body_of(row, names)) is not None]
    texts = pa.array([row[name].strip().encode(errors="replace") for row, name in found], pa.binary())
    for (row, name), inner in zip(found, form.read_rows(texts), strict=True):
        if isinstance(inner, dict):
            if any(name in inner for name in names):
                del row[name]
            _give_way(row, inner, rivals)
            row.update(inner)


def _body_of(row: Fields, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if type(row.get(name)) is str), None)


def _give_way(row: Fields, inner: Fields, rivals: Mapping[str, tuple[str, ...]]) -> None:
    """Values in the body replace those around it for time, severity, service and the like, even under another name: an
    agent writes the time of reading a line, and one severity for everything on stderr."""
    for said in inner.keys() & rivals.keys():
        if type(inner[said]) not in _PLAIN:
            continue
        for name in rivals[said]:
            if type(row.get(name)) in _PLAIN:
                del row[name]
