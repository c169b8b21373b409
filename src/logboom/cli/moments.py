"""Moments as people type them: `30s` ago, or a date and time.

Knows clocks and calendars; nothing of streams.
"""

import time
from datetime import datetime

from logboom.base.settings import parse_duration_ms
from logboom.base.units import SECOND_MS
from logboom.cli.common import fail


def ago_ms(since: str) -> int:
    """The moment so long ago, in milliseconds since 1970."""
    if since.strip().isdigit():
        fail(f"--since {since}: say the unit, such as {since}s or {since}m")
    try:
        return int(time.time() * SECOND_MS) - parse_duration_ms(since)
    except ValueError as error:
        fail(f"--since: {error}")


def moment_ms(text: str) -> int | None:
    """A date and time in ISO 8601 (local unless it says its zone), in milliseconds since 1970; None if it is none."""
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
