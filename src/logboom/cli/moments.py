"""Moments as people type them: `30s` ago, or a date and time.

Knows clocks and calendars; nothing of streams.
"""

import time
from datetime import UTC, datetime

from logboom.base.settings import parse_duration_ms
from logboom.base.units import SECOND_MS
from logboom.cli.common import fail


def span_ms(option: str, text: str) -> int:
    """A duration given with an option, in milliseconds."""
    if text.strip().isdigit():
        fail(f"{option} {text}: say the unit, such as {text}s or {text}m")
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        fail(f"{option}: {error}")


def ago_ms(since: str) -> int:
    """The moment that long ago, in milliseconds since 1970."""
    return int(time.time() * SECOND_MS) - span_ms("--since", since)


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
