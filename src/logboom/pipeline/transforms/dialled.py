"""Settings of transforms that a pipeline's file may give as a dial: `rate: 10`, or
`rate: {dial: sampled, default: 10, min: 1, max: 1000}`.

Knows models of settings. Must not know any particular transform.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
from pydantic import Discriminator, Field, Tag

from logboom.base.settings import Settings
from logboom.pipeline.findings import Findings, Part
from logboom.pipeline.plan.dials import Dial, DialValues, NamedDial, Value
from logboom.pipeline.plan.nodes import Transform

_Number = TypeVar("_Number", bound=float)
_DIAL, _PLAIN = "a dial", "a value"
_S_IN_MS: Final = 1_000
DIAL_NAME: Final = r"[A-Za-z_][A-Za-z0-9_.-]{0,159}"


class NumberDial(Settings):
    """A number that can be changed while the pipeline runs."""

    dial: str = Field(pattern=f"^{DIAL_NAME}$")
    """Its name."""

    default: float = Field(allow_inf_nan=False)
    """The value until somebody sets another one."""

    min: float | None = Field(default=None, allow_inf_nan=False)
    max: float | None = Field(default=None, allow_inf_nan=False)


class SwitchDial(Settings):
    """A switch that can be turned while the pipeline runs."""

    dial: str = Field(pattern=f"^{DIAL_NAME}$")
    """Its name."""

    default: bool = True
    """The value until somebody sets another one."""


def _shape(value: Any) -> str:
    return _DIAL if isinstance(value, dict | Settings) else _PLAIN


Dialled = Annotated[Annotated[_Number, Tag(_PLAIN)] | Annotated[NumberDial, Tag(_DIAL)], Discriminator(_shape)]
"""A number, or a dial for it."""
Switch = Annotated[Annotated[bool, Tag(_PLAIN)] | Annotated[SwitchDial, Tag(_DIAL)], Discriminator(_shape)]
"""True or false, or a dial for it."""


class DialParts:
    """Collects the dials that one transform of a pipeline's file names."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._named: list[NamedDial] = []

    def number(
        self, key: str, given: float | NumberDial, *, at_least: float | None = None, at_most: float | None = None
    ) -> float:
        """The number that holds where nobody has turned the dial. The bounds are those of the setting itself: a dial
        may narrow them. What is wrong is reported."""
        if not isinstance(given, NumberDial):
            return given
        self._check(key, given, at_least, at_most)
        self._named.append(NamedDial(setting=key, name=given.dial, min=given.min, max=given.max))
        return given.default

    def whole(self, key: str, given: int | NumberDial, *, at_least: int, at_most: int | None = None) -> int:
        """As `number`, for a setting that is a whole number."""
        if isinstance(given, NumberDial):
            for name in ("default", "min", "max"):
                value = getattr(given, name)
                if value is not None and value != int(value):
                    self._part.problem((key, name), f"should be a whole number, got {value:.15g}")
        return int(self.number(key, given, at_least=at_least, at_most=at_most))

    def milliseconds(self, key: str, given: int | NumberDial, *, at_least: int, at_most: int) -> int:
        """As `number`, for a span of time: in milliseconds here and in a plan, in seconds where there is a dial."""
        if not isinstance(given, NumberDial):
            return given
        bounds = {"at_least": at_least / _S_IN_MS, "at_most": at_most / _S_IN_MS}
        return round(self.number(key, given, **bounds) * _S_IN_MS)

    def _check(self, key: str, given: NumberDial, at_least: float | None, at_most: float | None) -> None:
        for name in ("default", "min", "max"):
            value = getattr(given, name)
            if value is not None and at_least is not None and value < at_least:
                self._part.problem((key, name), f"should be at least {at_least:.15g}, got {value:.15g}")
            if value is not None and at_most is not None and value > at_most:
                self._part.problem((key, name), f"should be at most {at_most:.15g}, got {value:.15g}")
        if given.min is not None and given.max is not None and given.min > given.max:
            self._part.problem((key, "max"), f"is below min, {given.min:.15g}")
        elif (given.min is not None and given.default < given.min) or (
            given.max is not None and given.default > given.max
        ):
            self._part.problem((key, "default"), f"{given.default:.15g} is not between min and max")

    def switch(self, key: str, given: bool | SwitchDial) -> bool:
        """What holds where nobody has turned the dial."""
        if not isinstance(given, SwitchDial):
            return given
        self._named.append(NamedDial(setting=key, name=given.dial))
        return given.default

    def named(self) -> tuple[NamedDial, ...] | msgspec.UnsetType:
        """For the node."""
        return tuple(self._named) or msgspec.UNSET


def time_dial(setting: str, value_ms: int, *, at_least: int, at_most: int, name: str = "") -> Dial:
    """The dial of a span of time, in seconds; the setting itself and its bounds are in milliseconds."""
    return Dial(setting=setting, name=name, value=value_ms / _S_IN_MS, min=at_least / _S_IN_MS, max=at_most / _S_IN_MS)


def fields_of(values: DialValues, times: Mapping[str, str]) -> dict[str, Value]:
    """The fields of a node that dials were turned of. `times`: of each setting that is a span of time, its field."""
    return {
        times.get(name, name): round(value * _S_IN_MS) if name in times else value for name, value in values.items()
    }


def exclude_dials(exclude: str | None, enabled: bool | msgspec.UnsetType) -> tuple[Dial, ...]:
    """The dial of the condition that keeps events out of a sample's choice, where it has one."""
    return () if exclude is None else (Dial(setting="exclude", kind="switch", value=enabled is not False),)


def with_exclude(values: DialValues) -> dict[str, Value]:
    """Values by the fields of a sample: its `exclude` is a condition, its dial says whether that holds."""
    fields = dict(values)
    if "exclude" in fields:
        fields["exclude_enabled"] = fields.pop("exclude")
    return fields


def check_dials(findings: Findings, transforms: Sequence[Transform]) -> None:
    """Names of dials are unique in the whole file: changes, counts and batches carry them alone."""
    seen: dict[str, str] = {}
    for node in transforms:
        for dial in node.dials:
            if dial.name in seen:
                path = ("transforms", node.name)
                findings.problem(path, f"the dial {dial.name!r} is already used by {seen[dial.name]!r}")
            seen.setdefault(dial.name, node.name)
