"""Parses times in many formats, a whole column at once.

A format becomes one RE2 expression with a group per part. The parts are read as columns of numbers and combined with
calendar arithmetic, without a Python call per time. Knows formats, zones and calendars. Must not know which field of an
event a time came from.

Times are microseconds since 1970-01-01 UTC in int64 arrays with a mask of the rows that could be read.
"""

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Micros = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
DAY_US: Final = 86_400 * SECOND_US

YEAR_MIN: Final = 1
YEAR_MAX: Final = 9999
EPOCH_MIN_US: Final = -62_135_596_800 * SECOND_US
EPOCH_MAX_US: Final = 253_402_300_800 * SECOND_US - 1

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH_NAMES: Final = ("uary", "ruary", "ch", "il", "", "e", "y", "ust", "tember", "ober", "ember", "ember")
_ZONES: Final = {"Z": 0, "z": 0, "UTC": 0, "GMT": 0, "UT": 0, "EST": -300, "EDT": -240, "CST": -360, "CDT": -300}
_ZONES_MORE: Final = {"MST": -420, "MDT": -360, "PST": -480, "PDT": -420, "CET": 60, "CEST": 120, "BST": 60, "WET": 0}
_ZONE_MINUTES: Final[dict[str, int]] = {**_ZONES, **_ZONES_MORE, "WEST": 60, "EET": 120, "EEST": 180, "MSK": 180}

_ZONE: Final = r"(?P<zone>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?|[A-Z]{2,4})"
_DIRECTIVES: Final[dict[str, str]] = {
    "Y": r"(?P<year>[0-9]{4})",
    "y": r"(?P<year2>[0-9]{2})",
    "m": r"(?P<month>[0-9]{1,2})",
    "d": r"(?P<day>[0-9]{1,2})",
    "e": r" *(?P<day>[0-9]{1,2})",
    "j": r"(?P<yearday>[0-9]{1,3})",
    "H": r"(?P<hour>[0-9]{1,2})",
    "k": r" *(?P<hour>[0-9]{1,2})",
    "I": r"(?P<hour12>[0-9]{1,2})",
    "l": r" *(?P<hour12>[0-9]{1,2})",
    "p": r"(?P<half>[AaPp])\.?[Mm]\.?",
    "M": r"(?P<minute>[0-9]{1,2})",
    "S": r"(?P<second>[0-9]{1,2})",
    "f": r"(?P<fraction>[0-9]{1,18})",
    "i": r"(?P<millisecond>[0-9]{1,3})",
    "b": r"(?P<name>[A-Za-z]{3,9})\.?",
    "a": r"[A-Za-z]{2,9}\.?",
    "z": _ZONE,
    "Z": _ZONE,
    "s": r"(?P<epoch>-?[0-9]{1,18})",
    "%": "%",
    "n": r"\s+",
    "t": r"\s+",
}
_ALIASES: Final = {"B": "b", "h": "b", "A": "a", "L": "f", "N": "f"}
_COMPOSITES: Final = {"T": "%H:%M:%S", "R": "%H:%M", "D": "%m/%d/%y", "F": "%Y-%m-%d"}
_FIXED_WIDTH: Final = {"y": 2, "m": 2, "d": 2, "H": 2, "I": 2, "M": 2, "S": 2, "j": 3, "i": 3}
_ISO: Final = (
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"(?:[Tt ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,18}))?)?"
    rf"(?: ?{_ZONE})?)?"
)
_ISO_BASIC: Final = (
    r"(?P<year>[0-9]{4})(?P<month>[0-9]{2})(?P<day>[0-9]{2})[Tt](?P<hour>[0-9]{2})(?P<minute>[0-9]{2})"
    rf"(?P<second>[0-9]{{2}})(?:[.,](?P<fraction>[0-9]{{1,18}}))?{_ZONE}?"
)
_NAMED: Final = {
    "clf": "%d/%b/%Y:%H:%M:%S %z",
    "syslog": "%b %e %H:%M:%S",
    "rfc2822": "%a, %d %b %Y %H:%M:%S %z",
    "ctime": "%a %b %e %H:%M:%S %Y",
}
_EPOCH_UNITS: Final = {"epoch_s": "s", "epoch_ms": "ms", "epoch_us": "us", "epoch_ns": "ns", "epoch": None}
FORMAT_NAMES: Final = ("iso8601", "rfc3339", *_NAMED, *_EPOCH_UNITS)

