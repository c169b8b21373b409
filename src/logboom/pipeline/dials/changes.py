"""The changes of dials in the control stream, and which of them is in effect at a given time. Pure.

Every change is a record with a key of its own, `PIPELINE/DIAL/TIME-NUMBER`, so that compaction keeps the history and no
writer can replace another's change. The stream has one partition, whose order is the order of changes. In addition each
pipeline has one record with its name as the key: the list of its dials. A record without a value removes a change from
the history.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from logboom.pipeline.plan.dials import Dial, Value

KEPT_CHANGES: Final = 100
"""Changes kept for each dial; older ones are removed from the stream when the next is written."""
RECORD_BYTES_MAX: Final = 4_096
"""A larger key or value is not a change. Everybody with write access to the log can write any record there."""


_MOMENT_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999: calendar functions support no later time."""
_Moment = Annotated[int, msgspec.Meta(ge=0, le=_MOMENT_MS_MAX)]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a dial."""

    dial: str
    value: Value | None
    """None: back to what the pipeline's file says."""
    by: str
    why: str | None = None
    at_ms: _Moment
    """Time of the change in milliseconds since 1970, by the clock of the client that made it."""
    expires_ms: _Moment | None = None
    """The change is in effect until this time."""

    def holds_at(self, now_ms: int) -> bool:
        """Whether it has not expired."""
        return self.expires_ms is None or now_ms < self.expires_ms


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """The dials of a pipeline at its last start."""

    dials: tuple[Dial, ...]

    def named(self) -> dict[str, Dial]:
        """By name."""
        return {dial.name: dial for dial in self.dials}


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The stream's contents for one pipeline up to an offset, from which a reader can continue."""

    pipeline: str
    names: tuple[str, ...]
    """The dials whose changes are included."""
    changes: dict[str, Change]
    """By key, oldest first."""
    declared: Declared | None
    stream_id: str | None
    """The id of the stream; None if the server gives streams no ids."""
    read_to: int
    """The first offset that is not included."""
    at_ms: int
    """When it was made, in milliseconds since 1970."""


_SHOWN: Final = 100
"""How many characters of a foreign record a message may quote."""

_change = msgspec.json.Decoder(Change)
_declared = msgspec.json.Decoder(Declared)
_encode = msgspec.json.Encoder().encode


class Dials:
    """The control stream's contents for one pipeline.

    `names`: the dials whose changes are kept, up to 2 * KEPT_CHANGES of each. Changes of other dials are ignored, so
    that no writer to the stream can make this object larger.
    """

    def __init__(self, pipeline: str, names: Iterable[str]) -> None:
        self._pipeline = pipeline
        self._names = frozenset(names)
        self._changes: dict[str, Change] = {}
        self._keys: dict[str, list[str]] = {}
        """By dial: the keys of its changes, oldest first."""
        self.declared: Declared | None = None

    def restore(self, changes: Mapping[str, Change], declared: Declared | None) -> None:
        """Continues from a snapshot. `changes`: by key, oldest first."""
        self.declared = declared
        for key, change in changes.items():
            self._changes[key] = change
            self._keys.setdefault(change.dial, []).append(key)

    def changes(self) -> dict[str, Change]:
        """All kept changes by key, oldest first."""
        return dict(self._changes)

    def take(self, key: str, value: bytes | None) -> str | None:
        """Takes the next record of the stream. Returns the reason if the record is ignored: up to some 300
        characters."""
        if key == self._pipeline:
            return self._take_declared(value)
        if not key.startswith(f"{self._pipeline}/"):
            return None
        if value is None:
            gone = self._changes.pop(key, None)
            if gone is not None and key in self._keys[gone.dial]:
                self._keys[gone.dial].remove(key)
            return None
        named = f"the record {key[:_SHOWN]} of the dials"
        if len(key) > RECORD_BYTES_MAX or len(value) > RECORD_BYTES_MAX:
            return f"{named} is not a change of a dial: it is larger than {RECORD_BYTES_MAX:,} bytes"
        try:
            change = _change.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return f"{named} is not a change of a dial: {str(error)[:_SHOWN]}"
        if change.dial not in self._names:
            return f"{named} turns {change.dial[:_SHOWN]!r}, which the pipeline does not have"
        self._changes.pop(key, None)  # a rewritten record counts at its new position
        mine = self._keys.setdefault(change.dial, [])
        self._changes[key] = change
        if key not in mine:
            mine.append(key)
        while len(mine) > 2 * KEPT_CHANGES:  # their writer removes them from the stream; other writers may not
            self._changes.pop(mine.pop(0), None)
        return None

    def _take_declared(self, value: bytes | None) -> str | None:
        try:
            self.declared = None if value is None else _declared.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = str(error)[:_SHOWN]
            return f"the record {self._pipeline} of the dials does not say which dials there are: {problem}"
        return None

    def history(self, dial: str | None = None) -> list[Change]:
        """The changes of a dial, or of all, oldest first."""
        return [change for change in self._changes.values() if dial in (None, change.dial)]

    def in_effect(self, now_ms: int) -> dict[str, Change]:
        """By dial: the change in effect. It is the newest one that has not expired; when it expires, the previous
        change is in effect again. A dial that was reset or never changed is not included."""
        found: dict[str, Change] = {}
        for change in self._changes.values():
            if change.holds_at(now_ms):
                found[change.dial] = change
        return {name: change for name, change in found.items() if change.value is not None}

    def to_forget(self, dial: str) -> list[str]:
        """Keys of the changes to remove when another is written."""
        keys = [key for key, change in self._changes.items() if change.dial == dial]
        return keys[: max(0, len(keys) - KEPT_CHANGES + 1)]


def values_of(changes: Mapping[str, Change], dials: Iterable[Dial]) -> tuple[dict[str, Value], list[str]]:
    """The positions of changed dials, and a sentence for each change that a dial does not accept (the dial may have
    been defined differently then)."""
    values: dict[str, Value] = {}
    refused: list[str] = []
    for dial in dials:
        change = changes.get(dial.name)
        if change is None or change.value is None:
            continue
        problem = dial.problem(change.value)
        if problem is None:
            values[dial.name] = change.value
        else:
            refused.append(f"the dial {dial.name} stays as the file says: {change.value} of {change.by} {problem}")
    return values, refused


def pipeline_of(key: str) -> str:
    """The pipeline that a record is about.

    >>> pipeline_of("shop"), pipeline_of("shop/noise/1767225600000-0")
    ('shop', 'shop')
    """
    return key.partition("/")[0]


def change_record(pipeline: str, change: Change, number: int) -> tuple[str, bytes]:
    """Key and value of a change. `number`: distinguishes changes of the same millisecond."""
    return f"{pipeline}/{change.dial}/{change.at_ms}-{number:08x}", _encode(change)


def declared_record(pipeline: str, declared: Declared) -> tuple[str, bytes]:
    """Key and value of a pipeline's dials."""
    return pipeline, _encode(declared)
