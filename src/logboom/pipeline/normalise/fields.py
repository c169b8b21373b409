"""Chooses which of a line's fields fill which slots of an event, and moves them there. The other fields become
attributes.

A slot is a value of an event that a line may provide (SLOTS). Candidates for a slot are the fields that a rule maps to
it, then the names that programs commonly use. The first candidate that is present with a simple value is moved; the
others stay fields.

Knows names. Must not know how a value is converted.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from logboom.pipeline.normalise.mapping import EventMapping
from logboom.pipeline.normalise.rows import Fields, Row

Path = tuple[str, ...]
Values = Any
"""The values of a slot for each row: a list, or a string array."""

SLOTS: Final = (
    "time",
    "severity",
    "severity_number",
    "severity_text",
    "service",
    "host",
    "body",
    "trace_id",
    "span_id",
    "traceparent",
)
"""The slots that a line, and `map` in a rule, may fill."""

_COMMON: Final[dict[str, tuple[str, ...]]] = {
    "time": (
        "time",
        "timestamp",
        "@timestamp",
        "ts",
        "datetime",
        "Timestamp",
        "@t",
        "event_time",
        "eventTime",
        "asctime",
    ),
    "severity": (
        "severity",
        "level",
        "lvl",
        "log.level",
        "log_level",
        "loglevel",
        "levelname",
        "@l",
        "Level",
        "Severity",
    ),
    "severity_number": ("severity_number", "severityNumber", "SeverityNumber"),
    "severity_text": ("severity_text", "severityText", "SeverityText"),
    "service": ("service", "service.name", "service_name", "serviceName", "app", "application", "appname", "app_name"),
    "host": ("host", "host.name", "hostname", "host_name"),
    "body": ("body", "message", "msg", "Body", "Message", "@m", "event", "log", "text"),
    "trace_id": ("trace_id", "traceId", "traceID", "trace.id", "otelTraceID", "TraceId"),
    "span_id": ("span_id", "spanId", "spanID", "span.id", "otelSpanID", "SpanId"),
    "traceparent": ("traceparent",),
}
_SEVERITY: Final = ("severity", "severity_number", "severity_text")
_SHAPES_MAX: Final = 4096
_NESTED: Final = (dict, list)
_UNUSABLE: Final = frozenset((dict, list, type(None)))


class _Shape(NamedTuple):
    """What depends only on the names of a row's fields. Rows with the same names are processed together."""

    simple: tuple[tuple[int, str], ...]
    """Slots whose best candidate is a top-level field, and its name."""

    paths: dict[str, tuple[Path, ...]]
    """All possible candidates of a slot, best first."""

    searched: tuple[str, ...]
    """Slots whose best candidate is inside an object, and so may be present in some rows only."""


class SlotValues(Protocol):
    """Raw values by slot and row; None if there is none."""

    @property
    def values(self) -> Mapping[str, Values]:
        """By slot."""
        ...

    def put_back(self, slot: str, index: int) -> None:
        """The value does not have the type of its slot: it becomes an attribute again, and the slot is empty."""
        ...


class RowSlots:
    """The `SlotValues` of rows. It remembers the origin of each value, so that it can be put back."""

    __slots__ = ("_moved", "_rows", "_seen", "_shapes", "values")

    def __init__(
        self, rows: Sequence[Row], values: dict[str, list[Any]], shapes: list[_Shape | None], seen: list[_Shape]
    ) -> None:
        """`shapes`: by row, None for a row without fields; `seen`: the distinct ones."""
        self.values = values
        self._rows = rows
        self._shapes = shapes
        self._seen = seen
        self._moved: dict[tuple[str, int], Path] = {}

    def put_back(self, slot: str, index: int) -> None:
        """Move a value back to the fields of its row."""
        here, path = self._rows[index], self._path(slot, index)
        assert isinstance(here, dict)
        for step in path[:-1]:
            here = here.setdefault(step, {})
        here[path[-1]] = self.values[slot][index]
        self.values[slot][index] = None

    def take_next(self, slot: str, index: int) -> None:
        """Move the first candidate with a simple value; the one in the slot before had none."""
        row, shape = self._rows[index], self._shapes[index]
        assert isinstance(row, dict)
        assert shape is not None
        for path in shape.paths[slot]:
            holder = _holder(row, path)
            value = holder.get(path[-1]) if holder is not None else None
            if holder is not None and value is not None and type(value) not in _NESTED:
                self.values[slot][index] = holder.pop(path[-1])
                self._moved[slot, index] = path
                return

    def replace_unusable(self) -> None:
        """Put back values that are null, an object or a list, and move the next candidate instead."""
        wanted = {slot for shape in self._seen for slot in shape.paths}
        for slot, values in self.values.items():
            if slot not in wanted or set(map(type, values)).isdisjoint(_UNUSABLE):
                continue
            for index, (value, shape) in enumerate(zip(values, self._shapes, strict=True)):
                if shape is None or type(value) not in _UNUSABLE or slot not in shape.paths:
                    continue
                if value is not None:
                    self.put_back(slot, index)
                if len(shape.paths[slot]) > 1 or slot in shape.searched:
                    self.take_next(slot, index)

    def _path(self, slot: str, index: int) -> Path:
        moved = self._moved.get((slot, index))
        if moved is not None:
            return moved
        shape = self._shapes[index]
        assert shape is not None
        return shape.paths[slot][0]


