"""The file that an event belongs to: fills the parts in braces of a path. Knows only text.

Services and hosts come from whoever writes events, so a value must never change the directory level of the path, nor
become too long for a file system.
"""

import hashlib
import re
import urllib.parse
from datetime import UTC, datetime, timedelta
from typing import Any, Final

PARTS: Final = ("date", "hour", "service", "host", "source", "stream")
_PART: Final = re.compile(r"\{([^{}/]*)\}")
_NO_VALUE: Final = "none"
_VALUE_MAX_BYTES: Final = 120
_FILE_NAME_MAX_BYTES: Final = 255
"""The longest file name that file systems accept."""
_NAME_MAX_BYTES: Final = 225
"""Leaves space for the time and number of a rotated file."""
_WRITTEN_MAX_BYTES: Final = 200
"""The same, without the parts."""
_SUFFIXES_MAX: Final = 16
_HASH: Final = 12
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parts_of(path: str) -> tuple[str, ...]:
    """The parts in a path, each once.

    >>> parts_of("out/{date}/{service}.jsonl")
    ('date', 'service')
    """
    return tuple(dict.fromkeys(_PART.findall(path)))


def unknown_parts(path: str) -> list[str]:
    """The parts in a path that no event has."""
    return [part for part in parts_of(path) if part not in PARTS]


def form_fault(path: str) -> str | None:
    """What is wrong with the form of a path, or None.

    >>> form_fault("out/{date"), form_fault("{service}/../x"), form_fault("out/{date}.log")
    ('has an unpaired brace', "has '..' after a part that events fill in", None)
    """
    plain = _PART.split(path)[::2]
    if any(brace in text for text in plain for brace in "{}"):
        return "has an unpaired brace"
    if any(name == ".." for name in _PART.sub("x", path).split("/")[plain[0].count("/") :]) and len(plain) > 1:
        return "has '..' after a part that events fill in"
    written = [len(name.encode()) for name in _PART.sub("", path).split("/")]
    if any(_WRITTEN_MAX_BYTES < size <= _FILE_NAME_MAX_BYTES for size in written):
        return f"has a name of more than {_WRITTEN_MAX_BYTES} bytes"
    return "is a directory; write the path of a file" if path.endswith("/") else None


def fixed_directory(path: str) -> str:
    """The directory that all files of a path are below.

    >>> fixed_directory("out/{date}/{service}.jsonl"), fixed_directory("app-{host}.log"), fixed_directory("/var/log/x")
    ('out', '.', '/var/log')
    """
    directory = _PART.split(path, maxsplit=1)[0].rpartition("/")
    return directory[0] or ("/" if directory[1] else ".")


def filled(path: str, values: dict[str, Any]) -> str:
    """The path of one file. A date or an hour is given as the hours since 1970, None: no time.

    >>> filled("{date}/{hour}-{service}.log", {"date": 0, "hour": 0, "service": "../etc"})
    '1970-01-01/00-%2E.%2Fetc.log'
    """
    found = _PART.sub(lambda match: _text(match[1], values[match[1]]), path)
    return "/".join(map(_short_enough, found.split("/")))


def _short_enough(name: str) -> str:
    """Limit a name to what a file system accepts: several values together may be too long."""
    name_bytes = name.encode()
    if len(name_bytes) <= _NAME_MAX_BYTES:
        return name
    _, dot, suffixes = name.rpartition(".")
    ending = f"{dot}{suffixes}" if len(suffixes) <= _SUFFIXES_MAX else ""
    kept = name_bytes[: _NAME_MAX_BYTES - _HASH - 1 - len(ending.encode())].decode(errors="ignore")
    return f"{kept}-{_hash(name)}{ending}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH]


def _text(part: str, value: Any) -> str:
    if part in ("date", "hour"):
        try:
            moment = None if value is None else _EPOCH + timedelta(hours=value)
        except OverflowError:
            moment = None
        if moment is None:
            return _NO_VALUE
        return moment.date().isoformat() if part == "date" else f"{moment.hour:02}"
    text = urllib.parse.quote(str(value or _NO_VALUE), safe=" ")
    if text.startswith("."):
        text = f"%2E{text[1:]}"
    if len(text) > _VALUE_MAX_BYTES:
        text = f"{text[:_VALUE_MAX_BYTES]}-{_hash(text)}"
    return text
