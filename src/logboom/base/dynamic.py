"""Settings that change while a process runs: which may, what the wire calls them, and what is in force now.

A setting's annotation carries its mark: `Dynamic` may change at run time, `Static` only names it for the wire. Each
section of the configuration (`broker`, `kafka`, ...) is added as a model; its owner gets a `Current`, from which it
reads the values in force and is notified of changes. Values set at run time are texts in two layers, this broker's own
over the cluster's default, and both over what the process was started with.

Knows models and texts; not where the layers are kept, nor what any setting does.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from logboom.base.descriptions import descriptions
from logboom.base.errors import InvalidConfigError
from logboom.base.settings import Settings, SettingsError, describe_error, dotted, load, nearest
from logboom.base.units import SECOND_MS

_PREFIX: Final = "logboom."
_NO_LIMIT: Final = "-1"
"""Also read as no limit where Kafka writes another number."""
_NO_LIMIT_DOUBLE: Final = 2.0**63
_FRACTION: Final = re.compile(r"\d{1,20}(\.\d{1,20})?([eE]\d{1,3})?")
_ECHO_MAX_CHARS: Final = 100
"""Characters of a value that an error message repeats."""
_FAULTS_MAX: Final = 20
"""Errors reported of one change. Finding the name that was meant takes time, and a request may name thousands."""

Model = TypeVar("Model", bound=Settings)
Layer = Mapping[str, str]
"""Values by wire name."""


@dataclass(frozen=True, slots=True)
class Static:
    """A setting that is read at the start, under the name that Kafka has for it; else `logboom.` and its path."""

    name: str | None = None
    in_ms: bool = False
    """A setting in seconds whose name on the wire is in milliseconds."""
    as_double: bool = False
    """A whole number for which Kafka has a fractional one; from 2^63 on it stands for no limit."""
    no_limit: int = -1
    """How Kafka writes the absence of a limit, where the setting is a number that may be null."""


@dataclass(frozen=True, slots=True)
class Dynamic(Static):
    """A setting that may change while the process runs."""


_PLAIN: Final = Static()


def mark_of(info: FieldInfo) -> Static:
    """The mark in an annotation."""
    return next((note for note in info.metadata if isinstance(note, Static)), _PLAIN)


def wire_name(path: tuple[str, ...], info: FieldInfo) -> str:
    """What clients call a setting.

    >>> wire_name(("kafka", "max_fetch_bytes"), FieldInfo(annotation=int))
    'logboom.kafka.max_fetch_bytes'
    """
    return mark_of(info).name or _PREFIX + dotted(path)


class Entry:
    """One setting of the table: its name on the wire and how its value is written there."""

    def __init__(self, path: tuple[str, ...], info: FieldInfo, description: str = "") -> None:
        self.path = path
        self.info = info
        self.documentation = " ".join(description.split())
        self.name = wire_name(path, info)
        self.dynamic = isinstance(mark_of(info), Dynamic)
        self.in_ms = mark_of(info).in_ms
        self._as_double = mark_of(info).as_double
        self._no_limit = str(mark_of(info).no_limit)

    @property
    def sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.info.annotation is SecretStr

    @cached_property
    def kinds(self) -> frozenset[type]:
        """The plain types of its values."""
        return frozenset(_kinds(self.info.annotation))

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        annotation: Any = self.info.annotation
        for note in self.info.metadata:
            annotation = Annotated[annotation, note]
        return TypeAdapter(annotation)

    @property
    def default(self) -> Any:
        """The built-in value; None where there is none."""
        return None if self.info.is_required() else self.info.get_default(call_default_factory=True)

    def text(self, value: Any) -> str | None:
        """A value as the wire has it: Kafka's number for no limit (mostly -1), None for nothing."""
        if self.sensitive or (value is None and not self._numeric):
            return None
        if value is None:
            return self._no_limit
        if isinstance(value, bool):
            return str(value).lower()
        return str(round(value * SECOND_MS) if self.in_ms else value)

    def parse(self, text: str) -> Any:
        """The value of a text. Raises InvalidConfigError that names the setting."""
        stripped = text.strip()
        if stripped in (self._no_limit, _NO_LIMIT) and self._numeric and NoneType in self.kinds:
            return None
        try:
            given: Any = int(stripped) / SECOND_MS if self.in_ms else stripped
            if self._as_double and _FRACTION.fullmatch(stripped):
                number = float(stripped)
                given = None if number >= _NO_LIMIT_DOUBLE else round(number)
            return self._adapter.validate_python(given)
        except ValidationError as error:
            why = "; ".join(dict.fromkeys(describe_error(details) for details in error.errors(include_url=False)))
            raise InvalidConfigError(f"{self.name}={text[:_ECHO_MAX_CHARS]!r}: {why}") from None
        except ValueError:
            raise InvalidConfigError(f"{self.name}={text[:_ECHO_MAX_CHARS]!r}: should be a whole number") from None

    @property
    def _numeric(self) -> bool:
        return not self.kinds.isdisjoint((int, float))


def _kinds(annotation: Any) -> Iterator[type]:
    if get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif get_origin(annotation) is Literal:
        yield str
    elif isinstance(annotation, type):
        yield annotation
    else:
        for member in get_args(annotation):
            yield from _kinds(member)


