"""Parses and prints durations, sizes in bytes and network addresses: `7d`, `1GiB`, `127.0.0.1:9092`.

Knows no setting. A bare number is taken in the unit that ends the
name of its setting: milliseconds in `_ms`, seconds in `_s`, bytes in `_bytes`.
"""

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from logboom.base.units import DAY_MS, GIB, HOUR_MS, KIB, MIB, MINUTE_MS, SECOND_MS

_DURATION_UNITS_MS: Final = {
    "ms": 1,
    "s": SECOND_MS,
    "m": MINUTE_MS,
    "min": MINUTE_MS,
    "h": HOUR_MS,
    "d": DAY_MS,
    "w": 7 * DAY_MS,
}
_SIZE_UNITS: Final = {
    "b": 1,
    "k": KIB,
    "kib": KIB,
    "m": MIB,
    "mib": MIB,
    "g": GIB,
    "gib": GIB,
    "t": 1024 * GIB,
    "tib": 1024 * GIB,
    "kb": 1_000,
    "mb": 1_000_000,
    "gb": 1_000_000_000,
    "tb": 1_000_000_000_000,
}
_PART: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]+)\s*")
_NUMBER: Final = re.compile(r"\d{1,18}")
_PORT_MAX: Final = 65_535
BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
"""Where a broker listens, and where clients connect, by default."""
_HOST: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252})|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[A-Za-z0-9._-]+)?")
"""A name or an IPv4 address (RFC 1123, and `_`, which container networks use), or an IPv6 address with its zone."""


def parse_duration_ms(text: str) -> int:
    """Milliseconds in `250ms`, `30s`, `1.5h`, `1h30m`, `7d`, or in a bare whole number of milliseconds.

    >>> parse_duration_ms("7d"), parse_duration_ms("1h30m"), parse_duration_ms("250")
    (604800000, 5400000, 250)
    """
    return _parse(text, _DURATION_UNITS_MS, "a duration such as 250ms, 30s, 15m, 12h or 7d")


def parse_size_bytes(text: str) -> int:
    """Bytes in `512B`, `64KiB`, `1GiB`, `10MB`, or in a bare whole number.

    >>> parse_size_bytes("1GiB"), parse_size_bytes("10 MB")
    (1073741824, 10000000)
    """
    return _parse(text, _SIZE_UNITS, "a size such as 512B, 64KiB, 16MiB or 1GiB")


def _parse(text: str, units: dict[str, int], expected: str) -> int:
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped):
        return int(stripped)
    total, position = 0.0, 0
    while position < len(stripped):
        match = _PART.match(stripped, position)
        unit = units.get(match[2].lower()) if match else None
        if match is None or unit is None:
            break
        total += float(match[1]) * unit
        position = match.end()
    if not stripped or position < len(stripped):
        raise ValueError(f"{text!r} is not {expected}")
    return round(total)


def format_duration_ms(duration_ms: int) -> str:
    """The shortest exact form of a duration in one unit.

    >>> format_duration_ms(604_800_000), format_duration_ms(90_000)
    ('7d', '90s')
    """
    for unit in ("d", "h", "m", "s"):
        if duration_ms and duration_ms % _DURATION_UNITS_MS[unit] == 0:
            return f"{duration_ms // _DURATION_UNITS_MS[unit]}{unit}"
    return f"{duration_ms}ms"


def format_size_bytes(size_bytes: int) -> str:
    """The shortest exact form of a size in one unit.

    >>> format_size_bytes(1_048_576), format_size_bytes(1_000)
    ('1MiB', '1000B')
    """
    for unit, size in (("TiB", 1024 * GIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size_bytes and size_bytes % size == 0:
            return f"{size_bytes // size}{unit}"
    return f"{size_bytes}B"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:9092`, `[::1]:9092`, or `:9092` (every interface, an empty host).

    Raises ValueError.

    >>> split_address("[::1]:9092")
    ('::1', 9092)
    """
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    well_formed = colon and port.isascii() and port.isdigit() and (bracketed or ":" not in host)
    if not well_formed or int(port[:6]) > _PORT_MAX:
        raise ValueError(f"{address!r} is not an address such as 127.0.0.1:9092")
    return (host[1:-1] if bracketed else host), int(port)


def join_address(host: str, port: int) -> str:
    """`host:port`, as `split_address` parses it.

    >>> join_address("::1", 9092)
    '[::1]:9092'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_bootstrap(text: str) -> list[tuple[str, int]]:
    """The hosts and ports of `host-1:9092,host-2:9092`; ValueError for anything a Kafka client would not take.

    >>> split_bootstrap("kafka-1:9092, [::1]:9093")
    [('kafka-1', 9092), ('::1', 9093)]
    """
    found = []
    for part in text.split(","):
        try:
            host, port = split_address(part.strip())
        except ValueError:
            host, port = "", 0
        if not _HOST.fullmatch(host) or port == 0:
            raise ValueError(f"{part.strip()!r} is not a broker's address such as 127.0.0.1:9092 (HOST:PORT,...)")
        found.append((host, port))
    return found


def _checked_address(address: str) -> str:
    split_address(address)
    return address


def _checked_bootstrap(text: str) -> str:
    split_bootstrap(text)
    return text


def _duration_ms(value: Any) -> Any:
    return parse_duration_ms(value) if isinstance(value, str) else value


def _duration_s(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return parse_duration_ms(value) / SECOND_MS


def _size_bytes(value: Any) -> Any:
    return parse_size_bytes(value) if isinstance(value, str) else value


DurationMs = Annotated[
    int, BeforeValidator(_duration_ms), Field(ge=0), WithJsonSchema({"type": "string", "format": "duration-ms"})
]
"""Milliseconds, given as `30s`, `7d`, or a bare number of milliseconds. Never negative."""

DurationS = Annotated[
    float,
    BeforeValidator(_duration_s),
    Field(ge=0, allow_inf_nan=False),
    WithJsonSchema({"type": "string", "format": "duration-s"}),
]
"""Seconds, given as `30s`, `250ms`, or a bare number of seconds. Never negative."""

SizeBytes = Annotated[
    int, BeforeValidator(_size_bytes), Field(ge=0), WithJsonSchema({"type": "string", "format": "size-bytes"})
]
"""Bytes, given as `64KiB`, `1GiB`, or a bare number of bytes. Never negative."""

Address = Annotated[str, AfterValidator(_checked_address), WithJsonSchema({"type": "string", "format": "address"})]
"""`HOST:PORT`; port 0 asks the system for a free one."""

Bootstrap = Annotated[
    str, AfterValidator(_checked_bootstrap), WithJsonSchema({"type": "string", "format": "bootstrap"})
]
"""`HOST:PORT,...`: the brokers that a client asks first, as Kafka's `bootstrap.servers`."""
