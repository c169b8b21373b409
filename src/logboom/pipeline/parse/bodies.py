"""Bodies that are themselves written in a format: JSON inside a syslog line, an access line inside JSON and the like.

It knows rows. It must not know any particular format, nor what other fields mean. A body that does not parse stays a
text.
"""

import pyarrow as pa

from logboom.pipeline.normalise.fields import body_names
from logboom.pipeline.normalise.rows import Fields, Row
from logboom.pipeline.parse.rule import ParseRule


def open_bodies(rule: ParseRule, rows: list[Row]) -> None:
    """Read bodies once more where the rule says so; rows are changed in place."""
    form = rule.of_bodies
    if form is None:
        return
    names = body_names(rule)
    found = [(row, name) for row in rows if isinstance(row, dict) and (name := _body_of(row, names)) is not None]
    texts = pa.array([row[name].strip().encode(errors="replace") for row, name in found], pa.binary())
    for (row, name), inner in zip(found, form.read_rows(texts), strict=True):
        if isinstance(inner, dict):
            _open(row, name, inner, names)


def _body_of(row: Fields, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if type(row.get(name)) is str), None)


def _open(row: Fields, name: str, inner: Fields, names: tuple[str, ...]) -> None:
    """The inner fields win over those around them; where there is no body among them the text stays the body."""
    if any(name in inner for name in names):
        del row[name]
    row.update(inner)
