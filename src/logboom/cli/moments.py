"""Moments as people type them: `30s` ago, or a date and time.

Knows clocks and calendars; nothing of streams.
"""

import time
from datetime import UTC, datetime
from typing import Final

from logboom.base.settings import format_duration_ms, parse_duration_ms
from logboom.base.units import DAY_MS, SECOND_MS
from logboom.cli.common import fail

SPAN_MS_MAX: Final = 36_500 * DAY_MS
"""A hundred years: clocks, calendars and waits all take it."""


def span_ms(option: str, text: str) -> int:
    """A duration given with an option, in milliseconds."""
    if text.strip().isdigit():
        fail(f"{option} {text}: give the unit, such as {text}s or {text}m")
    try:
        length_ms = parse_duration_ms(text)
    except ValueError as error:
        fail(f"{option}: {error}")
    if length_ms > SPAN_MS_MAX:
        fail(f"{option} {text}: should be at most {format_duration_ms(SPAN_MS_MAX)}")
    return length_ms


def ago_ms(since: str, option: str = "--since") -> int:
    """The moment that long ago, in milliseconds since 1970, which is the earliest."""
    return max(0, int(time.time() * SECOND_MS) - span_ms(option, since))


def moment_ms(text: str) -> int | None:
    """A date and time in ISO 8601 (local without a zone), in milliseconds since 1970; None if the text is not one."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * SECOND_MS)
    except (ValueError, OverflowError, OSError):
        return None


def clock_text(timestamp_ms: int) -> str:
    """A timestamp for people, in local time with its zone."""
    if timestamp_ms < 0:
        return "-"
    moment = datetime.fromtimestamp(timestamp_ms / SECOND_MS).astimezone()
    return moment.isoformat(timespec="milliseconds")


def moment_text(at_ms: int) -> str:
    """A moment as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at_ms / SECOND_MS, UTC).isoformat(timespec="seconds")
