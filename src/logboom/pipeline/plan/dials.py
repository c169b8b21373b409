"""Dials: numbers and switches of transforms that can be changed while a pipeline runs.

Knows settings by name and their limits. Must not know who changes a dial, or what a setting does. A batch runs with a
plan whose nodes contain the values of their dials, so kernels need not know dials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

Value = bool | int | float
"""The value of a dial."""
DialValues = Mapping[str, Value]
"""Values by the name of a dial, or by the setting of one transform."""
DialKind = Literal["number", "whole", "switch"]

_WORDS: Final[Mapping[str, bool]] = {"on": True, "true": True, "off": False, "false": False}


class NamedDial(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a dial in a pipeline's file: its name and limits."""

    setting: str
    name: str
    min: float | None = None
    max: float | None = None


class Dial(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that can be changed while the pipeline runs."""

    setting: str
    """The setting's name in its transform."""
    value: Value
    """The value in the file: used until the dial is changed."""
    kind: DialKind = "number"
    min: float | None = None
    max: float | None = None
    name: str = ""
    """Unique in the pipeline."""

    def problem(self, value: Value) -> str | None:
        """What is wrong with a value, as the end of a sentence; None if the dial accepts it."""
        if (self.kind == "switch") != isinstance(value, bool):
            return "should be on or off" if self.kind == "switch" else "should be a number"
        if self.kind == "switch":
            return None
        if not math.isfinite(value) or (self.kind == "whole" and value != int(value)):
            return "should be a whole number" if self.kind == "whole" else "should be a number"
        below = self.min is not None and value < self.min
        above = self.max is not None and value > self.max
        return f"should be {self.range_text()}" if below or above else None

    def fitted(self, value: Value) -> Value:
        """A valid value with the setting's type: an integer may have been written as 5.0."""
        if self.kind == "switch":
            return value
        return int(value) if self.kind == "whole" else float(value)

    def range_text(self) -> str:
        """The range of valid values.

        >>> Dial(setting="rate", value=10, min=1, max=1000).range_text()
        '1 to 1000'
        """
        if self.kind == "switch":
            return "on or off"
        low = None if self.min is None else f"{self.min:.15g}"
        high = None if self.max is None else f"{self.max:.15g}"
        if low is not None and high is not None:
            return f"{low} to {high}"
        if low is not None:
            return f"{low} or more"
        return f"{high} or less" if high is not None else "any number"

    def read(self, text: str) -> Value:
        """Parse a value; ValueError with the end of a sentence if the dial does not accept it."""
        word = text.strip().lower()
        value: Value
        if self.kind == "switch":
            if word not in _WORDS:
                raise ValueError("should be on or off")
            return _WORDS[word]
        try:
            value = float(word)
        except ValueError:
            raise ValueError("should be a number") from None
        problem = self.problem(value)
        if problem is not None:
            raise ValueError(problem)
        return int(value) if value == int(value) else value

    def named(self, own: NamedDial) -> Dial:
        """The dial with the name and limits of a file."""
        low = self.min if own.min is None else own.min
        high = self.max if own.max is None else own.max
        return msgspec.structs.replace(self, name=own.name, min=low, max=high)


def value_text(value: Value) -> str:
    """A value as text for people.

    >>> value_text(True), value_text(50.0), value_text(2.5)
    ('on', '50', '2.5')
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.15g}"
