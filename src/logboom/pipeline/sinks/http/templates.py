"""Names made of fields of an event: `logs-{service}-{time:%Y.%m.%d}`.

Braces hold a text field of the event, `attributes.NAME`, or `time:` with directives for the time in UTC (of observing
where the event has none). `{service|none}` says what stands there where an event has none; by default nothing does, and
the whole template has no value then. Pure.
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
"""Where an event comes from is known, whatever is in it."""


class TemplateError(ValueError):
    """A template that cannot be understood; its text is the end of a sentence about it."""


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
        """Whether it is the same for all events."""
        return all(isinstance(part, str) for part in self._parts)

    @property
    def optional_fields(self) -> list[str]:
        """Names of fields that an event may lack and that say nothing of what stands there then: without one of them
        the template has no value."""
        named = [part for part in self._parts if not isinstance(part, str)]
        return [name for name, otherwise in named if otherwise is None and not _is_always_there(name)]

    @property
    def has_always_text(self) -> bool:
        """Whether it has a value for every event, and one that is not empty."""
        if self.optional_fields:
            return False
        return any(isinstance(part, str) or part[1] or _is_always_there(part[0]) for part in self._parts)

    @property
    def reads_attributes(self) -> bool:
        """Whether the attributes of an event have to be decoded for it."""
        return any(not isinstance(part, str) and part[0].startswith("attributes.") for part in self._parts)

    def render(self, event: EventRecord, attributes: dict[str, Any] | None = None) -> str | None:
        """Its text for an event; None if the event has no value for one of its fields. `attributes`: where they are
        decoded already."""
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
        """What all its texts look like: its own words as `literal` writes them, and `field` for what is of the event.

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
    """Reports what is wrong with the template under a key of a sink."""
    try:
        Template(text)
    except TemplateError as error:
        report.problem(key, f"{text!r} {error}")


def warn_of_no_value(report: SinkReport, key: str, text: str) -> None:
    """Warns of a template that events may have no value for, where these become dead letters."""
    try:
        optional = Template(text).optional_fields
    except TemplateError:
        return  # a problem already
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
    """The text of an attribute: numbers and true or false as JSON writes them, objects and lists as JSON."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


@lru_cache(maxsize=1_024)
def _date(form: str, hour: str) -> str:
    """`hour`: the start of a time in RFC 3339, `2026-11-23T07`."""
    time = datetime(int(hour[:4]), int(hour[5:7]), int(hour[8:10]), int(hour[11:13]))  # noqa: DTZ001 - all are UTC
    return _DIRECTIVE.sub(lambda found: _DATES[found[1]](time), form)
