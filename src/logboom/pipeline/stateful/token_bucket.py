"""Keeps at most this many events per second of each key, with weights so that the kept ones represent all: `sample`
with `per_second`.

Each key has a token bucket (the idea is that of RFC 2697): it fills with the time between two batches, and each kept
event takes a token. Of the k events of a key in a batch, the m with the lowest hashes are kept, and their weights grow
so that their sum is that of all k. If there was no token at all, the weight of the events is owed: it is added to the
next kept events. So the sum of weights equals the number of input events, except for the weight that is currently owed,
and weight owed to keys that were evicted because of the limit of keys.

Knows numpy and Arrow. Must not know events.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from logboom.pipeline.stateful.grouping import Mask, Weights, Words, found_at, ranks

STATE: Final = pa.schema(
    [("key", pa.uint64()), ("tokens", pa.float64()), ("owed", pa.float64()), ("at_ms", pa.int64())]
)
_IDLE_MAX_MS: Final = 60_000
"""A bucket fills for at most this time: after a stop of an hour there is no burst of an hour's events."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The allowed rate of a key, and the limit of keys."""

    per_second: float
    keys_max: int

    @property
    def full(self) -> float:
        """The size of a bucket: the tokens of a second, or of one event."""
        return max(self.per_second, 1.0)


class Drawn(NamedTuple):
    """The result for the events of a batch."""

    stays: Mask
    weights: Weights
    """For each row, the new weight if it is kept."""
    state: pa.Table
    """The state after the batch."""
    forgotten: float
    """The owed weight of evicted keys."""


def advance(bucket: Bucket, state: pa.Table | None, keys: Words, draws: Words, weights: Weights, now_ms: int) -> Drawn:
    """`draws`: the hashes that decide which events of a key are kept."""
    known, tokens, owed = _filled(bucket, state, now_ms)
    names, index = np.unique(keys, return_inverse=True)
    places, there = found_at(known, names)
    tokens_of = np.where(there, tokens[places], bucket.full) if len(known) else np.full(len(names), bucket.full)
    owed_of = np.where(there, owed[places], 0.0) if len(known) else np.zeros(len(names))
    stays: Mask = ranks(keys, draws) < np.floor(tokens_of)[index]
    taken = np.bincount(index, weights=stays, minlength=len(names))
    all_weights = np.bincount(index, weights=weights, minlength=len(names)) + owed_of
    kept_weights = np.bincount(index, weights=weights * stays, minlength=len(names))
    factors = np.divide(all_weights, kept_weights, out=np.ones(len(names)), where=kept_weights > 0)
    left_owed = np.where(kept_weights > 0, 0.0, all_weights)
    rest = np.setdiff1d(np.arange(len(known)), places[there])
    after = pa.Table.from_arrays(
        [
            pa.array(np.concatenate((known[rest], names))),
            pa.array(np.concatenate((tokens[rest], tokens_of - taken))),
            pa.array(np.concatenate((owed[rest], left_owed))),
            pa.array(np.full(len(rest) + len(names), now_ms)),
        ],
        schema=STATE,
    )
    bounded = _bounded(bucket, after)
    forgotten = 0.0 if bounded.num_rows == after.num_rows else owed_by(after) - owed_by(bounded)
    return Drawn(stays, weights * factors[index], bounded, forgotten)


def owed_by(state: pa.Table) -> float:
    """The weight that is currently owed."""
    return float(state.column("owed").to_numpy().sum())


def _filled(bucket: Bucket, state: pa.Table | None, now_ms: int) -> tuple[Words, Weights, Weights]:
    """The sorted keys, with their tokens at this time and the owed weight."""
    if state is None or not state.num_rows:
        return np.zeros(0, np.uint64), np.zeros(0), np.zeros(0)
    keys, tokens, owed, at_ms = (state.column(name).to_numpy() for name in STATE.names)
    waited_s = np.minimum(now_ms - at_ms, _IDLE_MAX_MS) / 1_000
    tokens = np.minimum(tokens, bucket.full) + waited_s * bucket.per_second
    order = np.argsort(keys)
    return keys[order], tokens[order], owed[order]


def _bounded(bucket: Bucket, state: pa.Table) -> pa.Table:
    """Remove keys that equal new ones. Above the limit, keep those with the most owed weight, then those with the
    fewest tokens."""
    tokens, owed = state.column("tokens").to_numpy(), state.column("owed").to_numpy()
    rows = np.flatnonzero((owed > 0) | (tokens < bucket.full))
    if len(rows) > bucket.keys_max:
        rows = np.sort(rows[np.lexsort((tokens[rows], -owed[rows]))[: bucket.keys_max]])
    return state.take(pa.array(rows))
