"""Counts the volume of each key in a time window, and finds the events above a limit: the algorithm of `limit`.

A window starts where the batch time, counted from 1970, is a multiple of its length; a window of one day starts at
midnight UTC. Knows numpy and Arrow. Must not know what happens to events above the limit.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from logboom.pipeline.stateful.grouping import Longs, Mask, Words, found_at, sums_before, totals

STATE: Final = pa.schema([("key", pa.uint64()), ("window_ms", pa.int64()), ("used", pa.int64())])
OTHERS: Final = np.uint64(1)
"""The key for all further keys when there are too many: they share one count."""


@dataclass(frozen=True, slots=True)
class Cap:
    """The limit."""

    most: int
    """Events or bytes per key and window."""
    window_ms: int
    keys_max: int
    """If a window has more keys, the further ones share one count."""


def advance(cap: Cap, state: pa.Table | None, keys: Words, sizes: Longs, now_ms: int) -> tuple[Mask, pa.Table]:
    """For each row, whether it is above the limit. Events of a key pass until their volume reaches the limit, so the
    last of them may exceed it."""
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
    """The keys, with OTHERS for those above the limit of keys."""
    fresh = np.setdiff1d(keys, known)
    room = max(0, cap.keys_max - len(known))
    return np.where(np.isin(keys, fresh[room:]), OTHERS, keys) if len(fresh) > room else keys
