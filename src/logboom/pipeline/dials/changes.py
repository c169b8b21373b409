"""The changes of dials as they stand in the control stream, and which of them holds at a moment. Pure.

Every change is a record with a key of its own, `PIPELINE/DIAL/TIME-NUMBER`, so that compaction leaves the history and
no writer can replace another's change; the stream has one partition, whose order is the order of changes. Beside them
each pipeline has one record, with its name as the key: the dials that it has. A record without a value takes a change
out of the history.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from logboom.pipeline.plan.dials import Dial, Value

KEPT_CHANGES: Final = 100
"""Of each dial; older ones are taken out of the stream when the next is written."""
RECORD_BYTES_MAX: Final = 4_096
"""A larger key or value is not a change. Whoever may write to the log can write there what they like."""


_MOMENT_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999: no calendar tells a later moment."""
_Moment = Annotated[int, msgspec.Meta(ge=0, le=_MOMENT_MS_MAX)]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a dial."""

    dial: str
    value: Value | None
    """None: back to what the pipeline's file says."""
    by: str
    why: str | None = None
    at_ms: _Moment
    """When, in milliseconds since 1970, by the clock of who turned it."""
    expires_ms: _Moment | None = None
    """From then on it does not hold any more."""

    def holds_at(self, now_ms: int) -> bool:
        """Whether it has not expired."""
        return self.expires_ms is None or now_ms < self.expires_ms


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """The dials of a pipeline, as it last started with them."""

    dials: tuple[Dial, ...]

    def named(self) -> dict[str, Dial]:
        """By name."""
        return {dial.name: dial for dial in self.dials}


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the stream says of one pipeline up to an offset: whoever has it reads on from there."""

    pipeline: str
    names: tuple[str, ...]
    """The dials whose changes are in it."""
    changes: dict[str, Change]
    """By key, oldest first."""
    declared: Declared | None
    stream_id: str | None
    """None where the server gives streams none."""
    read_to: int
    """The first offset that is not in it."""
    at_ms: int
    """When it was made, in milliseconds since 1970."""


_SHOWN: Final = 100
"""Characters of what a stranger may have written, in a message."""

_change = msgspec.json.Decoder(Change)
_declared = msgspec.json.Decoder(Declared)
_encode = msgspec.json.Encoder().encode


class Dials:
    """What the control stream says of one pipeline.

    `names`: the dials whose changes are kept, up to 2 * KEPT_CHANGES of each. A change of any other is left out, so
    that nobody who writes to the stream can make this larger.
    """

    def __init__(self, pipeline: str, names: Iterable[str]) -> None:
        self._pipeline = pipeline
        self._names = frozenset(names)
        self._changes: dict[str, Change] = {}
        self._keys: dict[str, list[str]] = {}
        """By dial: the keys of its changes, oldest first."""
        self.declared: Declared | None = None

    def restore(self, changes: Mapping[str, Change], declared: Declared | None) -> None:
        """Goes on from what another had taken. `changes`: by key, oldest first."""
        self.declared = declared
        for key, change in changes.items():
            self._changes[key] = change
            self._keys.setdefault(change.dial, []).append(key)

    def changes(self) -> dict[str, Change]:
        """All that are kept, by key, oldest first."""
        return dict(self._changes)

    def take(self, key: str, value: bytes | None) -> str | None:
        """The next record of the stream; what is wrong with it, where it is left out: up to some 300 characters."""
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
        self._changes.pop(key, None)  # a record that was written again counts where it stands now
        mine = self._keys.setdefault(change.dial, [])
        self._changes[key] = change
        if key not in mine:
            mine.append(key)
        while len(mine) > 2 * KEPT_CHANGES:  # their writer takes them out of the stream; another may not
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
        """By dial: the change that holds. It is the newest that has not expired, so that the change before it holds
        again from then on; a dial that was set back, or never turned, is not here."""
        found: dict[str, Change] = {}
        for change in self._changes.values():
            if change.holds_at(now_ms):
                found[change.dial] = change
        return {name: change for name, change in found.items() if change.value is not None}

    def to_forget(self, dial: str) -> list[str]:
        """Keys of the changes that are too many once another is written."""
        keys = [key for key, change in self._changes.items() if change.dial == dial]
        return keys[: max(0, len(keys) - KEPT_CHANGES + 1)]


def values_of(changes: Mapping[str, Change], dials: Iterable[Dial]) -> tuple[dict[str, Value], list[str]]:
    """Where dials stand that were turned, and a sentence for each change that a dial does not take (it may have been
    another dial when it was turned)."""
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


def change_record(pipeline: str, change: Change, number: int) -> tuple[str, bytes]:
    """Key and value of a change. `number`: tells changes of the same millisecond apart."""
    return f"{pipeline}/{change.dial}/{change.at_ms}-{number:08x}", _encode(change)


def declared_record(pipeline: str, declared: Declared) -> tuple[str, bytes]:
    """Key and value of a pipeline's dials."""
    return pipeline, _encode(declared)