_COMMON: Final = (
    "iso8601",
    "clf",
    "%b %e %H:%M:%S.%f",
    "syslog",
    "%a %b %e %H:%M:%S.%f %Y",
    "ctime",
    "rfc2822",
    "%Y/%m/%d %H:%M:%S.%f",
    "%Y/%m/%d %H:%M:%S",
    "%a %b %e %H:%M:%S %Z %Y",
    "%d %b %Y %H:%M:%S.%f",
    "%d %b %Y %H:%M:%S",
)
"""Formats that are tried, in this order, if a rule has none. No text matches two of them."""


class TimeFormatError(ValueError):
    """Why a time format is not valid, as a sentence."""


class TimeFormat(NamedTuple):
    """An expression for the whole text, or the unit of a number."""

    expression: str | None
    unit: str | None = None


class Times(NamedTuple):
    """Microseconds since 1970 UTC, and which of them could be parsed; the others are 0."""

    micros: Micros
    read: Mask


@lru_cache(maxsize=256)
def compile_time_format(text: str) -> TimeFormat:
    """Parse a name of FORMAT_NAMES or a format with directives of strptime (`%f`, `%L`: a fraction of any length);
    TimeFormatError."""
    if text in _EPOCH_UNITS:
        return TimeFormat(None, _EPOCH_UNITS[text] or "guess")
    if text in ("iso8601", "rfc3339"):
        return TimeFormat(rf"\A\s*(?:{_ISO}|{_ISO_BASIC.replace('(?P<', '(?P<b_')})\s*\z")
    expression = _expression(_spell_out(_NAMED.get(text, text)))
    groups = set(re.findall(r"\(\?P<(\w+)>", expression))
    if "epoch" not in groups and not ({"day", "yearday"} & groups and ({"month", "name", "yearday"} & groups)):
        raise TimeFormatError(
            f"time format {text!r} has no date: it needs a month and a day, or %s; "
            f"or use one of {', '.join(FORMAT_NAMES)}"
        )
    return TimeFormat(rf"\A\s*{expression}\s*\z")


def _spell_out(text: str) -> str:
    for short, long in _COMPOSITES.items():
        text = text.replace(f"%{short}", long)
    return text


def _expression(text: str) -> str:
    parts: list[str] = []
    position = 0
    while position < len(text):
        if text[position] != "%":
            parts.append(r"\s+" if text[position] == " " else re.escape(text[position]))
            position += 1
            continue
        letter = text[position + 1 : position + 2]
        letter = _ALIASES.get(letter, letter)
        if letter not in _DIRECTIVES:
            raise TimeFormatError(f"time format {text!r} has the unknown directive %{letter}")
        parts.append(_directive(letter, text, position))
        position += 2
    expression = "".join(parts)
    names = re.findall(r"\(\?P<(\w+)>", expression)
    if len(names) != len(set(names)) or {"fraction", "millisecond"} <= set(names):
        raise TimeFormatError(f"time format {text!r} has one part of the time twice")
    return expression.replace(r"\s+ *", r"\s*")


def _directive(letter: str, text: str, position: int) -> str:
    """Adjacent numbers (`%y%m%d`) have their full width."""
    part = _DIRECTIVES[letter]
    touches = text[position + 2 : position + 3] == "%" or (position >= 2 and text[position - 2] == "%")
    if touches and letter in _FIXED_WIDTH:
        part = re.sub(r"\{1,[23]\}", f"{{{_FIXED_WIDTH[letter]}}}", part)
    return part


# --- whole columns ----------------------------------------------------------------------------------------------


