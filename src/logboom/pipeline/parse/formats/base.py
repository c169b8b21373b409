"""What every format is made of: the keys that rules of all formats share, the node that reads, and its registration.

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
    """Own words, to an OpenTelemetry number (1-24) or its short name (`ERROR2`)."""

    numbers: Literal["otel", "syslog", "pino", "python", "http"] | None = None
    """What a severity that is a number means."""


class RuleModel(Settings):
    """One way to read lines: the keys that a rule has whatever its format is."""

    format: str
    """What the lines look like."""

    name: str | None = None
    """Name in reasons of dead letters; default: the format."""

    source: str | None = None
    """Only records of this source."""

    when: str | None = None
    """Only records for which this SQL condition over the raw record is true."""

    time_format: Texts | None = None
    """How the time is written; a line whose time is not so written is not parsed. Default: common forms."""

    timezone: str | None = None
    """Zone of times that name none; default UTC."""

    map: dict[str, Texts] = Field(default_factory=dict)
    """Field of the event: name, or names of which the first present wins, in the line."""

    defaults: dict[str, str] = Field(default_factory=dict)
    """Field of the event: text where the line has none."""

    severity: SeverityModel = Field(default_factory=SeverityModel)
    """How severities are read."""

    body_format: str | None = None
    """Read the body once more, where it parses as this: `json`, `logfmt`, or lines of a program (`nginx_access`)."""

    body_pattern: Texts | None = None
    """Read the body once more by an expression of your own, or by the first of several that matches all of it."""


class Format(ABC):
    """What the node of a format does, whichever it is."""

    __slots__ = ()

    @abstractmethod
    def read_rows(self, values: pa.Array) -> list[Row]:
        """For each value of a binary array: its fields, or the reason why it has none as the end of a sentence.

        The reason of a null value is `lines.NO_VALUE`, of one of blanks alone `lines.EMPTY`.
        """

    def read_columns(self, values: pa.Array) -> list[LineColumns]:
        """Those values of a binary array that can be read as whole columns, each in one of the results at most.

        The others come through `read_rows`. What can be read both ways must give the same fields.
        """
        return []


class FormatNode(Format, msgspec.Struct, frozen=True, metaclass=AbstractStruct):
    """A format's node in the plan. Each format extends it, under a tag of its own."""


class RuleDefaults(NamedTuple):
    """The settings of a rule of this format that the file leaves out."""

    time_formats: tuple[str, ...] = ()
    mapping: tuple[tuple[str, tuple[str, ...]], ...] = ()
    severity_scale: Scale = "otel"


NO_DEFAULTS: Final = RuleDefaults()


@dataclass(frozen=True, slots=True)
class FormatType(Generic[Model]):
    """One format, as its module registers it in `FORMATS`."""

    name: str
    """The value of the key `format`."""
    model: type[Model]
    """The keys of its rules: `RuleModel`, or an extension of it by keys of the format's own."""
    node: type[Format]
    """Its node in the plan, by whose tag a pinned plan is read back. Several formats may share one."""
    compile: Callable[[Model, Part], Format | None]
    """The node of a rule, or None once a problem was reported that leaves no node to make."""
    defaults: RuleDefaults = NO_DEFAULTS
    """For formats whose times and severities are known."""
    of_bodies: Callable[[], Format] | None = None
    """The node that reads bodies; for formats that may be named in `body_format`."""


def plain_format(name: str, node: Any, *, of_bodies: bool = True) -> FormatType[RuleModel]:
    """A format without keys of its own; `node` is what all its rules have."""
    reader = (lambda: node) if of_bodies else None
    return FormatType(name, RuleModel, type(node), lambda model, part: node, of_bodies=reader)
