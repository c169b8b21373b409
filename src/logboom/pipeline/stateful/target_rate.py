"""A sampling rate for each key that keeps about this many events per second of it: `sample` with `target_per_second`.

The event rate of a key is a moving average over time; its sampling rate is that average divided by the target. As in
any sample, the hash of an event alone decides whether it is kept, so weights are correct at every rate. Knows numpy and
Arrow.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from logboom.pipeline.plan.sampling import BITS, SPACE
from logboom.pipeline.stateful.grouping import Mask, Weights, Words, found_at

STATE: Final = pa.schema([("key", pa.uint64()), ("per_second", pa.float64()), ("at_ms", pa.int64())])
_FIRST_MS: Final = 1_000
"""The time that the first batch of a key is assumed to cover."""
_FORGOTTEN_BELOW: Final = 0.01
"""A key with fewer events per second than this fraction of the target is treated as new."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of each key."""

    per_second: float
    over_ms: int
    """The time constant of the average: after a step it has covered two thirds of the difference in this time."""
    keys_max: int


def advance(
    target: Target, state: pa.Table | None, keys: Words, draws: Words, now_ms: int
) -> tuple[Mask, Weights, pa.Table]:
    """For each row, whether it is kept, and the factor of its weight; and the state after the batch."""
    names, index, counts = np.unique(keys, return_inverse=True, return_counts=True)
    known, averages, elapsed_ms = _averages(state, now_ms)
    step = 1 - np.exp(-elapsed_ms / target.over_ms)
    fading = averages * (1 - step)
    places, there = found_at(known, names)
    first = counts * (1_000 / _FIRST_MS)
    if len(known):
        grown = fading[places] + step[places] * counts * (1_000 / np.maximum(elapsed_ms[places], 1))
        first = np.where(there, grown, first)
    rates = np.maximum(first / target.per_second, 1.0)[index]
    stays: Mask = draws >> np.uint64(64 - BITS) < (SPACE / rates).astype(np.uint64)
    rest = np.setdiff1d(np.arange(len(known)), places[there])
    named, average = np.concatenate((known[rest], names)), np.concatenate((fading[rest], first))
    return stays, rates, _state(target, named, average, now_ms)


def _averages(state: pa.Table | None, now_ms: int) -> tuple[Words, Weights, Weights]:
    if state is None or not state.num_rows:
        return np.zeros(0, np.uint64), np.zeros(0), np.zeros(0)
    keys, averages, at_ms = (state.column(name).to_numpy() for name in STATE.names)
    return keys, averages, np.maximum(now_ms - at_ms, 0).astype(np.float64)


def _state(target: Target, keys: Words, averages: Weights, now_ms: int) -> pa.Table:
    """The sorted keys, without those that equal new ones. Above the limit, the busiest are kept."""
    rows = np.flatnonzero(averages >= target.per_second * _FORGOTTEN_BELOW)
    if len(rows) > target.keys_max:
        rows = rows[np.argsort(-averages[rows], kind="stable")[: target.keys_max]]
    rows = rows[np.argsort(keys[rows])]
    columns = [keys[rows], averages[rows], np.full(len(rows), now_ms)]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=STATE)
