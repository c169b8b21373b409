"""The base of all formats: the keys that all rules share, the node that reads lines, and the registration.

Knows settings and the rows that normalising takes. Must not know any particular format.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
from pydantic import Field

from logboom.base.settings import Settings, Texts
from logboom.pipeline.findings import Part
from logboom.pipeline.normalise.rows import LineColumns, Row
from logboom.pipeline.normalise.severity import Scale
from logboom.pipeline.plan.nodes import AbstractStruct

Model = TypeVar("Model", bound="RuleModel")


class SeverityModel(Settings):
    """How severities are read."""

    texts: dict[str, int | str] = Field(default_factory=dict)
    """Additional words, with an OpenTelemetry number (1-24) or its short name (`ERROR2`)."""

    numbers: Literal["otel", "syslog", "pino", "python", "http"] | None = None
    """The scale of numeric severities."""


class RuleModel(Settings):
    """One way to read lines. These keys are the same for all formats."""

    format: str
    """The format of the lines."""

    name: str | None = None
    """Name in reasons of dead letters; default: the format."""

    source: str | None = None
    """Only records of this source."""

    when: str | None = None
    """Only records for which this SQL condition over the raw record is true."""

    time_format: Texts | None = None
    """How the time is written. A line whose time is written differently is not parsed. Default: common forms."""

    timezone: str | None = None
    """Time zone of times without one; default UTC."""

    map: dict[str, Texts] = Field(default_factory=dict)
    """Field of the event: name in the line, or several names, of which the first present one is used."""

    defaults: dict[str, str] = Field(default_factory=dict)
    """Field of the event: text for lines without that field."""

    severity: SeverityModel = Field(default_factory=SeverityModel)
    """How severities are read."""

    body_format: str | None = None
    """Parse the body again, if it has this format: `json`, `logfmt`, or lines of a program (`nginx_access`)."""

    body_pattern: Texts | None = None
    """Parse the body again with an expression, or with the first of several that matches all of it."""


class Format(ABC):
    """The interface of a format's node."""

    __slots__ = ()

    @abstractmethod
    def read_rows(self, values: pa.Array) -> list[Row]:
        """For each value of a binary array: its fields, or the end of a sentence with the reason why it has none.

        The reason is `lines.NO_VALUE` for null, and `lines.EMPTY` for white space only.
        """

    def read_columns(self, values: pa.Array) -> list[LineColumns]:
        """Read those values of a binary array that can be read as columns. Each is in at most one of the results.

        The others are read by `read_rows`. Both methods must return the same fields.
        """
        return []


class FormatNode(Format, msgspec.Struct, frozen=True, metaclass=AbstractStruct):
    """A format's node in the plan. Each format extends it, with its own tag."""


class RuleDefaults(NamedTuple):
    """The default settings of a rule with this format."""

    time_formats: tuple[str, ...] = ()
    mapping: tuple[tuple[str, tuple[str, ...]], ...] = ()
    severity_scale: Scale = "otel"


NO_DEFAULTS: Final = RuleDefaults()


@dataclass(frozen=True, slots=True)
class FormatType(Generic[Model]):
    """One format; its module registers it in `FORMATS`."""

    name: str
    """The value of the key `format`."""
    model: type[Model]
    """The keys of its rules: `RuleModel`, or an extension of it by keys of the format's own."""
    node: type[Format]
    """The class of its node; the tag identifies it in a pinned plan. Several formats may share one."""
    compile: Callable[[Model, Part], Format | None]
    """Makes the node of a rule; None after reporting a problem that prevents that."""
    defaults: RuleDefaults = NO_DEFAULTS
    """For formats with known times and severities."""
    of_bodies: Callable[[], Format] | None = None
    """The node for reading bodies; for formats that `body_format` allows."""


def plain_format(name: str, node: Any, *, of_bodies: bool = True) -> FormatType[RuleModel]:
    """A format without additional keys; `node` is the node of all its rules."""
    reader = (lambda: node) if of_bodies else None
    return FormatType(name, RuleModel, type(node), lambda model, part: node, of_bodies=reader)
