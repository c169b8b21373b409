"""Times: every form, every zone, and the years that nobody wrote."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logboom.pipeline.normalise.times import (
    FORMAT_NAMES,
    TimeFormatError,
    compile_time_format,
    epoch_micros,
    read_times,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REFERENCE = datetime(2026, 11, 20, 12, tzinfo=UTC)


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def read(
    *values: Any, formats: tuple[str, ...] = (), zone: str = "UTC", at: datetime = REFERENCE
) -> list[datetime | None]:
    times = read_times(list(values), formats, zone, np.full(len(values), micros(at), np.int64))
    return [
        EPOCH + timedelta(microseconds=int(value)) if known else None
        for value, known in zip(times.micros, times.read, strict=True)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-20T12:00:00Z", "2026-11-20T12:00:00+00:00"),
        ("2026-11-20t12:00:00.5z", "2026-11-20T12:00:00.500000+00:00"),
        ("2026-11-20 12:00:00,123", "2026-11-20T12:00:00.123000+00:00"),
        ("2026-11-20T12:00:00.123456789+05:30", "2026-11-20T06:30:00.123456+00:00"),
        ("2026-11-20T12:00:00-0800", "2026-11-20T20:00:00+00:00"),
        ("2026-11-20T12:00", "2026-11-20T12:00:00+00:00"),
        ("2026-11-20", "2026-11-20T00:00:00+00:00"),
        ("20261120T120000.5Z", "2026-11-20T12:00:00.500000+00:00"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00+00:00"),
        ("10/Oct/2000:13:55:36 -0700", "2000-10-10T20:55:36+00:00"),
        ("Nov 20 11:59:59", "2026-11-20T11:59:59+00:00"),
        ("Nov  2 11:59:59.25", "2026-11-02T11:59:59.250000+00:00"),
        ("Sun Dec 04 04:47:44 2005", "2005-12-04T04:47:44+00:00"),
        ("Sun Dec  4 04:47:44.000001 2005", "2005-12-04T04:47:44.000001+00:00"),
        ("Fri, 21 Nov 1997 09:55:06 -0600", "1997-11-21T15:55:06+00:00"),
        ("2026/11/20 12:00:00", "2026-11-20T12:00:00+00:00"),
        ("Fri Nov 20 12:00:00 CET 2026", "2026-11-20T11:00:00+00:00"),
        ("1763640000", "2025-11-20T12:00:00+00:00"),
        ("1763640000.25", "2025-11-20T12:00:00.250000+00:00"),
        (1763640000, "2025-11-20T12:00:00+00:00"),
        (1763640000123, "2025-11-20T12:00:00.123000+00:00"),
        (1763640000123456, "2025-11-20T12:00:00.123456+00:00"),
        (1763640000123456789, "2025-11-20T12:00:00.123456+00:00"),
        (-1.5, "1969-12-31T23:59:58.500000+00:00"),
    ],
)
def test_common_forms_are_recognised(text: Any, expected: str) -> None:
    assert read(text) == [datetime.fromisoformat(expected)]


@pytest.mark.parametrize(
    "value",
    [
        *("", "soon", "12:00", "2026-02-30T00:00:00Z", "2026-13-01", "2026-11-20T24:00:00Z", "2026-11-20T12:60:00Z"),
        *(
            "0000-01-01T00:00:00Z",
            "Foo 20 12:00:00",
            "9999999999999999999999",
            True,
            None,
            float("nan"),
            10**30,
            {},
            [],
        ),
        "2026-11-20T12:00:00Zjunk",
    ],
)
def test_what_is_no_time(value: Any) -> None:
    assert read(value) == [None]
    assert read(value, "2026-11-20T12:00:00Z")[1] is not None


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("%y%m%d %H%M%S", "081109 203615", utc(2008, 11, 9, 20, 36, 15)),
        ("%d.%m.%Y %H:%M:%S,%f", "20.11.2026 12:00:00,5", utc(2026, 11, 20, 12, 0, 0, 500000)),
        ("%m/%d/%Y %I:%M:%S %p", "11/20/2026 12:30:00 AM", utc(2026, 11, 20, 0, 30)),
        ("%m/%d/%Y %I:%M %p", "11/20/2026 1:05 pm", utc(2026, 11, 20, 13, 5)),
        ("%A, %B %d, %Y %T", "Friday, November 20, 2026 01:02:03", utc(2026, 11, 20, 1, 2, 3)),
        ("%Y-%j", "2024-366", utc(2024, 12, 31)),
        ("%s", "1763640000", utc(2025, 11, 20, 12)),
        ("%s.%f", "1763640000.25", utc(2025, 11, 20, 12, 0, 0, 250000)),
        ("epoch_ms", "1763640000000", utc(2025, 11, 20, 12)),
        ("clf", "20/Nov/2026:12:00:00 +0100", utc(2026, 11, 20, 11)),
        ("%m%d %H:%M:%S.%f", "1120 12:00:00.000001", utc(2026, 11, 20, 12, 0, 0, 1)),
    ],
)
def test_custom_time_formats(form: str, text: str, expected: datetime) -> None:
    assert read(text, "x", formats=(form,)) == [expected, None]


def test_the_first_format_that_fits_reads() -> None:
    assert read("20.11.2026", "2026-11-20", "x", formats=("%d.%m.%Y", "iso8601")) == [
        datetime(2026, 11, 20, tzinfo=UTC),
        datetime(2026, 11, 20, tzinfo=UTC),
        None,
    ]
    assert read("2025-366", formats=("%Y-%j",)) == [None]


@pytest.mark.parametrize("form", ["%Q", "%H:%M:%S", "%Y", "", "%", "%Y-%m-%d %d", "%y-%Y"])
def test_formats_that_give_no_time_are_refused(form: str) -> None:
    with pytest.raises(TimeFormatError):
        compile_time_format(form)


def test_every_named_format_compiles() -> None:
    for name in FORMAT_NAMES:
        assert read("x", formats=(name,)) == [None]


def test_zones_by_name() -> None:
    summer, winter, twice, never = read(
        "2026-07-01 12:00:00", "2026-12-01 12:00:00", "2026-10-25 02:30:00", "2026-03-29 02:30:00", zone="Europe/Berlin"
    )
    assert summer == datetime(2026, 7, 1, 10, tzinfo=UTC)
    assert winter == datetime(2026, 12, 1, 11, tzinfo=UTC)
    assert twice == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert never == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    assert read("2026-07-01 12:00:00Z", zone="Europe/Berlin") == [datetime(2026, 7, 1, 12, tzinfo=UTC)]


def test_years_that_are_not_written() -> None:
    at = datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert [time and time.year for time in read("Dec 31 23:59:59", "Jan  1 00:00:06", "Jan  3 00:00:00", at=at)] == [
        2025,
        2026,
        2025,
    ]
    assert [time and time.year for time in read("Jan  1 00:00:01", at=datetime(2025, 12, 31, 23, 59, tzinfo=UTC))] == [
        2026
    ]
    assert read("Feb 29 00:00:00", at=datetime(2103, 6, 1, tzinfo=UTC)) == [datetime(2096, 2, 29, tzinfo=UTC)]
    assert read("Feb 30 00:00:00") == [None]
    assert read("Jan  1 00:00:00", at=EPOCH) == [None]


moments = st.datetimes(utc(1, 1, 2).replace(tzinfo=None), utc(9999, 12, 30).replace(tzinfo=None))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(moments, min_size=1, max_size=5),
    st.sampled_from(["iso", "%Y/%m/%d %H:%M:%S.%f", "%Y-%j %H:%M:%S.%f", "clf"]),
)
@example([utc(2000, 2, 29).replace(tzinfo=None), utc(1900, 2, 28).replace(tzinfo=None)], "%Y-%j %H:%M:%S.%f")
def test_what_is_written_is_read_back(values: list[datetime], form: str) -> None:
    if form == "iso":
        texts = [value.isoformat() + "Z" for value in values]
    elif form == "clf":
        values = [value.replace(microsecond=0) for value in values]
        texts = [f"{value:%d/%b}/{value.year:04}:{value:%H:%M:%S} +0000" for value in values]
    else:
        texts = [form.replace("%Y", f"{value.year:04}") for value in values]
        texts = [value.strftime(text) for value, text in zip(values, texts, strict=True)]
    formats = (form,) if "%" in form else ()
    assert read(*texts, formats=formats) == [value.replace(tzinfo=UTC) for value in values]


@settings(max_examples=60, deadline=None)
@given(
    st.datetimes(utc(1975, 1, 1).replace(tzinfo=None), utc(2030, 1, 1).replace(tzinfo=None)),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]),
)
def test_local_times_are_what_zoneinfo_says(value: datetime, zone: str) -> None:
    value = value.replace(microsecond=0)
    expected = value.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    assert read(str(value), zone=zone) == [expected]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=30) | st.integers() | st.floats() | st.none() | st.binary().map(repr), max_size=6))
def test_nothing_raises(values: list[Any]) -> None:
    assert len(read(*values)) == len(values)


@given(st.integers(-62_135_596_800, 253_402_300_799))
def test_seconds_are_exact(seconds: int) -> None:
    assert epoch_micros(seconds, "s") == seconds * 1_000_000
