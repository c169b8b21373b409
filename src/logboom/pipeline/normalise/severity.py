"""Severity numbers of OpenTelemetry from the words and numbers that programs write.

Source: OpenTelemetry logs data model, fields SeverityNumber and SeverityText, and its appendix B of example mappings.
Knows words and scales. Must not know batches.
"""

from collections.abc import Mapping
from typing import Final, Literal

Scale = Literal["otel", "syslog", "pino", "python", "http"]

UNSPECIFIED: Final = 0

SYSLOG_NUMBERS: Final = (21, 19, 18, 17, 13, 10, 9, 5)
"""By syslog severity: emergency, alert, critical, error, warning, notice, informational, debug (RFC 5424, 6.2.1)."""

SYSLOG_TEXTS: Final = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")

_SHORT_NAMES: Final = {
    f"{name}{step or ''}".lower(): base + max(step - 1, 0)
    for base, name in ((1, "TRACE"), (5, "DEBUG"), (9, "INFO"), (13, "WARN"), (17, "ERROR"), (21, "FATAL"))
    for step in range(5)
}
_WORDS: Final[dict[str, int]] = {
    **_SHORT_NAMES,
    **{f"trace{step}": 1 for step in range(5, 9)},  # httpd has trace levels up to 8
    **dict.fromkeys(("finest", "verbose", "v", "silly", "t", "all"), 1),
    **dict.fromkeys(("finer", "dbg", "d", "debg", "d1", "d2", "d3", "d4", "d5"), 5),
    **{f"debug{step}": 5 for step in range(5, 6)},
    "fine": 6,
    "config": 7,
    **dict.fromkeys(("information", "informational", "inf", "i", "log", "statement", "detail", "hint", "ok"), 9),
    **dict.fromkeys(("notice", "note", "n", "success"), 10),
    **dict.fromkeys(("warning", "wrn", "w"), 13),
    **dict.fromkeys(("err", "e", "severe", "eror", "failure", "fail"), 17),
    **dict.fromkeys(("crit", "dpanic"), 18),
    "alert": 19,
    **dict.fromkeys(("critical", "emerg", "emergency", "panic", "fatl", "f", "ftl", "crash"), 21),
}
_SCALES: Final[dict[Scale, Mapping[int, int]]] = {
    "otel": {number: number for number in range(1, 25)},
    "syslog": dict(enumerate(SYSLOG_NUMBERS)),
    "pino": {10: 1, 20: 5, 30: 9, 40: 13, 50: 17, 60: 21},
    "python": {10: 5, 20: 9, 30: 13, 40: 17, 50: 21},
}


def severity_of_name(text: str) -> int | None:
    """The number of a word such as `Warning`, `ERROR2` or `E`; None for any other word.

    >>> severity_of_name("Warning"), severity_of_name("ERROR2"), severity_of_name("soon")
    (13, 18, None)
    """
    return _WORDS.get(text.strip().lower())


class SeverityReader:
    """Converts a raw value to (number, text). Caches its results."""

    _MEMORY_MAX: Final = 4096

    def __init__(self, texts: tuple[tuple[str, int], ...], scale: Scale) -> None:
        self._own = dict(texts)
        self._scale: Scale = scale
        self._memory: dict[object, tuple[int, str | None]] = {}

    def read(self, value: object) -> tuple[int, str | None]:
        """Number 0 if the severity is unknown; the text as it was written. A bool or a nested value is not a
        severity."""
        kind = type(value)
        if kind is not str and kind is not int and kind is not float:
            return UNSPECIFIED, None
        known = self._memory.get(value)
        if known is None:
            known = self._read(value)
            if len(self._memory) < self._MEMORY_MAX:
                self._memory[value] = known
        return known

    def _read(self, value: object) -> tuple[int, str | None]:
        text = str(value)
        word = text.strip().lower()
        if word in self._own:
            return self._own[word], text
        try:
            number = float(word)
        except ValueError:
            return _WORDS.get(word, UNSPECIFIED), text or None
        if number != number or abs(number) > 1_000_000 or int(number) != number:
            return UNSPECIFIED, text
        if self._scale == "http":
            return _of_status(int(number))
        return _SCALES[self._scale].get(int(number), UNSPECIFIED), text


def _of_status(status: int) -> tuple[int, str | None]:
    """HTTP: 5xx is an error of the server, 4xx a warning, any other status is information."""
    if not 100 <= status <= 999:
        return UNSPECIFIED, None
    if status >= 500:
        return 17, "ERROR"
    return (13, "WARN") if status >= 400 else (9, "INFO")
