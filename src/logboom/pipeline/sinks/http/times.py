"""Converts times of events to the numbers that servers expect. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Final

from logboom.pipeline.event.record import EventRecord

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def microseconds(time: str) -> int:
    """Microseconds since 1970 of a time in RFC 3339; ValueError if it is not valid.

    >>> microseconds("2026-11-23T07:00:00.5Z")
    1795417200500000
    """
    moment = datetime.fromisoformat(time)
    if moment.tzinfo is None:
        raise ValueError(f"the time {time!r} has no zone")
    return (moment - _EPOCH) // _MICROSECOND


def event_microseconds(event: EventRecord) -> int | None:
    """Microseconds of the event's time, else of its observed time; None if it has neither."""
    time = event.time or event.observed_time
    return None if time is None else microseconds(time)
