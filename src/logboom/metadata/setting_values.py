"""The kinds of values that a stream's settings have: how the text of one is read and checked, and its type in Kafka.

Each kind is a `ValueRule`. Its ValueError carries the end of a sentence that begins with "expected". Knows no setting.
"""

import math
import re
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum
from typing import Final, Protocol, TypeAlias

Value: TypeAlias = int | float | bool | str
"""A parsed value. Enumerations are of strings."""

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 20
"""Longer numbers are not even converted: that takes time which grows with the square of their length."""


class SettingType(IntEnum):
    """Types as DescribeConfigs numbers them (Kafka's ConfigDef.Type)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Unit(Enum):
    """What a number counts; a configuration file writes sizes and durations with units."""

    COUNT = "count"
    BYTES = "bytes"
    MS = "ms"


class ValueRule(Protocol):
    """One kind of value."""

    @property
    def type(self) -> SettingType:
        """Its type in DescribeConfigs."""

    @property
    def expected(self) -> str:
        """The values that are valid, in words."""

    def parse(self, text: str) -> Value:
        """The value of a text. Raises ValueError."""


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number between two bounds, inclusive."""

    lowest: int
    highest: int
    unit: Unit = Unit.COUNT
    unlimited: int | None = None
    """The number by which Kafka says "no limit", where the setting may have none; within the bounds."""
    also: int | None = None
    """One number outside of the bounds that is valid too."""

    @property
    def type(self) -> SettingType:
        return SettingType.INT if self.highest <= INT32_MAX else SettingType.LONG

    @property
    def expected(self) -> str:
        text = f"a whole number from {self.lowest} to {self.highest}"
        if self.also is not None:
            text += f", or {self.also}"
        if self.unlimited is not None:
            text += f"; {self.unlimited} is no limit"
        return text

    def parse(self, text: str) -> int:
        digits = text.strip().removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) < _DIGITS_MAX:
            number = int(text)
            if self.lowest <= number <= self.highest or number == self.also:
                return number
        raise ValueError(self.expected)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A number from 0 to 1."""

    type = SettingType.DOUBLE
    expected = "a number from 0 to 1"

    def parse(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 <= number <= 1:
            raise ValueError(self.expected)
        return number


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false, in capitals too, as Kafka reads them."""

    only: bool | None = None
    """The one value that is taken, where the other asks for what this program cannot do ..."""
    because: str = ""
    """... for this reason."""

    type = SettingType.BOOLEAN

    @property
    def expected(self) -> str:
        return "true or false" if self.only is None else f"{str(self.only).lower()}: {self.because}"

    def parse(self, text: str) -> bool:
        given = {"true": True, "false": False}.get(text.strip().lower())
        if given is None or self.only not in (None, given):
            raise ValueError(self.expected)
        return given


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the values of an enumeration."""

    values: type[StrEnum]

    type = SettingType.STRING

    @property
    def expected(self) -> str:
        return " or ".join(self.values)

    def parse(self, text: str) -> StrEnum:
        try:
            return self.values(text.strip())
        except ValueError:
            raise ValueError(self.expected) from None


@dataclass(frozen=True, slots=True)
class Choices:
    """A list of some words, separated by commas; each once, in the order given. As in Kafka it may be empty."""

    words: tuple[str, ...]

    type = SettingType.LIST

    @property
    def expected(self) -> str:
        return ", ".join(self.words) + (", several of them or none" if len(self.words) > 1 else " or none")

    def parse(self, text: str) -> str:
        given = dict.fromkeys(word.strip() for word in text.split(",")) if text.strip() else {}
        if not given.keys() <= set(self.words):
            raise ValueError(self.expected)
        return ",".join(given)


_THROTTLED: Final = re.compile(r"\*?|\d{1,10}:\d{1,10}(,\d{1,10}:\d{1,10})*")


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """Replicas as `partition:broker`, separated by commas; `*` is all of them, nothing is none."""

    type = SettingType.LIST
    expected = "partition:broker,partition:broker,... or *"

    def parse(self, text: str) -> str:
        given = "".join(text.split())
        if not _THROTTLED.fullmatch(given):
            raise ValueError(self.expected)
        return given
