"""Fingerprints with the times at which they were seen: which rows of a batch are repeats, and the state after the
batch.

A key is opened by the first event that has it, at that event's time. Every event with the same key less than a window
away is a repeat of it. The next event outside the window opens the key again if it is later. A key is removed when the
watermark is a window after its opening.

The keys are in tables sorted by fingerprint. A batch adds one table; a table that is less than twice as large as the
next one is merged with it, so that there are few tables (a log-structured merge tree: O'Neil et al., 1996). Over time,
a small multiple of a batch's keys is written for it. Tables with only expired keys are removed as a whole. A key may be
in several tables: the last one counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint64]
Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

FIRST, SECOND, TIME = "first", "second", "time"
_RANGE: Final = b"times"
_NEVER: Final = np.iinfo(np.int64).min
_TURNS_MAX: Final = 32
"""Vectorised rounds over all keys; the remaining keys are then processed row by row."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Fingerprints and a time for each, by row."""

    first: Words
    second: Words
    times: Times

    def __len__(self) -> int:
        return len(self.first)

    def at(self, rows: npt.NDArray[np.int64] | Mask) -> "Keys":
        """Those of some rows."""
        return Keys(self.first[rows], self.second[rows], self.times[rows])


@dataclass(frozen=True, slots=True)
class Window:
    """How long keys are kept; times are in microseconds."""

    length_us: int
    keys_max: int
    """Keys of one shard; beyond this number the keys that were opened first are removed."""
    mark_us: int | None
    """The watermark before the batch."""
    mark_after_us: int | None

    def forgotten(self, opened: Times) -> Mask:
        """Which of the keys opened at these times no longer count in this batch."""
        if self.mark_us is None:
            return np.zeros(len(opened), np.bool_)
        old: Mask = opened <= self.mark_us - self.length_us
        return old


class Found(NamedTuple):
    """The result for the rows of a batch."""

    repeats: Mask
    """Which rows repeat an earlier row or a key of the state."""
    opened: Times
    """By row, for a repeat: when its key was opened."""
    state: tuple[pa.Table, ...]
    """The state after the batch."""
    evicted: int
    """How many keys were removed because there are too many."""


def repeats(state: Sequence[pa.Table], rows: Keys, window: Window) -> Found:
    """Looks for the keys of the rows in a state and in each other."""
    order = np.lexsort((np.arange(len(rows)), rows.second, rows.first))
    ordered = rows.at(order)
    is_new_key = np.ones(len(rows), np.bool_)
    is_new_key[1:] = (ordered.first[1:] != ordered.first[:-1]) | (ordered.second[1:] != ordered.second[:-1])
    starts = np.flatnonzero(is_new_key)
    keys = ordered.at(starts)
    opened = _opened(state, keys, window)
    found, since, last = _repeats_by_key(ordered.times, starts, opened, window.length_us)
    is_repeat, opened_at = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.int64)
    is_repeat[order], opened_at[order] = found, since
    changed = last != opened
    added = Keys(keys.first[changed], keys.second[changed], last[changed])
    next_state, evicted = _remembered(state, added, window)
    return Found(is_repeat, opened_at, next_state, evicted)


def _repeats_by_key(
    times: Times, starts: npt.NDArray[np.int64], opened: Times, length: int
) -> tuple[Mask, Times, Times]:
    """By row, whether it is a repeat, and the opening time of its key; by key, when it was opened last. Rows of one key
    are consecutive and begin at `starts`; `opened` is the opening time in the state, or _NEVER."""
    ends = np.append(starts[1:], len(times))
    found, since_of, last = np.zeros(len(times), np.bool_), np.zeros(len(times), np.int64), opened.copy()
    position, going = starts.copy(), np.arange(len(starts))
    for _ in range(_TURNS_MAX):
        if not len(going):
            return found, since_of, last
        # For each remaining key: the rows up to the next row that is not a repeat, which opens the key again.
        counts = ends[going] - position[going]
        heads = np.cumsum(counts) - counts
        rows = np.arange(counts.sum()) - np.repeat(heads - position[going], counts)
        since = np.repeat(last[going], counts)
        repeat = (since != _NEVER) & (np.abs(times[rows] - np.where(since == _NEVER, 0, since)) < length)
        opens = np.minimum.reduceat(np.where(repeat, len(times), rows), heads)
        found[rows] = rows < np.repeat(opens, counts)
        since_of[rows] = since
        going, opens = going[opens < len(times)], opens[opens < len(times)]
        last[going] = np.maximum(last[going], times[opens])
        position[going] = opens + 1
        going = going[position[going] < ends[going]]
    for key in going.tolist():  # times that are not in order
        opening = int(last[key])
        for row in range(int(position[key]), int(ends[key])):
            found[row], since_of[row] = abs(int(times[row]) - opening) < length, opening
            opening = max(opening, int(times[row])) if not found[row] else opening
        last[key] = opening
    return found, since_of, last


