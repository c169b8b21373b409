"""The settings of a rule of a parse that say how a line's fields become an event. It knows no rows."""

import msgspec

from logboom.pipeline.normalise.severity import Scale


class EventMapping(msgspec.Struct, frozen=True, kw_only=True):
    """Which fields of a line fill which fields of the event, and how times and severities are read."""

    time_formats: tuple[str, ...] = ()
    """Empty: recognise the common ones."""
    timezone: str = "UTC"
    """IANA name for times that carry no zone of their own."""
    mapping: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Field of the event -> names of the line's fields that may fill it, the first present wins; before the built-in
    names."""
    defaults: tuple[tuple[str, str], ...] = ()
    """Field of the event -> text where neither line nor headers have one."""
    severity_texts: tuple[tuple[str, int], ...] = ()
    """Word in lower case -> OpenTelemetry severity number (1 to 24)."""
    severity_scale: Scale = "otel"
    """What a severity that is a number means."""
