"""Bodies that are themselves written in a format: JSON inside a syslog line and the like.

It knows rows and two formats. It must not know what other fields mean. A body that does not parse stays a text.
"""

from typing import Any

from logboom.pipeline.normalise.fields import body_names
from logboom.pipeline.normalise.rows import Fields, Row
from logboom.pipeline.parse.json_lines import object_of
from logboom.pipeline.parse.pairs import logfmt_of
from logboom.pipeline.plan.nodes import ParseRule


def open_bodies(rule: ParseRule, rows: list[Row]) -> None:
    """Read bodies once more where the rule says so; rows are changed in place."""
    if rule.body_format is None:
        return
    names = body_names(rule)
    for row in rows:
        if isinstance(row, dict):
            _open(row, names, rule.body_format)


def _open(row: Fields, names: tuple[str, ...], form: str) -> None:
    """The inner fields win over those around them; where there is no body among them the text stays the body."""
    name = next((name for name in names if type(row.get(name)) is str), None)
    if name is None:
        return
    inner = _inner(row[name].strip(), form)
    if inner is None:
        return
    if any(name in inner for name in names):
        del row[name]
    row.update(inner)


def _inner(text: str, form: str) -> dict[str, Any] | None:
    if form == "json":
        return object_of(text.encode(errors="replace")) if text.startswith("{") else None
    return logfmt_of(text)
