"""Names that contain fields of an event: `logs-{service}-{time:%Y.%m.%d}`.

Braces contain a text field of the event, `attributes.NAME`, or `time:` with directives for the time in UTC (the
observed time if the event has none). `{service|none}` has a default for events without that field. Without a default,
the whole template has no value for such an event. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from logboom.pipeline.event.names import find_attribute
from logboom.pipeline.event.record import EventRecord, attributes_of
from logboom.pipeline.plan.nodes import EVENT_COLUMNS
from logboom.pipeline.sinks.base import SinkReport

_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_DIRECTIVE: Final = re.compile(r"%(.)")
_DATES: Final[dict[str, Callable[[datetime], str]]] = {
    "Y": lambda time: f"{time.year:04}",
    "y": lambda time: f"{time.year % 100:02}",
    "m": lambda time: f"{time.month:02}",
    "d": lambda time: f"{time.day:02}",
    "H": lambda time: f"{time.hour:02}",
    "j": lambda time: f"{time.timetuple().tm_yday:03}",
    "G": lambda time: f"{time.isocalendar().year:04}",
    "V": lambda time: f"{time.isocalendar().week:02}",
    "%": lambda _: "%",
}
FIELDS: Final = tuple(name for name, kind in EVENT_COLUMNS if kind in ("string", "int", "bigint"))

_ALWAYS_THERE: Final = frozenset(("event_id", "source", "stream", "partition", "offset"))
"""Fields that every event has: its origin is always known."""


class TemplateError(ValueError):
    """A template that cannot be parsed. The text is the end of a sentence about it."""


class Template:
    """A parsed template."""

    def __init__(self, text: str) -> None:
        """:raises TemplateError: with what is wrong."""
        self._parts: list[str | tuple[str, str | None]] = []
        position = 0
        for found in _BRACES.finditer(text):
            self._literal(text[position : found.start()])
            self._parts.append(_field(found[1]))
            position = found.end()
        self._literal(text[position:])

    @property
    def is_constant(self) -> bool:
        """Whether the text is the same for all events."""
        return all(isinstance(part, str) for part in self._parts)

    @property
    def optional_fields(self) -> list[str]:
        """Fields that an event may lack and that have no default: if one is missing, the template has no value."""
        named = [part for part in self._parts if not isinstance(part, str)]
        return [name for name, otherwise in named if otherwise is None and not _is_always_there(name)]

    @property
    def has_always_text(self) -> bool:
        """Whether the template has a value for every event, and never an empty one."""
        if self.optional_fields:
            return False
        return any(isinstance(part, str) or part[1] or _is_always_there(part[0]) for part in self._parts)

    @property
    def reads_attributes(self) -> bool:
        """Whether the template needs the decoded attributes of an event."""
        return any(not isinstance(part, str) and part[0].startswith("attributes.") for part in self._parts)

    def render(self, event: EventRecord, attributes: dict[str, Any] | None = None) -> str | None:
        """The text for an event; None if a field without default is missing. `attributes`: pass them if they are
        decoded."""
        if attributes is None and self.reads_attributes:
            attributes = attributes_of(event)
        texts: list[str] = []
        for part in self._parts:
            if isinstance(part, str):
                texts.append(part)
                continue
            name, otherwise = part
            value = _value(name, event, attributes or {})
            value = otherwise if value is None else value
            if value is None:
                return None
            texts.append(value)
        return "".join(texts)

    def pattern(self, literal: Callable[[str], str], field: str) -> str:
        """A pattern that matches all its texts: constant parts through `literal`, and `field` for parts from the event.

        >>> Template("logs-{service}").pattern(str.upper, "*")
        'LOGS-*'
        """
        return "".join(literal(part) if isinstance(part, str) else field for part in self._parts)

    def _literal(self, text: str) -> None:
        if "{" in text or "}" in text:
            raise TemplateError("has an unpaired brace")
        if text:
            self._parts.append(text)


def check_template(report: SinkReport, key: str, text: str) -> None:
    """Report what is wrong with the template in a key of a sink."""
    try:
        Template(text)
    except TemplateError as error:
        report.problem(key, f"{text!r} {error}")


def warn_of_no_value(report: SinkReport, key: str, text: str) -> None:
    """Warn about a template that has no value for some events, if these become dead letters."""
    try:
        optional = Template(text).optional_fields
    except TemplateError:
        return  # already reported
    if optional:
        report.warning(
            key,
            f"an event without {' or '.join(optional)} has none, and becomes a dead letter: give a default for a "
            f"missing field ('{{{optional[0]}|none}}')",
        )


def _is_always_there(name: str) -> bool:
    """Whether every event has the field, and never as an empty text."""
    return name in _ALWAYS_THERE or name.startswith("time:")


def _field(inside: str) -> tuple[str, str | None]:
    name, mark, otherwise = inside.partition("|")
    if name.startswith("time:"):
        for found in _DIRECTIVE.finditer(name):
            if found[1] not in _DATES:
                raise TemplateError(f"has %{found[1]}; known here: {', '.join(f'%{key}' for key in _DATES)}")
    elif name not in FIELDS and not (name.startswith("attributes.") and len(name) > len("attributes.")):
        raise TemplateError(f"names {name!r}; known here: {', '.join(FIELDS)}, attributes.NAME, time:%Y.%m.%d")
    return name, otherwise if mark else None


def _value(name: str, event: EventRecord, attributes: dict[str, Any]) -> str | None:
    if name.startswith("time:"):
        when = event.time or event.observed_time
        return None if when is None else _date(name[len("time:") :], when[:13])
    if name.startswith("attributes."):
        return text_of(find_attribute(attributes, name[len("attributes.") :]))
    value = getattr(event, name)
    return None if value is None else str(value)


def text_of(value: Any) -> str | None:
    """The text of an attribute: numbers and booleans as JSON writes them, objects and lists as JSON."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


@lru_cache(maxsize=1_024)
def _date(form: str, hour: str) -> str:
    """`hour`: a time in RFC 3339, cut after the hour, `2026-11-23T07`."""
    time = datetime(int(hour[:4]), int(hour[5:7]), int(hour[8:10]), int(hour[11:13]))  # noqa: DTZ001 - all are UTC
    return _DIRECTIVE.sub(lambda found: _DATES[found[1]](time), form)