def _opened(state: Sequence[pa.Table], keys: Keys, window: Window) -> Times:
    """When each key was opened, or _NEVER; `keys` are sorted."""
    opened = np.full(len(keys), _NEVER, np.int64)
    open_rows = np.arange(len(keys))
    for table in reversed(state):
        there = keys_of(table)
        at = np.searchsorted(there.first, keys.first[open_rows])
        at[at == len(there)] = 0
        same = (there.first[at] == keys.first[open_rows]) & (there.second[at] == keys.second[open_rows])
        opened[open_rows[same]] = there.times[at[same]]
        open_rows = open_rows[~same]
    opened[window.forgotten(opened)] = _NEVER
    return opened


def _remembered(state: Sequence[pa.Table], added: Keys, window: Window) -> tuple[tuple[pa.Table, ...], int]:
    mark, length = window.mark_after_us, window.length_us
    kept: list[pa.Table] = []
    for table in state:
        first, last = _range(table)
        if mark is not None and last + length <= mark:
            continue
        half_gone = mark is not None and (first + last) // 2 + length <= mark
        kept.append(_table(_alive(keys_of(table), window)) if half_gone else table)
    if len(added):
        kept.append(_table(added))
    while len(kept) > 1 and kept[-2].num_rows < 2 * kept[-1].num_rows:
        newer, older = kept.pop(), kept.pop()
        kept.append(_table(_alive(_merged(keys_of(older), keys_of(newer)), window)))
    kept = [table for table in kept if table.num_rows]
    total = sum(table.num_rows for table in kept)
    if total <= window.keys_max:
        return tuple(kept), 0
    whole = keys_of(kept[0])
    for table in kept[1:]:
        whole = _merged(whole, keys_of(table))
    wanted = window.keys_max * 9 // 10  # so that later batches need not write all of it again
    if len(whole) <= wanted:
        return (_table(whole),), 0
    newest = np.sort(np.argsort(whole.times, kind="stable")[len(whole) - wanted :])
    return (_table(whole.at(newest)),), len(whole) - wanted


def _alive(keys: Keys, window: Window) -> Keys:
    mark = window.mark_after_us
    return keys if mark is None else keys.at(keys.times > mark - window.length_us)


def _merged(older: Keys, newer: Keys) -> Keys:
    """Both tables, sorted; if a key is in both, the newer entry."""
    first = np.concatenate([newer.first, older.first])
    second = np.concatenate([newer.second, older.second])
    times = np.concatenate([newer.times, older.times])
    order = np.lexsort((second, first))
    both = Keys(first[order], second[order], times[order])
    leads = np.ones(len(order), np.bool_)
    leads[1:] = (both.first[1:] != both.first[:-1]) | (both.second[1:] != both.second[:-1])
    return both.at(leads)


def keys_asked(batches: Sequence[pa.RecordBatch]) -> tuple[Keys, Mask]:
    """The keys of batches with the columns of a table, and which rows have one: those whose time is not null."""
    if not batches:
        return keys_of(pa.table({})), np.zeros(0, np.bool_)
    whole = pa.Table.from_batches(batches).combine_chunks()
    times = whole.column(TIME)
    has_key: Mask = times.is_valid().to_numpy()
    known = whole.set_column(2, TIME, times.fill_null(0).combine_chunks())
    return keys_of(known), has_key


def is_table_of_keys(table: pa.Table) -> bool:
    """Whether a table of a state is one of those that `repeats` gives."""
    return bool(table.schema.names == [FIRST, SECOND, TIME])


def keys_of(table: pa.Table) -> Keys:
    """The columns of a table, without copying them."""
    if not table.num_rows:
        return Keys(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int64))
    first, second, times = (table.column(name).chunk(0).to_numpy() for name in (FIRST, SECOND, TIME))
    return Keys(first, second, times)


def _table(keys: Keys) -> pa.Table:
    table = pa.table({FIRST: keys.first, SECOND: keys.second, TIME: keys.times})
    times = f"{keys.times.min()} {keys.times.max()}" if len(keys) else "0 0"
    return table.replace_schema_metadata({_RANGE: times.encode()})


def _range(table: pa.Table) -> tuple[int, int]:
    """The lowest and the highest time."""
    first, last = (table.schema.metadata or {})[_RANGE].split()
    return int(first), int(last)
