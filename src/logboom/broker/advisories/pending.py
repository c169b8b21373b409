"""Advisories that are not written yet: those of one type, stream and reason are one, with their number. Pure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

import msgspec

from logboom.base.units import SECOND_MS

KINDS_MAX: Final = 1_000
"""So many of different types, streams and reasons wait to be written at most; others are counted together by type."""
MESSAGE_CHARACTERS_MAX: Final = 500
_OTHERS: Final = "others"


class Advisory(msgspec.Struct, omit_defaults=True):
    """One record of `__advisories`, as JSON: see the package."""

    type: str
    time: str
    broker: int
    stream: str = ""
    reason: str = ""
    count: int = 0
    message: str = ""


class Written(NamedTuple):
    """An advisory as a record."""

    time_ms: int
    key: bytes
    value: bytes


class _Kind(NamedTuple):
    type: str
    stream: str
    reason: str


class _Counted(NamedTuple):
    total: int
    time_ms: int
    message: str


Taken: TypeAlias = Mapping[_Kind, _Counted]
"""Advisories on their way."""


class PendingAdvisories:
    """See the module."""

    def __init__(self) -> None:
        self._counted: dict[_Kind, _Counted] = {}

    def __len__(self) -> int:
        return len(self._counted)

    def note(self, type_: str, stream: str, reason: str, count: int, message: str, time_ms: int) -> None:
        """Something has happened `count` times."""
        kind = _Kind(type_, stream, reason)
        if kind not in self._counted and len(self._counted) >= KINDS_MAX:
            kind = _Kind(type_, "", _OTHERS)
        before = self._counted.get(kind)
        total = count if before is None else before.total + count
        self._counted[kind] = _Counted(total, time_ms, message[:MESSAGE_CHARACTERS_MAX])

    def take(self, most: int) -> Taken:
        """The first of them, in the order in which they began; they no longer wait."""
        taken = dict(islice(self._counted.items(), most))
        for kind in taken:
            del self._counted[kind]
        return taken

    def put_back(self, taken: Taken) -> None:
        """These were not written: they wait again, with what was noted meanwhile."""
        later, self._counted = self._counted, {}
        for some in (taken, later):
            for kind, one in some.items():
                self.note(*kind, one.total, one.message, one.time_ms)


def records(taken: Taken, broker: int) -> Sequence[Written]:
    """What a broker writes."""
    return [
        Written(
            one.time_ms,
            kind.type.encode(),
            msgspec.json.encode(
                Advisory(kind.type, _rfc3339(one.time_ms), broker, kind.stream, kind.reason, one.total, one.message)
            ),
        )
        for kind, one in taken.items()
    ]


def _rfc3339(time_ms: int) -> str:
    at = datetime.fromtimestamp(time_ms // SECOND_MS, UTC).replace(microsecond=time_ms % SECOND_MS * 1_000)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