class Current(Generic[Model]):
    """The settings of one section that are in force. Components keep this object, and read `now` for each use."""

    def __init__(self, started_with: Model) -> None:
        self.now = self.started_with = started_with
        self._listeners: list[Callable[[Model], None]] = []

    def subscribe(self, listener: Callable[[Model], None]) -> None:
        """Call `listener` with the new settings after each change."""
        self._listeners.append(listener)

    def take(self, settings: Model) -> None:
        """Put other settings in force and notify the listeners."""
        if settings != self.now:
            self.now = settings
            for listener in self._listeners:
                listener(settings)


class DynamicSettings:
    """All sections of one process. Everything on one thread."""

    def __init__(self, report: Callable[[str], None], own: Layer | None = None, shared: Layer | None = None) -> None:
        self._report = report
        self.own: Layer = own or {}
        """What was set for this broker."""
        self.shared: Layer = shared or {}
        """What was set for all brokers."""
        self.table: dict[str, Entry] = {}
        self.left_out: set[str] = set()
        """Names of those that contradict what the process was started with, and so are not in force."""
        self._sections: dict[str, Current[Any]] = {}

    def add(self, section: str, started_with: Model) -> Current[Model]:
        """A section's settings, those changed at run time included, as far as they fit (`take`)."""
        current = self._sections[section] = Current(started_with)
        self.table.update((entry.name, entry) for entry in entries(type(started_with), (section,)))
        current.now = self._fitting(section)
        return current

    def _fitting(self, section: str) -> Settings:
        try:
            return self._combined(section, self.own, self.shared)
        except InvalidConfigError as error:
            self._report(f"settings changed at run time do not fit and are left out: {error}")
            return self._as_far_as_it_fits(section)

    def _as_far_as_it_fits(self, section: str) -> Settings:
        own, shared = dict[str, str](), dict[str, str]()
        for source, kept in ((self.shared, shared), (self.own, own)):
            for name, text in source.items():
                try:
                    self._combined(section, {**own, name: text} if kept is own else own, {**shared, name: text})
                except InvalidConfigError:
                    continue
                kept[name] = text
        ours = {
            name for name in {**self.own, **self.shared} if name in self.table and self.table[name].path[0] == section
        }
        self.left_out |= {name for name in ours if name not in own and name not in shared}
        return self._combined(section, own, shared)

    def value(self, entry: Entry) -> Any:
        """What is in force."""
        return _at(self._sections[entry.path[0]].now, entry.path[1:])

    def started_with(self, entry: Entry) -> tuple[bool, Any]:
        """Whether the process was started with a value of its own, and which."""
        model: Any = self._sections[entry.path[0]].started_with
        for step in entry.path[1:-1]:
            model = getattr(model, step)
        return entry.path[-1] in model.model_fields_set, getattr(model, entry.path[-1])

    def normal(self, changes: Mapping[str, str | None], there: Layer) -> dict[str, str | None]:
        """Changes with their values as the wire writes them. Raises InvalidConfigError with all that is wrong."""
        faults, fine = list[str](), dict[str, str | None]()
        for name, text in changes.items():
            try:
                if text is None and name in there:
                    fine[name] = None
                else:
                    entry = self._changeable(name)
                    fine[name] = None if text is None else entry.text(entry.parse(text))
            except InvalidConfigError as error:
                faults.append(str(error))
            if len(faults) == _FAULTS_MAX:
                break
        if faults:
            raise InvalidConfigError("; ".join(faults))
        return fine

    def _changeable(self, name: str) -> Entry:
        entry = self.table.get(name)
        if entry is None:
            close = nearest(name, self.table)
            hint = f"did you mean {close!r}?" if close else "`logboom config describe` lists all"
            raise InvalidConfigError(f"unknown setting {name!r} ({hint})")
        if not entry.dynamic:
            raise InvalidConfigError(
                f"{name} is read when the broker starts: change {dotted(entry.path)} in its configuration (file, "
                "LOGBOOM_ variable or flag) and restart it"
            )
        return entry

    def check(self, own: Layer, shared: Layer) -> None:
        """Raises InvalidConfigError where settings that are right one by one do not go together."""
        for section in self._sections:
            self._combined(section, own, shared)

    def take(self, own: Layer, shared: Layer) -> None:
        """Put other layers in force. A setting that contradicts what the process was started with is reported and left
        out: were it an error, the broker could not start, and only a running broker can undo the change. Whoever has
        checked the layers may be another broker, which was started with other settings.
        """
        self.own, self.shared = own, shared
        self.left_out.clear()
        for section, current in self._sections.items():
            current.take(self._fitting(section))

    def _combined(self, section: str, own: Layer, shared: Layer) -> Settings:
        started_with: Settings = self._sections[section].started_with
        data = started_with.model_dump(exclude_unset=True)
        changed = False
        for name, text in {**shared, **own}.items():
            entry = self.table.get(name)
            if entry is not None and entry.dynamic and entry.path[0] == section:
                _put(data, entry.path[1:], entry.parse(text))
                changed = True
        try:
            return load(type(started_with), data) if changed else started_with
        except SettingsError as error:
            raise InvalidConfigError("; ".join(f"{one.where}: {one.message}" for one in error.problems)) from None


def entries(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[Entry]:
    """The settings of a model, those of its groups included."""
    described = descriptions(model)
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from entries(info.annotation, (*path, name))
        else:
            yield Entry((*path, name), info, described.get(name, ""))


def _at(model: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        model = getattr(model, step)
    return model


def _put(data: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for step in path[:-1]:
        data = data.setdefault(step, {})
    data[path[-1]] = value
