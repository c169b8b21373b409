"""A parse rule in the plan. Knows settings and that a format reads lines; must not know any particular format."""

import msgspec

from logboom.pipeline.normalise.mapping import EventMapping
from logboom.pipeline.parse.formats.base import Format
from logboom.pipeline.parse.formats.registry import format_types


class ParseRule(EventMapping, frozen=True, kw_only=True):
    """How some records are read. It applies if `source` (if set) is the record's source and `when` (if set) is true."""

    label: str
    """Its name in the reasons of dead letters."""
    line: int
    format: Format
    source: str | None = None
    when: str | None = None
    when_column: str | None = None
    """The boolean column with the value of `when`; Spark computes it before the kernel runs."""
    body_format: str | None = None
    """Name of a format. Parse the body again if it has this format; its fields are added to the event's."""
    body_pattern: Format | msgspec.UnsetType = msgspec.UNSET
    """The same with expressions of the file."""

    @property
    def of_bodies(self) -> Format | None:
        """The node that reads bodies; None if they are not parsed."""
        if self.body_format is None:
            return None if self.body_pattern is msgspec.UNSET else self.body_pattern
        of_bodies = format_types()[self.body_format].of_bodies
        assert of_bodies is not None, "the compiler refuses a format that reads no bodies"
        return of_bodies()