def read_times(values: list[Any] | pa.Array, formats: tuple[str, ...], zone: str, reference: Micros) -> Times:
    """Parse raw values (texts, numbers, None; an array has only texts) with the first of `formats` that matches, or
    with the common formats if none is given. `reference`: the record's own time for each row (microseconds; below 1971
    means unknown), for texts without a year."""
    if isinstance(values, pa.Array):
        return _read_texts(values, formats, zone, reference)
    kinds = set(map(type, values))
    if kinds <= {str}:
        return _read_texts(pa.array(values, pa.string()), formats, zone, reference)
    count = len(values)
    micros, read = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    texts = [index for index, value in enumerate(values) if type(value) is str]
    if texts:
        at = np.array(texts)
        found = _read_texts(pa.array([values[i] for i in texts], pa.string()), formats, zone, reference[at])
        micros[at], read[at] = found
    units = [unit for unit in (compile_time_format(text).unit for text in formats or ("epoch",)) if unit]
    for index, value in enumerate(values):
        if units and type(value) in (int, float):
            exact = epoch_micros(value, units[0])
            if exact is not None:
                micros[index], read[index] = exact, True
    return Times(micros, read)


def epoch_micros(value: float, unit: str) -> int | None:
    """A number since 1970 in `s`, `ms`, `us`, `ns`, or `guess` by its size; None for NaN and for years outside 1 to
    9999."""
    size = abs(value)
    if size != size or size > 1e21:
        return None
    if unit == "guess":
        unit = "s" if size < 1e11 else "ms" if size < 1e14 else "us" if size < 1e17 else "ns"
    factors = {"s": (SECOND_US, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
    up, down = factors[unit]
    micros = value * up // down if isinstance(value, int) else round(value * up / down)
    return int(micros) if EPOCH_MIN_US <= micros <= EPOCH_MAX_US else None


def _read_texts(texts: pa.Array, formats: tuple[str, ...], zone: str, reference: Micros) -> Times:
    fast = _cast_iso(texts) if not formats or formats[0] in ("iso8601", "rfc3339") else None
    if fast is not None:
        return fast
    count = len(texts)
    micros, read = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    left = np.arange(count)
    for text in formats or (*_COMMON, "epoch"):
        if not len(left):
            break
        part = texts if len(left) == count else texts.take(pa.array(left))
        found = _read_format(part, compile_time_format(text), zone, reference[left])
        micros[left[found.read]] = found.micros[found.read]
        read[left[found.read]] = True
        left = left[~found.read]
    return Times(micros, read)


_PLAIN_ISO: Final = (
    r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:[0-9]{2})\z"
)


def _cast_iso(texts: pa.Array) -> Times | None:
    """Times by Arrow's own cast, which is many times faster; None unless every row is ISO 8601 with a zone."""
    if not pc.all(pc.match_substring_regex(texts, _PLAIN_ISO)).as_py():
        return None
    try:
        stamps = texts.cast(pa.timestamp("us", tz="UTC"))
    except pa.ArrowInvalid:
        return None  # such as a 31st of June: `_read_format` finds out which rows
    micros = stamps.cast(pa.int64()).to_numpy()
    inside = (micros >= EPOCH_MIN_US) & (micros <= EPOCH_MAX_US)
    return Times(np.where(inside, micros, 0), inside)


def _read_format(texts: pa.Array, form: TimeFormat, zone: str, reference: Micros) -> Times:
    if form.expression is None:
        return _read_numbers(texts, form.unit or "guess")
    parts = pc.extract_regex(texts, form.expression)
    columns: dict[str, pa.Array] = {}
    for field in parts.type:
        name = field.name.removeprefix("b_")
        column = pc.struct_field(parts, field.name)
        columns[name] = (
            column if name not in columns else pc.if_else(pc.equal(columns[name], ""), column, columns[name])
        )
    matched = parts.is_valid().to_numpy(zero_copy_only=False)
    if "epoch" in columns:
        return _read_epoch_parts(columns, matched)
    return _put_together(columns, matched, zone, reference)


def _read_numbers(texts: pa.Array, unit: str) -> Times:
    micros, read = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    numeric = pc.match_substring_regex(texts, r"\A\s*-?[0-9]{1,20}(?:\.[0-9]{1,12})?\s*\z")
    for index in pc.indices_nonzero(numeric).to_pylist():
        text = texts[index].as_py()
        exact = epoch_micros(float(text) if "." in text else int(text), unit)
        if exact is not None:
            micros[index], read[index] = exact, True
    return Times(micros, read)


def _read_epoch_parts(columns: dict[str, pa.Array], matched: Mask) -> Times:
    seconds = _numbers(columns, "epoch", matched, 0)
    inside = matched & (seconds * 1.0 > EPOCH_MIN_US / SECOND_US) & (seconds * 1.0 < EPOCH_MAX_US / SECOND_US)
    micros = np.where(inside, seconds, 0) * SECOND_US + _fraction_us(columns, matched)
    return Times(np.where(inside, micros, 0), inside)


def _put_together(columns: dict[str, pa.Array], matched: Mask, zone: str, reference: Micros) -> Times:
    month, day = _month_and_day(columns, matched)
    hour = _hours(columns, matched)
    minute = _numbers(columns, "minute", matched, 0)
    second = _numbers(columns, "second", matched, 0)
    ok = matched & (month >= 1) & (month <= 12) & (day >= 1) & (hour >= 0) & (hour <= 23)
    ok &= (minute <= 59) & (second <= 60)
    # 60 is a leap second; it counts as the first second of the next minute, as in POSIX.
    in_day = ((hour * 60 + minute) * 60 + second) * SECOND_US + _fraction_us(columns, matched)
    offset, has_zone = _zone_offsets(columns, matched)
    year = _years(columns, matched)
    if year is None:
        year, known = _resolve_years(month, day, in_day, reference)
        ok &= known
    ok &= (year >= YEAR_MIN) & (year <= YEAR_MAX)
    if "yearday" in columns:
        ok &= day <= 365 + _leap(year)
    else:
        ok &= day <= _month_lengths(year, np.clip(month, 1, 12))
    local = _days_from_civil(year, np.clip(month, 1, 12), day) * DAY_US + in_day
    # Rows that are already invalid are computed with a harmless value and masked out at the end.
    micros = np.where(has_zone, local - offset * MINUTE_US, to_utc(np.where(ok, local, 0), zone))
    ok &= (micros >= EPOCH_MIN_US) & (micros <= EPOCH_MAX_US)
    return Times(np.where(ok, micros, 0), ok)


def _numbers(columns: dict[str, pa.Array], name: str, matched: Mask, missing: int) -> Micros:
    """A part as numbers; `missing` if the row did not match, or if the part is optional and absent."""
    column = columns.get(name)
    if column is None:
        return np.full(len(matched), missing, np.int64)
    filled = pc.if_else(pc.equal(pc.fill_null(column, ""), ""), str(missing), column)
    numbers: Micros = pc.cast(filled, pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def _fraction_us(columns: dict[str, pa.Array], matched: Mask) -> Micros:
    """Fraction digits, or a number of milliseconds, as microseconds; further digits are cut off."""
    if "millisecond" in columns:
        return _numbers(columns, "millisecond", matched, 0) * 1_000
    column = columns.get("fraction")
    if column is None:
        return np.zeros(len(matched), np.int64)
    digits = pc.utf8_slice_codeunits(pc.utf8_rpad(pc.fill_null(column, ""), 6, "0"), 0, 6)
    numbers: Micros = pc.cast(digits, pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def _month_and_day(columns: dict[str, pa.Array], matched: Mask) -> tuple[Micros, Micros]:
    if "yearday" in columns:  # for the arithmetic, day 200 of the year is the 200th of January
        return np.ones(len(matched), np.int64), _numbers(columns, "yearday", matched, 0)
    day = _numbers(columns, "day", matched, 0)
    if "name" not in columns:
        return _numbers(columns, "month", matched, 0), day
    word = pc.utf8_lower(pc.fill_null(columns["name"], ""))
    index = pc.index_in(word, pa.array(_month_words()))
    month: Micros = pc.fill_null(index, -12).to_numpy(zero_copy_only=False).astype(np.int64) % 12 + 1
    known = index.is_valid().to_numpy(zero_copy_only=False)
    return np.where(known, month, 0), day


@lru_cache(maxsize=1)
def _month_words() -> tuple[str, ...]:
    """Short names, then long ones, then the other short name of September; each group of twelve starts with January."""
    full = tuple(short + rest for short, rest in zip(_MONTHS, _MONTH_NAMES, strict=True))
    others = tuple("sept" if short == "sep" else f"~{short}" for short in _MONTHS)
    return (*_MONTHS, *full, *others)


def _hours(columns: dict[str, pa.Array], matched: Mask) -> Micros:
    if "hour12" not in columns:
        return _numbers(columns, "hour", matched, 0)
    hour = _numbers(columns, "hour12", matched, 0)
    inside = (hour >= 1) & (hour <= 12)
    late = np.zeros(len(matched), np.bool_)
    if "half" in columns:
        late = pc.equal(pc.utf8_lower(pc.fill_null(columns["half"], "")), "p").to_numpy(zero_copy_only=False)
    return np.where(inside, hour % 12 + 12 * late, -1)


def _years(columns: dict[str, pa.Array], matched: Mask) -> Micros | None:
    if "year" in columns:
        return _numbers(columns, "year", matched, 0)
    if "year2" not in columns:
        return None
    short = _numbers(columns, "year2", matched, 0)  # POSIX: 69 to 99 are in the last century
    return np.where(short >= 69, 1900 + short, 2000 + short)


def _zone_offsets(columns: dict[str, pa.Array], matched: Mask) -> tuple[Micros, Mask]:
    """Minutes east of UTC, and whether a zone was written; an unknown name counts as none."""
    if "zone" not in columns:
        return np.zeros(len(matched), np.int64), np.zeros(len(matched), np.bool_)
    coded = pc.fill_null(columns["zone"], "").dictionary_encode()
    offsets = [_zone_minutes(text) for text in coded.dictionary.to_pylist()]
    index = coded.indices.to_numpy(zero_copy_only=False)
    minutes = np.array([offset or 0 for offset in offsets], np.int64)
    known = np.array([offset is not None for offset in offsets], np.bool_)
    return minutes[index], known[index]


def _zone_minutes(text: str) -> int | None:
    if text[:1] not in ("+", "-"):
        return _ZONE_MINUTES.get(text)
    digits = text[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    return -minutes if text[0] == "-" else minutes


def _resolve_years(month: Micros, day: Micros, in_day: Micros, reference: Micros) -> tuple[Micros, Mask]:
    """The latest year in which the time is at most one day after its record's time: a line of 31 December that arrives
    in January is of last year, and one from a clock that is ahead on New Year's Eve is of next year. A 29 February is
    in a leap year."""
    known = reference > 365 * DAY_US
    around = reference.astype("datetime64[us]").astype("datetime64[Y]").astype(np.int64) + 1970
    safe_month = np.clip(month, 1, 12)
    year = around + 1
    for _ in range(9):  # two leap years may be 8 years apart
        late = _days_from_civil(year, safe_month, day) * DAY_US + in_day > reference + DAY_US
        no_day = (month == 2) & (day == 29) & (_leap(year) == 0)
        wrong = late | no_day
        if not wrong.any():
            break
        year = np.where(wrong, year - 1, year)
    return year, known


def _leap(year: Micros) -> Micros:
    leap: Micros = (((year % 4 == 0) & (year % 100 != 0)) | (year % 400 == 0)).astype(np.int64)
    return leap


_LENGTHS: Final = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def _month_lengths(year: Micros, month: Micros) -> Micros:
    lengths: Micros = _LENGTHS[month - 1] + ((month == 2) & (_leap(year) == 1))
    return lengths


def _days_from_civil(year: Micros, month: Micros, day: Micros) -> Micros:
    """Days since 1970-01-01 of a proleptic Gregorian date (Howard Hinnant, chrono-Compatible Low-Level Date
    Algorithms)."""
    shifted = year - (month <= 2)
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    days: Micros = era * 146_097 + day_of_era - 719_468
    return days


def to_utc(local: Micros, zone: str) -> Micros:
    """Local time of a zone as UTC, in microseconds. Of two possible times it is the first; a time that a clock skips
    moves forward."""
    if zone == "UTC":
        return local
    quarter = 15 * MINUTE_US  # all zone changes since 1970 are at a full quarter of an hour
    steps, index = np.unique(local // quarter, return_inverse=True)
    offsets = np.array([_offset_us(int(step) * quarter, zone) for step in steps], np.int64)
    return local - offsets[index]


@lru_cache(maxsize=65_536)
def _offset_us(local: int, zone: str) -> int:
    moment = datetime(1970, 1, 1) + timedelta(microseconds=local)  # noqa: DTZ001 - a local time, its zone comes next
    offset = moment.replace(tzinfo=_zone(zone)).utcoffset()
    return offset // timedelta(microseconds=1) if offset is not None else 0


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
