"""At most this many events a second of each key, with weights by which the kept ones stand for all: `sample` with
`per_second`.

Each key has a bucket of tokens (RFC 2697 names the idea): it fills with the time between two batches, and an event that
stays takes one. Of the k events of a key in a batch the m with the lowest hash stay, and their weights grow so that
they sum to those of all k. Events for which there was no token at all are owed: their weight goes to those that stay
next. So the sum of weights is the count of the input, but for what is owed at the moment, and what was owed to keys
that were forgotten since there were too many.

Knows numpy and Arrow. Must not know events.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from logboom.pipeline.keyed.columns import Mask, Weights, Words, found_at, ranks

STATE: Final = pa.schema(
    [("key", pa.uint64()), ("tokens", pa.float64()), ("owed", pa.float64()), ("at_ms", pa.int64())]
)
_IDLE_MAX_MS: Final = 60_000
"""A bucket fills for no longer than this: what comes after an hour's stop is no burst of an hour."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """How fast the events of a key may be, and how many keys are told apart."""

    per_second: float
    keys_max: int

    @property
    def full(self) -> float:
        """The most that waits in it from batch to batch: a second's worth, or what one event takes."""
        return max(self.per_second, 1.0)


class Drawn(NamedTuple):
    """What becomes of the events of a batch."""

    stays: Mask
    weights: Weights
    """By row, where it stays."""
    state: pa.Table
    """Behind the batch."""
    forgotten: float
    """The weight that was owed to keys that are forgotten."""


def advance(bucket: Bucket, state: pa.Table | None, keys: Words, draws: Words, weights: Weights, now_ms: int) -> Drawn:
    """`draws`: the hash that decides which of a key stay."""
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
    """The weight of events that stand for nothing yet."""
    return float(state.column("owed").to_numpy().sum())


def _filled(bucket: Bucket, state: pa.Table | None, now_ms: int) -> tuple[Words, Weights, Weights]:
    """The keys in order, their tokens at this time and what is owed to them."""
    if state is None or not state.num_rows:
        return np.zeros(0, np.uint64), np.zeros(0), np.zeros(0)
    keys, tokens, owed, at_ms = (state.column(name).to_numpy() for name in STATE.names)
    waited_s = np.minimum(now_ms - at_ms, _IDLE_MAX_MS) / 1_000
    tokens = np.minimum(tokens, bucket.full) + waited_s * bucket.per_second
    order = np.argsort(keys)
    return keys[order], tokens[order], owed[order]


def _bounded(bucket: Bucket, state: pa.Table) -> pa.Table:
    """Without the keys that are as good as new ones; of too many, those are kept that owe most, then the emptiest."""
    tokens, owed = state.column("tokens").to_numpy(), state.column("owed").to_numpy()
    rows = np.flatnonzero((owed > 0) | (tokens < bucket.full))
    if len(rows) > bucket.keys_max:
        rows = np.sort(rows[np.lexsort((tokens[rows], -owed[rows]))[: bucket.keys_max]])
    return state.take(pa.array(rows))
