"""Kinds of metrics: the slots that an event changes, and how a window's value is computed from its slots.

A slot holds one number: a sum, a minimum or a maximum. So two parts of a window are merged slot by slot. Counts and
sums use weights: an event that a sample has kept also stands for the events that it has dropped.

- histogram: a slot for each bucket between the bounds, and one for the sum.
- quantiles: DDSketch (Masson, Rim, Lee: DDSketch, VLDB 2019) with a relative error of 1 %: a slot for each power of
  gamma. Values nearer to 0 than 1e-9 count as 0, those beyond 1e15 as 1e15.
- unique: HyperLogLog (Flajolet et al., 2007) with 2,048 registers, a standard error of 2.3 %; the estimate is that of
  Ertl, New cardinality estimation algorithms for HyperLogLog sketches, 2017, which needs no correction of bias.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

Kind = Literal["count", "sum", "min", "max", "histogram", "quantiles", "unique"]
Operation = Literal["sum", "min", "max"]
Numbers = npt.NDArray[np.float64]
Slots = npt.NDArray[np.int32]

SUM_SLOT: Final = -1
"""For a histogram and for quantiles: the sum of the values."""
_GAMMA: Final = 1.01 / 0.99
_LOG_GAMMA: Final = math.log(_GAMMA)
_SMALLEST, _LARGEST = 1e-9, 1e15
_POSITIVE: Final = 100_000
"""Slots of positive values are around this number, those of negative ones around its negative, that of 0 is 0."""
_BITS: Final = 11
_REGISTERS: Final = 1 << _BITS
_REST_BITS: Final = 53


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of an aggregate."""

    name: str
    kind: Kind
    of: str | None = None
    """The value, in SQL; None for a count."""
    bounds: tuple[float, ...] = ()
    """Of a histogram: the upper ends of all buckets but the last; a value at a bound is in the lower bucket."""
    quantiles: tuple[float, ...] = ()

    @property
    def operation(self) -> Operation:
        """How two numbers of one slot are merged."""
        if self.kind in ("min", "max"):
            return "min" if self.kind == "min" else "max"
        return "max" if self.kind == "unique" else "sum"


class Touched(NamedTuple):
    """The numbers of some events, by row of them."""

    slots: Slots
    numbers: Numbers


def touched(metric: Metric, values: Numbers, weights: Numbers) -> Sequence[Touched]:
    """The contributions of events with these values to a numeric metric."""
    zero = np.zeros(len(values), np.int32)
    if metric.kind == "count":
        return (Touched(zero, weights),)
    if metric.kind in ("min", "max"):
        return (Touched(zero, values),)
    total = Touched(zero + (0 if metric.kind == "sum" else SUM_SLOT), values * weights)
    if metric.kind == "sum":
        return (total,)
    if metric.kind == "histogram":
        buckets = np.searchsorted(np.array(metric.bounds), values, side="left").astype(np.int32)
        return (Touched(buckets, weights), total)
    return (Touched(sketch_slots(values), weights), total)


def touched_by_hash(hashes: npt.NDArray[np.uint64]) -> Touched:
    """The contributions of events to a metric `unique`: register and rank of the hash of their value."""
    registers = (hashes >> np.uint64(64 - _BITS)).astype(np.int32)
    rest = (hashes << np.uint64(_BITS)) >> np.uint64(64 - _REST_BITS)
    _, bits = np.frexp(rest.astype(np.float64))  # exact: no more than 53 bits
    return Touched(registers, (_REST_BITS + 1 - bits).astype(np.float64))


def sketch_slots(values: Numbers) -> Slots:
    """The slots of DDSketch, in the order of the values."""
    sizes = np.clip(np.abs(values), _SMALLEST, _LARGEST)
    powers = np.ceil(np.log(sizes) / _LOG_GAMMA).astype(np.int32) + _POSITIVE
    slots = np.where(values > 0, powers, -powers)
    return np.where(np.abs(values) < _SMALLEST, 0, slots).astype(np.int32)


def result(metric: Metric, slots: Slots, numbers: Numbers) -> Mapping[str, Any]:
    """The result of the slots of one window and group, as members of the metric's event."""
    if metric.kind in ("count", "sum", "min", "max"):
        return {"value": float(numbers[0])}
    if metric.kind == "unique":
        return {"value": round(unique_estimate(slots, numbers))}
    is_sum = slots == SUM_SLOT
    counts, total = numbers[~is_sum], float(numbers[is_sum].sum())
    found: dict[str, Any] = {"value": float(counts.sum()), "sum": total}
    if metric.kind == "histogram":
        buckets = [0.0] * (len(metric.bounds) + 1)
        for slot, number in zip(slots[~is_sum].tolist(), counts.tolist(), strict=True):
            buckets[slot] = number
        return {**found, "bounds": list(metric.bounds), "buckets": buckets}
    return {**found, "quantiles": _quantiles(metric.quantiles, slots[~is_sum], counts)}


def _quantiles(wanted: Sequence[float], slots: Slots, counts: Numbers) -> dict[str, float]:
    order = np.argsort(slots)
    behind = np.cumsum(counts[order])
    found = {}
    for quantile in wanted:
        at = min(int(np.searchsorted(behind, quantile * behind[-1], side="left")), len(order) - 1)
        found[f"{quantile:g}"] = _value_of(int(slots[order[at]]))
    return found


def _value_of(slot: int) -> float:
    """The value in the middle of a slot: at most 1 % away from any value in the slot."""
    if slot == 0:
        return 0.0
    size = 2 * _GAMMA ** (abs(slot) - _POSITIVE) / (_GAMMA + 1)
    return float(f"{math.copysign(size, slot):.6g}")


def unique_estimate(registers: Slots, ranks: Numbers) -> float:
    """How many different values there were (Ertl 2017, algorithm 6)."""
    highest = _REST_BITS + 1
    counts = np.bincount(ranks.astype(np.int64), minlength=highest + 1).astype(float)
    counts[0] = _REGISTERS - len(registers)
    z = _REGISTERS * _tau(1 - counts[highest] / _REGISTERS)
    for rank in range(highest - 1, 0, -1):
        z = (z + counts[rank]) / 2
    z += _REGISTERS * _sigma(counts[0] / _REGISTERS)
    return float(_REGISTERS / (2 * math.log(2)) * _REGISTERS / z)


def _sigma(x: float) -> float:
    if x == 1:
        return math.inf
    y, z, before = 1.0, x, -1.0
    while z != before:
        x, before = x * x, z
        z, y = z + x * y, 2 * y
    return z


def _tau(x: float) -> float:
    if x in (0, 1):
        return 0.0
    y, z, before = 1.0, 1 - x, -1.0
    while z != before:
        x, before, y = math.sqrt(x), z, y / 2
        z -= (1 - x) ** 2 * y
    return z / 3
