"""What a table holds and how it changes, as its users see it."""

from typing import Any, Final

import msgspec

ABSENT: Final = -1
"""As an expected version: the key has no value."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The value of a key at one version."""

    key: bytes
    value: bytes
    version: int
    """Offset of the record in its partition: a later record of the key has a greater one."""
    partition: int
    timestamp_ms: int
    """The record's time, in milliseconds since 1970."""

    @property
    def key_text(self) -> str:
        r"""The key for people: bytes that are not UTF-8 as \xNN."""
        return self.key.decode(errors="backslashreplace")

    def json(self) -> Any:
        """The value read as JSON. ValueError where it is none."""
        return msgspec.json.decode(self.value)


class Change(msgspec.Struct, frozen=True, gc=False):
    """The newest known state of a key, given to those who watch."""

    key: bytes
    entry: Entry | None
    """What the key holds now; None where it was deleted."""
    version: int | None
    """Offset of the record that made the change; None for a deletion of which no record is left to be read."""
    partition: int
    ambiguous: bool = False
    """The key has values in more than one partition; `entry` is the one with the latest timestamp."""

    @property
    def deleted(self) -> bool:
        """Whether the key has no value any more."""
        return self.entry is None

    @property
    def key_text(self) -> str:
        r"""The key for people: bytes that are not UTF-8 as \xNN."""
        return self.key.decode(errors="backslashreplace")


def key_bytes(key: str | bytes) -> bytes:
    """A key as it stands in the log: text as UTF-8."""
    return key.encode() if isinstance(key, str) else bytes(key)


def quoted(key: bytes, length_max: int = 100) -> str:
    """A key inside a message, shortened where it is long.

    >>> quoted(b"checkout"), quoted(b"k" * 200, 8)
    ("'checkout'", "'kkkkkkkk...'")
    """
    text = key.decode(errors="backslashreplace")
    return repr(text if len(text) <= length_max else text[:length_max] + "...")