class SlotExtractor:
    """Fills the slots of rows for one rule. Caches the shapes that it has seen."""

    def __init__(self, rule: EventMapping) -> None:
        own = dict(rule.mapping)
        self._candidates = {slot: _paths((*own.get(slot, ()), *_COMMON[slot])) for slot in SLOTS}
        # An HTTP status that determines the severity is also kept as an attribute.
        self._severity_stays = rule.severity_scale == "http"
        self._shapes: dict[tuple[str, ...], _Shape] = {}

    def take(self, rows: Sequence[Row]) -> RowSlots:
        """Move the values of slots out of every row with fields."""
        columns: list[list[Any]] = [[None] * len(rows) for _ in SLOTS]
        row_shapes, by_shape = self._shapes_of(rows)
        for shape, indices in by_shape:
            if len(indices) == len(rows):  # every row has the same fields
                for slot, name in shape.simple:
                    columns[slot] = [row.pop(name) for row in rows]  # type: ignore[union-attr]
                continue
            members: list[Any] = [rows[index] for index in indices]
            for slot, name in shape.simple:
                column = columns[slot]
                for index, row in zip(indices, members, strict=True):
                    column[index] = row.pop(name)
        seen = [shape for shape, _ in by_shape]
        slots = RowSlots(rows, dict(zip(SLOTS, columns, strict=True)), row_shapes, seen)
        slots.replace_unusable()
        if self._severity_stays:
            for index, value in enumerate(slots.values["severity"]):
                if value is not None:
                    slots.put_back("severity", index)
                    slots.values["severity"][index] = value
        return slots

    def plain_slots(self, names: tuple[str, ...]) -> tuple[tuple[str, str], ...] | None:
        """For rows with these fields, none of them nested or null: the filled slots and their fields; None if the names
        alone do not determine that."""
        if self._severity_stays or len(set(names)) != len(names):
            return None
        shape = self._shapes.get(names) or self._shape(names)
        return None if shape.searched else tuple((SLOTS[slot], name) for slot, name in shape.simple)

    def may_use(self, name: str) -> bool:
        """Whether a field with this name may fill a slot."""
        return any(path[0] == name for paths in self._candidates.values() for path in paths)

    def _shapes_of(self, rows: Sequence[Row]) -> tuple[list[_Shape | None], list[tuple[_Shape, list[int]]]]:
        """The shape of each row with fields, and the rows of each shape."""
        members = _rows_by_names(rows)
        by_shape = [(self._shapes.get(names) or self._shape(names), indices) for names, indices in members.items()]
        if len(by_shape) == 1 and len(by_shape[0][1]) == len(rows):
            return [by_shape[0][0]] * len(rows), by_shape
        row_shapes: list[_Shape | None] = [None] * len(rows)
        for shape, indices in by_shape:
            for index in indices:
                row_shapes[index] = shape
        return row_shapes, by_shape

    def _shape(self, names: tuple[str, ...]) -> _Shape:
        there = frozenset(names)
        paths = {slot: tuple(path for path in self._candidates[slot] if path[0] in there) for slot in SLOTS}
        paths = {slot: found for slot, found in paths.items() if found}
        claimed: dict[str, str] = {}
        for slot, found in paths.items():
            if len(found[0]) == 1:
                claimed.setdefault(found[0][0], slot)
        simple = tuple((SLOTS.index(slot), name) for name, slot in claimed.items())
        searched = tuple(slot for slot in paths if slot not in claimed.values())
        if len(self._shapes) >= _SHAPES_MAX:
            self._shapes.clear()
        return self._shapes.setdefault(names, _Shape(simple, paths, searched))


def _rows_by_names(rows: Sequence[Row]) -> dict[tuple[str, ...], list[int]]:
    """The rows with fields, grouped by the names of these. Adjacent rows usually have the same names, and comparing two
    tuples is faster than hashing one with a dozen names."""
    members: dict[tuple[str, ...], list[int]] = {}
    last: tuple[str, ...] | None = None
    found: list[int] = []
    for index, row in enumerate(rows):
        if type(row) is dict:
            names = tuple(row)
            if names != last:
                last = names
                found = members.setdefault(names, [])
            found.append(index)
    return members


@lru_cache(maxsize=256)
def extractor_for(rule: EventMapping) -> SlotExtractor:
    """One extractor per rule and process, so that shapes are computed once."""
    return SlotExtractor(rule)


def body_names(rule: EventMapping) -> tuple[str, ...]:
    """Names of top-level fields that may contain the body, best first."""
    return tuple(dict.fromkeys((*dict(rule.mapping).get("body", ()), *_COMMON["body"])))


def rival_names(rule: EventMapping) -> dict[str, tuple[str, ...]]:
    """For the name of a top-level field that may fill another slot than the body: all names that may fill the same one.
    Severities under any of these names are treated as one."""
    found: dict[str, tuple[str, ...]] = {}
    for slots in (*((slot,) for slot in SLOTS if slot != "body" and slot not in _SEVERITY), _SEVERITY):
        mapped = (name for slot in slots for name in dict(rule.mapping).get(slot, ()))
        names = tuple(dict.fromkeys((*mapped, *(name for slot in slots for name in _COMMON[slot]))))
        found |= dict.fromkeys(names, names)
    return found


def _paths(names: Sequence[str]) -> tuple[Path, ...]:
    """The paths that a name may refer to: one with dots is a field with that name, or a path into nested objects."""
    found: dict[Path, None] = {}
    for name in names:
        found[(name,)] = None
        if "." in name.strip("."):
            found[tuple(name.split("."))] = None
    return tuple(found)


def _holder(row: Fields, path: Path) -> Fields | None:
    """The object that would contain the last step of a path."""
    here: Any = row
    for step in path[:-1]:
        here = here.get(step)
        if not isinstance(here, dict):
            return None
    return here if isinstance(here, dict) else None
