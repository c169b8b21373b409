"""Events of two sides that have the same key and are close in time, brought together: the work of `join`.

Each event waits for `window_ms` from its arrival on, and meets what comes of the other side meanwhile, or waits there
already. Those that met nobody leave as they came.

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
from logboom.pipeline.keyed.columns import Longs, Mask, Words, ranks, weights_of
from logboom.pipeline.keyed.held import Waits, rows_where, still_held

KEY: Final = "key_word"
"""Of the rows that are given: the hash of the key."""
SIDE: Final = "side"
"""LEFT or RIGHT."""
TIME: Final = "time_ms"
SIZE: Final = "size_bytes"
LEFT, RIGHT = 0, 1
ROWS: Final = pa.schema([*LIVE_SCHEMA, (KEY, pa.uint64()), (SIDE, pa.int64()), (TIME, pa.int64()), (SIZE, pa.int64())])
"""What is given."""

PAIRS_MAX_BYTES: Final = 256 * MIB
"""How large the pairs of a shard may be in one batch. JSON takes up to six times that, and an Arrow array 2 GiB."""
_PAIRS_MAX: Final = PAIRS_MAX_BYTES // 128
"""There is room for no more of the smallest: an event has 64 bytes at least (`columns.sizes_of`)."""
_NUMBER, _ARRIVED = "number", "arrived_ms"
_COUNTER: Final = pa.schema([("next", pa.int64()), ("waits_from", pa.int64())])
_MET: Final = pa.schema([("number", pa.int64())])
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class JoinRules:
    """Who meets whom."""

    window_ms: int
    """How long an event waits, and how far apart the times of two may be."""
    matches_max: int
    """With how many of the other side an event is joined at most in one batch."""
    prefix: str
    """The attribute of the joined event that holds the right one."""
    events_max: int
    bytes_max: int


class Joined(NamedTuple):
    """What has met, and what waits no longer."""

    pairs: pa.RecordBatch | None
    """New events."""
    alone: pa.Table
    """Those that met nobody, with their SIDE."""
    met: int
    """How many that have met others wait no longer."""
    state: tuple[pa.Table, ...]
    held: int
    early: int
    """How many ceased to wait before their time, since too much was held."""
    cut: int
    """How many pairs were not made, since one event has met too many others or there is no room for them."""


class _Waiting(NamedTuple):
    """What is known of the events that wait, in the order in which they came; each has the number behind the last."""

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
    """Takes the rows of a batch. `ends`: nothing waits any longer."""
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
    """The number of the first event that goes on waiting, and how many have to stop before their time."""
    count = len(waiting.keys)
    if ends:
        return waiting.behind, 0
    expired = int(np.searchsorted(waiting.arrived_ms, now_ms - rules.window_ms, side="right"))
    from_the_newest = np.cumsum(waiting.sizes[::-1])
    room = min(rules.events_max, int(np.searchsorted(from_the_newest, rules.bytes_max, side="right")))
    forced = max(expired, count - room)
    return waiting.first + forced, forced - expired


def _meetings(rules: JoinRules, waiting: _Waiting, fresh: int) -> tuple[Longs, Longs, int]:
    """The numbers of left and right events that meet in this batch, in order: at least one of two has just come. And
    how many pairs there are of all that are close, also of those that have met `matches_max` others."""
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
    """Of pairs in order, those that are made; the others have met all the same."""
    sizes = waiting.sizes[left - waiting.first] + waiting.sizes[right - waiting.first]
    room: Mask = np.cumsum(sizes) <= PAIRS_MAX_BYTES
    return room


def _close(rules: JoinRules, waiting: _Waiting, came: Longs, others: Longs) -> tuple[Longs, Longs, int]:
    """Events that came, with those of the other side that have the same key and are close in time: of these the first
    `matches_max` by time. And how many they are with all others."""
    if not len(came) or not len(others):
        return came[:0], others[:0], 0
    keys, times = waiting.keys, waiting.times_ms
    others = others[np.lexsort((times[others], keys[others]))]
    # One sort of the others and of both ends of what each event looks for tells how many stand before each end.
    words = np.concatenate((keys[came], keys[others], keys[came]))
    moments = np.concatenate((times[came] - rules.window_ms, times[others], times[came] + rules.window_ms))
    kinds = np.repeat([0, 1, 2], [len(came), len(others), len(came)])
    order = np.lexsort((kinds, moments, words))
    before = np.empty(len(order), np.int64)
    before[order] = np.cumsum(kinds[order] == 1)
    starts, ends = before[: len(came)], before[len(came) + len(others) :]
    close = int((ends - starts).sum())
    counts = np.minimum(ends - starts, rules.matches_max)
    counts = np.diff(np.minimum(np.cumsum(counts), _PAIRS_MAX), prepend=0)  # of one key there may be very many
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(came, counts), others[np.repeat(starts, counts) + offsets], close


def _pairs(rules: JoinRules, tables: Sequence[pa.Table], left: Longs, right: Longs) -> pa.RecordBatch:
    """The left events with the right ones as an attribute, as heavy as the heavier of both."""
    lefts, rights = _taken(tables, left), _taken(tables, right)
    texts = _with_own_member(lefts.column("attributes"), rules.prefix, event_texts(rights, weights_of(rights)))
    columns = dict(zip(LIVE_SCHEMA.names, lefts.columns, strict=True))
    columns["attributes"] = texts
    columns["event_id"] = pa.nulls(len(left), pa.string())
    columns["weight"] = pa.array(np.maximum(weights_of(lefts), weights_of(rights)))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=LIVE_SCHEMA)


def _taken(tables: Sequence[pa.Table], numbers: Longs) -> pa.RecordBatch:
    """The events of these numbers, as often as they are named."""
    once, index = np.unique(numbers, return_inverse=True)
    found = rows_where(tables, _among(once))
    assert found is not None, "numbers are those of rows in tables"
    return whole_batch(found.select(LIVE_SCHEMA.names).take(pa.array(index)))


def _with_own_member(attributes: pa.Array, name: str, values: pa.Array) -> pa.Array:
    """The objects with this member in place of any other of its name."""
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
