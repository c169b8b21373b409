"""Bodies that are themselves written in a format: JSON inside a syslog line and the like.

It knows rows. It must not know any particular format, nor what other fields mean. A body that does not parse stays a
text.
"""

from collections.abc import Callable

from logboom.pipeline.normalise.fields import body_names
from logboom.pipeline.normalise.rows import Fields, Row
from logboom.pipeline.parse.formats.registry import format_types
from logboom.pipeline.parse.rule import ParseRule

ReadBody = Callable[[str], Fields | None]


def open_bodies(rule: ParseRule, rows: list[Row]) -> None:
    """Read bodies once more where the rule says so; rows are changed in place."""
    if rule.body_format is None:
        return
    read = format_types()[rule.body_format].read_body
    assert read is not None, "the compiler refuses a format that reads no bodies"
    names = body_names(rule)
    for row in rows:
        if isinstance(row, dict):
            _open(row, names, read)


def _open(row: Fields, names: tuple[str, ...], read: ReadBody) -> None:
    """The inner fields win over those around them; where there is no body among them the text stays the body."""
    name = next((name for name in names if type(row.get(name)) is str), None)
    if name is None:
        return
    inner = read(row[name].strip())
    if inner is None:
        return
    if any(name in inner for name in names):
        del row[name]
    row.update(inner)
