"""How much of each key has passed in a window of the clock, and what is over a cap: the work of `limit`.

A window begins where the time of the batch, counted from 1970, is a multiple of its length: one of a day at midnight
UTC. Knows numpy and Arrow. Must not know what becomes of events over the cap.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from logboom.pipeline.keyed.columns import Longs, Mask, Words, found_at, sums_before, totals

STATE: Final = pa.schema([("key", pa.uint64()), ("window_ms", pa.int64()), ("used", pa.int64())])
OTHERS: Final = np.uint64(1)
"""What keys share that come when there are too many: one account for all of them."""


@dataclass(frozen=True, slots=True)
class Cap:
    """What may pass."""

    most: int
    """Events or bytes by key and window."""
    window_ms: int
    keys_max: int
    """More keys than these in one window share an account."""


def advance(cap: Cap, state: pa.Table | None, keys: Words, sizes: Longs, now_ms: int) -> tuple[Mask, pa.Table]:
    """By row: whether it is over the cap. A key's events pass until what has passed reaches the cap, so that the last
    of them may stand across it."""
    window_ms = now_ms - now_ms % cap.window_ms
    known, used = _accounts(state, window_ms)
    keys = _bounded(cap, known, keys)
    places, there = found_at(known, keys)
    before = sums_before(keys, sizes)
    if len(known):
        before += np.where(there, used[places], 0)
    over: Mask = before >= cap.most
    if state is not None and (over.all() or not len(keys)) and len(known) == state.num_rows:
        return over, state
    named, more = totals(np.concatenate((known, keys[~over])), np.concatenate((used, sizes[~over])).astype(np.float64))
    columns = [named, np.full(len(named), window_ms), more.astype(np.int64)]
    return over, pa.Table.from_arrays([pa.array(column) for column in columns], schema=STATE)


def _accounts(state: pa.Table | None, window_ms: int) -> tuple[Words, Longs]:
    if state is None or not state.num_rows:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    keys, windows, used = (state.column(name).to_numpy() for name in STATE.names)
    here = windows == window_ms
    return keys[here], used[here]


def _bounded(cap: Cap, known: Words, keys: Words) -> Words:
    """The keys, those that there is no room for replaced by OTHERS."""
    fresh = np.setdiff1d(keys, known)
    room = max(0, cap.keys_max - len(known))
    return np.where(np.isin(keys, fresh[room:]), OTHERS, keys) if len(fresh) > room else keys
