"""Fields of an event by name, for sinks that make columns, labels or tags of them: `service`, `attributes.url.path`.

Knows the event as an object. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from logboom.pipeline.event.names import find_attribute
from logboom.pipeline.event.record import EventRecord, attributes_of
from logboom.pipeline.plan.nodes import EVENT_COLUMNS

COLUMNS: Final = tuple(name for name, _ in EVENT_COLUMNS)
ATTRIBUTES: Final = "attributes."
"""Begins the name of a field that is an attribute."""


def is_field(name: str) -> bool:
    """Whether an event may have it.

    >>> is_field("service"), is_field("attributes.user.id"), is_field("attributes."), is_field("user")
    (True, True, False, False)
    """
    return name in COLUMNS or (name.startswith(ATTRIBUTES) and len(name) > len(ATTRIBUTES))


class FieldReader:
    """Reads some fields of events; if any of them is an attribute, the attributes are decoded once for each event."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._readers = [_reader(name) for name in names]
        self._decodes = any(name.startswith(ATTRIBUTES) for name in names)

    def values(self, event: EventRecord) -> list[Any]:
        """One for each name: None if the event has none; `attributes` as a whole is its JSON, as bytes."""
        attributes = attributes_of(event) if self._decodes else {}
        return [read(event, attributes) for read in self._readers]


def _reader(name: str) -> Callable[[EventRecord, dict[str, Any]], Any]:
    if name == "attributes":
        return lambda event, _: bytes(event.attributes)
    if name.startswith(ATTRIBUTES):
        key = name.removeprefix(ATTRIBUTES)
        return lambda _, attributes: find_attribute(attributes, key)
    return lambda event, _: getattr(event, name)
