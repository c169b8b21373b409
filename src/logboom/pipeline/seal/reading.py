"""Sealed values found in JSON and opened: what `pipeline decrypt` does to a line.

Knows JSON and ciphers. Must not know where lines come from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from logboom.pipeline.seal.cipher import SEALED, Cipher


@dataclass(slots=True)
class Opener:
    """Opens values under some keys, and counts."""

    ciphers: Mapping[str, Cipher]
    """By the name of the key."""
    opened: int = 0
    failed: int = 0
    """Values that were changed, or sealed under another key of that name."""
    unknown: set[str] = field(default_factory=set)
    """Names of keys that were not given; their values stay sealed."""

    def line(self, line: bytes) -> bytes:
        """The JSON of a line with all sealed values opened, at any depth; a line that is not JSON as it is."""
        try:
            tree = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return line
        before = self.opened
        tree = self._value(tree)
        return msgspec.json.encode(tree) if self.opened > before else line

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._value(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._value(inner) for inner in value]
        match = SEALED.fullmatch(value) if isinstance(value, str) else None
        return value if match is None else self._open(match[1], value)

    def _open(self, name: str, text: str) -> Any:
        cipher = self.ciphers.get(name)
        if cipher is None:
            self.unknown.add(name)
            return text
        try:
            found = cipher.open(text)
        except ValueError:
            self.failed += 1
            return text
        self.opened += 1
        return found
