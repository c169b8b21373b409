"""The settings of a parse rule for converting a line's fields to an event. Must not know rows."""

import msgspec

from logboom.pipeline.normalise.severity import Scale


class EventMapping(msgspec.Struct, frozen=True, kw_only=True):
    """Which fields of a line fill which fields of the event, and how times and severities are converted."""

    time_formats: tuple[str, ...] = ()
    """Time formats. Empty: recognise the common ones."""
    timezone: str = "UTC"
    """IANA name of the zone for times without one."""
    mapping: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names of the line's fields, by field of the event; the first present one is used. They have priority over
    built-in names."""
    defaults: tuple[tuple[str, str], ...] = ()
    """Text by field of the event, if neither line nor headers have it."""
    severity_texts: tuple[tuple[str, int], ...] = ()
    """Word in lower case -> OpenTelemetry severity number (1 to 24)."""
    severity_scale: Scale = "otel"
    """The scale of numeric severities."""
