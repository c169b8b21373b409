"""Matches events of two sides that have the same key and are close in time: the algorithm of `join`.

Each event waits for `window_ms` after its arrival, and is matched with events of the other side that arrive meanwhile
or are already waiting. Unmatched events are returned unchanged.

Knows Arrow and an event's columns. Must not know where the sides come from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.base.units import MIB
from logboom.pipeline.event.attributes import with_member
from logboom.pipeline.event.json import event_texts
from logboom.pipeline.event.record_batch import whole_batch
from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.stateful.grouping import Longs, Mask, Words, ranks, weights_of
from logboom.pipeline.stateful.held_rows import Waits, rows_where, still_held

KEY: Final = "key_word"
"""Input column: the hash of the key."""
SIDE: Final = "side"
"""Input column: LEFT or RIGHT."""
TIME: Final = "time_ms"
SIZE: Final = "size_bytes"
LEFT, RIGHT = 0, 1
ROWS: Final = pa.schema([*LIVE_SCHEMA, (KEY, pa.uint64()), (SIDE, pa.int64()), (TIME, pa.int64()), (SIZE, pa.int64())])
"""The columns of the input."""

PAIRS_MAX_BYTES: Final = 256 * MIB
"""Limit of the size of a shard's pairs in one batch. As JSON they take up to six times that, and an Arrow array is
limited to 2 GiB."""
_PAIRS_MAX: Final = PAIRS_MAX_BYTES // 128
"""The number of the smallest pairs within that limit: an event counts at least 64 bytes (`grouping.sizes_of`)."""
_NUMBER, _ARRIVED = "number", "arrived_ms"
_COUNTER: Final = pa.schema([("next", pa.int64()), ("waits_from", pa.int64())])
_MET: Final = pa.schema([("number", pa.int64())])
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class JoinRules:
    """The rules for matching."""

    window_ms: int
    """How long an event waits, and the largest difference between the times of two matched events."""
    matches_max: int
    """The maximum number of matches of one event in one batch."""
    prefix: str
    """The attribute of the joined event that contains the right event."""
    events_max: int
    bytes_max: int


class Joined(NamedTuple):
    """The joined events, and those that no longer wait."""

    pairs: pa.RecordBatch | None
    """The joined events."""
    alone: pa.Table
    """Unmatched events, with their SIDE."""
    met: int
    """Number of matched events that no longer wait."""
    state: tuple[pa.Table, ...]
    held: int
    early: int
    """Number of events whose wait was cut short because too many were held."""
    cut: int
    """Number of pairs that were not made, because of `matches_max` or the size limit."""


class _Waiting(NamedTuple):
    """The keys and times of waiting events, in the order of arrival. Each has a number, one above that of the previous
    event."""

    first: int
    keys: Words
    sides: Longs
    times_ms: Longs
    arrived_ms: Longs
    sizes: Longs

    @property
    def behind(self) -> int:
        """The number of the next event."""
        return self.first + len(self.keys)


def advance(
    rules: JoinRules, state: tuple[pa.Table, ...], rows: pa.Table, now_ms: int, *, ends: bool = False
) -> Joined:
    """Process the rows of a batch. `ends`: no events wait after this."""
    counter, met, *tables = state or (_counter(0, 0), _MET.empty_table())
    fresh, waits_from = (int(counter.column(name)[0].as_py()) for name in _COUNTER.names)
    if rows.num_rows:
        rows = rows.append_column(_NUMBER, pa.array(np.arange(fresh, fresh + rows.num_rows)))
        tables.append(rows.append_column(_ARRIVED, pa.array(np.full(rows.num_rows, now_ms))).combine_chunks())
    if not tables:
        return Joined(None, ROWS.empty_table(), 0, (counter, met), 0, 0, 0)
    waiting = _waiting(tables, waits_from)
    known: Longs = met.column("number").to_numpy()
    pairs = None
    left, right, all_met = _meetings(rules, waiting, fresh)
    made = _with_room(waiting, left, right)
    if made.any():
        pairs = _pairs(rules, tables, left[made], right[made])
    if len(left):
        known = np.union1d(known, np.concatenate((left, right)))
    goes_on_from, early = _goes_on_from(rules, waiting, now_ms, ends=ends)
    gone = np.arange(waits_from, goes_on_from)
    lonely = np.setdiff1d(gone, known)
    alone = rows_where(tables, _among(lonely)) if len(lonely) else None
    if goes_on_from > waits_from or len(known) != met.num_rows:
        met = pa.Table.from_arrays([pa.array(known[known >= goes_on_from])], schema=_MET)
    kept = still_held(tables, lambda table: table.column(_NUMBER).to_numpy() >= goes_on_from)
    if goes_on_from != waits_from or rows.num_rows:
        counter = _counter(waiting.behind, goes_on_from)
    held = waiting.behind - goes_on_from
    alone = ROWS.empty_table() if alone is None else alone
    cut = all_met - int(made.sum())
    return Joined(pairs, alone, len(gone) - len(lonely), (counter, met, *kept), held, early, cut)


def _counter(behind: int, waits_from: int) -> pa.Table:
    return pa.Table.from_arrays([pa.array([behind], pa.int64()), pa.array([waits_from], pa.int64())], schema=_COUNTER)


def _among(numbers: Longs) -> Waits:
    return lambda table: np.isin(table.column(_NUMBER).to_numpy(), numbers)


def _waiting(tables: Sequence[pa.Table], waits_from: int) -> _Waiting:
    names = (KEY, SIDE, TIME, _ARRIVED, SIZE)
    whole = pa.concat_tables([table.select([_NUMBER, *names]) for table in tables])
    alive = whole.column(_NUMBER).to_numpy() >= waits_from
    return _Waiting(waits_from, *(whole.column(name).to_numpy()[alive] for name in names))


def _goes_on_from(rules: JoinRules, waiting: _Waiting, now_ms: int, *, ends: bool) -> tuple[int, int]:
    """The number of the first event that continues to wait, and how many waits are cut short."""
    count = len(waiting.keys)
    if ends:
        return waiting.behind, 0
    expired = int(np.searchsorted(waiting.arrived_ms, now_ms - rules.window_ms, side="right"))
    from_the_newest = np.cumsum(waiting.sizes[::-1])
    room = min(rules.events_max, int(np.searchsorted(from_the_newest, rules.bytes_max, side="right")))
    forced = max(expired, count - room)
    return waiting.first + forced, forced - expired


def _meetings(rules: JoinRules, waiting: _Waiting, fresh: int) -> tuple[Longs, Longs, int]:
    """The numbers of the left and right events of each pair of this batch, sorted: at least one of the two is new. And
    the number of all close pairs, including those beyond `matches_max`."""
    left, right = np.flatnonzero(waiting.sides == LEFT), np.flatnonzero(waiting.sides == RIGHT)
    new = waiting.first + np.arange(len(waiting.keys)) >= fresh
    came_left, found_right, of_left = _close(rules, waiting, left[new[left]], right)
    came_right, found_left, of_right = _close(rules, waiting, right[new[right]], left[~new[left]])
    lefts, rights = np.concatenate((came_left, found_left)), np.concatenate((found_right, came_right))
    order = np.lexsort((rights, lefts))
    lefts, rights = lefts[order], rights[order]
    few = _few(rules, lefts, rights) & _few(rules, rights, lefts)
    return waiting.first + lefts[few], waiting.first + rights[few], of_left + of_right


def _few(rules: JoinRules, mine: Longs, others: Longs) -> Mask:
    return ranks(mine.astype(np.uint64), others.astype(np.uint64)) < rules.matches_max


def _with_room(waiting: _Waiting, left: Longs, right: Longs) -> Mask:
    """The pairs to make, from sorted pairs; the other events still count as matched."""
    sizes = waiting.sizes[left - waiting.first] + waiting.sizes[right - waiting.first]
    room: Mask = np.cumsum(sizes) <= PAIRS_MAX_BYTES
    return room


def _close(rules: JoinRules, waiting: _Waiting, came: Longs, others: Longs) -> tuple[Longs, Longs, int]:
    """New events, with those of the other side that have the same key and are close in time, of each at most the first
    `matches_max` by time. And the number of all such pairs."""
    if not len(came) or not len(others):
        return came[:0], others[:0], 0
    keys, times = waiting.keys, waiting.times_ms
    others = others[np.lexsort((times[others], keys[others]))]
    # One sort of the other events together with both ends of each new event's time range counts the events before each
    # end.
    words = np.concatenate((keys[came], keys[others], keys[came]))
    moments = np.concatenate((times[came] - rules.window_ms, times[others], times[came] + rules.window_ms))
    kinds = np.repeat([0, 1, 2], [len(came), len(others), len(came)])
    order = np.lexsort((kinds, moments, words))
    before = np.empty(len(order), np.int64)
    before[order] = np.cumsum(kinds[order] == 1)
    starts, ends = before[: len(came)], before[len(came) + len(others) :]
    close = int((ends - starts).sum())
    counts = np.minimum(ends - starts, rules.matches_max)
    counts = np.diff(np.minimum(np.cumsum(counts), _PAIRS_MAX), prepend=0)  # one key may have very many
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(came, counts), others[np.repeat(starts, counts) + offsets], close


def _pairs(rules: JoinRules, tables: Sequence[pa.Table], left: Longs, right: Longs) -> pa.RecordBatch:
    """The left events with the right ones as an attribute. The weight is the larger of both."""
    lefts, rights = _taken(tables, left), _taken(tables, right)
    texts = _with_own_member(lefts.column("attributes"), rules.prefix, event_texts(rights, weights_of(rights)))
    columns = dict(zip(LIVE_SCHEMA.names, lefts.columns, strict=True))
    columns["attributes"] = texts
    columns["event_id"] = pa.nulls(len(left), pa.string())
    columns["weight"] = pa.array(np.maximum(weights_of(lefts), weights_of(rights)))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=LIVE_SCHEMA)


def _taken(tables: Sequence[pa.Table], numbers: Longs) -> pa.RecordBatch:
    """The events with these numbers, repeated as often as they are listed."""
    once, index = np.unique(numbers, return_inverse=True)
    found = rows_where(tables, _among(once))
    assert found is not None, "numbers are those of rows in tables"
    return whole_batch(found.select(LIVE_SCHEMA.names).take(pa.array(index)))


def _with_own_member(attributes: pa.Array, name: str, values: pa.Array) -> pa.Array:
    """JSON objects with this member, which replaces any other with its name."""
    attributes = pc.fill_null(attributes, "{}")
    may_have = pc.match_substring(attributes, f"{_encode(name).decode()}:")
    if pc.any(may_have).as_py():
        texts = [_without(text, name) for text in attributes.filter(may_have).to_pylist()]
        attributes = pc.replace_with_mask(attributes, may_have, pa.array(texts, pa.string()))
    return with_member(attributes, name, values)


def _without(text: str, name: str) -> str:
    tree = _decode(text)
    tree.pop(name, None)
    return _encode(tree).decode()
