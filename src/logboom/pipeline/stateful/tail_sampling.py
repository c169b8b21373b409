"""Decides about whole traces after a wait for their events: the algorithm of `tail_sample`.

A trace is open from its first event. After `wait_ms`, or earlier if too many events are held, it is decided: kept with
its weight if a rule says so, otherwise sampled by its hash, which multiplies its weight by the rate. Later events with
the same id start another trace. But those of a trace that was kept by a rule are also kept for a while.

Knows Arrow and hashes. Must not know how rules are written.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.plan.sampling import BITS, SPACE
from logboom.pipeline.stateful.grouping import Longs, Mask, Weights, Words, found_at, salted, weights_of
from logboom.pipeline.stateful.held_rows import Waits, rows_where, still_held

TRACE: Final = "trace_word"
"""Input column: the hash of the trace."""
KEEPS: Final = "keeps"
"""Input column: whether a rule keeps the trace of this event."""
SIZE: Final = "size_bytes"
TIME: Final = "time_ms"
RARE: Final = "rare_word"
"""Input column: the hash of a value that may be rare; 0 if there is none."""

ALONE: Final = "alone"
"""Input column: whether the event is a trace of its own, without a wait."""
ROWS: Final = pa.schema(
    [
        *LIVE_SCHEMA,
        (TRACE, pa.uint64()),
        (ALONE, pa.bool_()),
        (KEEPS, pa.bool_()),
        (SIZE, pa.int64()),
        (TIME, pa.int64()),
        (RARE, pa.uint64()),
    ]
)
"""The columns of the input."""

_ARRIVED: Final = "arrived_ms"
_OPEN: Final = pa.schema(
    [
        ("trace", pa.uint64()),
        ("since_ms", pa.int64()),
        ("events", pa.int64()),
        ("bytes", pa.int64()),
        ("first_ms", pa.int64()),
        ("last_ms", pa.int64()),
        ("keeps", pa.bool_()),
    ]
)
_KEPT: Final = pa.schema([("trace", pa.uint64()), ("until_ms", pa.int64())])
_SEEN: Final = pa.schema([("word", pa.uint64()), ("window_ms", pa.int64()), ("traces", pa.int64())])
_KEPT_MAX: Final = 100_000
_SEEN_MAX: Final = 100_000
_FOLLOW_MS: Final = 300_000
"""How long late events of a trace that was kept by a rule are kept."""
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class TailRules:
    """The settings for decisions."""

    name: str
    """Salt of the hash, so that the choice is independent of an earlier sample."""
    wait_ms: int
    rate: float
    """Keep one in this many of the traces that no rule keeps; 0: none."""
    slower_ms: int | None
    """A trace whose events span more time than this is kept."""
    rare: int
    """The first traces per minute of each rare value are kept, up to this number."""
    events_max: int
    bytes_max: int


class Decided(NamedTuple):
    """The result for the traces of a batch."""

    rows: pa.Table | None
    """The events of decided traces that were kept, and late events of kept traces."""
    stays: Mask
    weights: Weights
    state: tuple[pa.Table, ...]
    held: int
    opened: int
    """Number of open traces."""
    early: int
    """Number of traces that were decided early because too many events were held."""


def advance(
    rules: TailRules, state: tuple[pa.Table, ...], rows: pa.Table, now_ms: int, *, ends: bool = False
) -> Decided:
    """Process the rows of a batch, and decide what is due. `ends`: decide everything."""
    opened, kept, seen, *tables = state or (_OPEN.empty_table(), _KEPT.empty_table(), _SEEN.empty_table())
    kept = _unexpired(kept, now_ms)
    late = np.isin(rows.column(TRACE).to_numpy(), kept.column("trace").to_numpy())
    late_rows, fresh = rows.filter(pa.array(late)), rows.filter(pa.array(~late))
    if fresh.num_rows:
        tables.append(fresh.append_column(_ARRIVED, pa.array(np.full(fresh.num_rows, now_ms))).combine_chunks())
        opened = _with_rows(rules, opened, fresh, now_ms)
    due, early = _due(rules, opened, now_ms, ends=ends)
    closed = opened.filter(pa.array(due))
    opened = opened.filter(pa.array(~due)) if due.any() else opened
    found = rows_where(tables, _rows_of(closed)) if closed.num_rows else None
    by_rule, seen = _kept_by_rule(rules, closed, found, seen, now_ms)
    gone: Words = closed.column("trace").to_numpy()
    factors = _factors(rules, gone, by_rule)
    after = (opened, _with_kept(kept, gone[by_rule], now_ms), seen, *still_held(tables, _rows_of(opened)))
    held = int(np.sum(opened.column("events").to_numpy()))
    leaving = [part for part in (found, late_rows) if part is not None and part.num_rows]
    if not leaving:
        return Decided(None, np.zeros(0, np.bool_), np.zeros(0), after, held, opened.num_rows, early)
    whole = pa.concat_tables([part.select(rows.schema.names) for part in leaving])
    grown = np.ones(whole.num_rows)
    if found is not None:
        grown[: found.num_rows] = factors[found_at(gone, found.column(TRACE).to_numpy())[0]]
    return Decided(whole, grown > 0, weights_of(whole) * grown, after, held, opened.num_rows, early)


def _rows_of(open_traces: pa.Table) -> Waits:
    """The rows of these traces. A trace may have been decided and opened again while an older row of it is still in a
    table; that row came before the new opening."""
    traces, since = open_traces.column("trace").to_numpy(), open_traces.column("since_ms").to_numpy()

    def rows(table: pa.Table) -> Mask:
        places, there = found_at(traces, table.column(TRACE).to_numpy())
        if len(traces):
            there &= table.column(_ARRIVED).to_numpy() >= since[places]
        return there

    return rows


def _unexpired(kept: pa.Table, now_ms: int) -> pa.Table:
    alive = kept.column("until_ms").to_numpy() > now_ms
    return kept if alive.all() else kept.filter(pa.array(alive))


def _with_rows(rules: TailRules, opened: pa.Table, rows: pa.Table, now_ms: int) -> pa.Table:
    """The open traces including these events, sorted by hash."""
    words, times = rows.column(TRACE).to_numpy(), rows.column(TIME).to_numpy()
    traces, index = np.unique(np.concatenate((opened.column("trace").to_numpy(), words)), return_inverse=True)
    old, new = index[: opened.num_rows], index[opened.num_rows :]
    count = len(traces)
    since, first = np.full(count, now_ms), np.full(count, np.iinfo(np.int64).max)
    last, keeps = np.full(count, np.iinfo(np.int64).min), np.zeros(count, np.bool_)
    events, size = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for name, values in (("since_ms", since), ("events", events), ("bytes", size), ("first_ms", first)):
        values[old] = opened.column(name).to_numpy()
    last[old], keeps[old] = opened.column("last_ms").to_numpy(), opened.column("keeps").to_numpy()
    events += np.bincount(new, minlength=count)
    np.add.at(size, new, rows.column(SIZE).to_numpy())
    alone = new[rows.column(ALONE).to_numpy()]
    since[alone] = now_ms - rules.wait_ms
    np.minimum.at(first, new, times)
    np.maximum.at(last, new, times)
    np.logical_or.at(keeps, new, rows.column(KEEPS).to_numpy())
    columns = (traces, since, events, size, first, last, keeps)
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=_OPEN)


def _due(rules: TailRules, opened: pa.Table, now_ms: int, *, ends: bool) -> tuple[Mask, int]:
    """Which open traces are due, and how many of them early."""
    since: Longs = opened.column("since_ms").to_numpy()
    due = np.full(len(since), True) if ends else since + rules.wait_ms <= now_ms
    events, size = opened.column("events").to_numpy(), opened.column("bytes").to_numpy()
    waiting = np.flatnonzero(~due)
    oldest_last = waiting[np.argsort(-since[waiting], kind="stable")]
    over = (np.cumsum(events[oldest_last]) > rules.events_max) | (np.cumsum(size[oldest_last]) > rules.bytes_max)
    early = oldest_last[over]
    due[early] = True
    return due, len(early)


def _kept_by_rule(
    rules: TailRules, closed: pa.Table, found: pa.Table | None, seen: pa.Table, now_ms: int
) -> tuple[Mask, pa.Table]:
    """For each decided trace, whether a rule keeps it; and the updated counts of rare values."""
    kept: Mask = closed.column("keeps").to_numpy().copy()
    if rules.slower_ms is not None:
        kept |= closed.column("last_ms").to_numpy() - closed.column("first_ms").to_numpy() >= rules.slower_ms
    if not rules.rare or found is None:
        return kept, seen
    window_ms = now_ms - now_ms % _MINUTE_MS
    here = seen.column("window_ms").to_numpy() == window_ms
    known, counts = seen.column("word").to_numpy()[here], seen.column("traces").to_numpy()[here]
    words, of = (
        found.column(RARE).to_numpy(),
        found_at(closed.column("trace").to_numpy(), found.column(TRACE).to_numpy())[0],
    )
    pairs = np.unique(np.stack((words[words != 0], of[words != 0].astype(np.uint64))), axis=1)
    names, index, fresh = np.unique(pairs[0], return_inverse=True, return_counts=True)
    places, there = found_at(known, names)
    before = np.where(there, counts[places], 0) if len(known) else np.zeros(len(names), np.int64)
    starts = np.cumsum(fresh) - fresh
    rank = np.arange(len(index)) - starts[index]  # pairs are sorted by value, then by trace
    kept[pairs[1][before[index] + rank < rules.rare].astype(np.int64)] = True
    rest = np.setdiff1d(np.arange(len(known)), places[there])
    words_now, counts_now = np.concatenate((known[rest], names)), np.concatenate((counts[rest], before + fresh))
    most = np.argsort(-counts_now, kind="stable")[:_SEEN_MAX]
    most = most[np.argsort(words_now[most])]
    columns = (words_now[most], np.full(len(most), window_ms), counts_now[most])
    return kept, pa.Table.from_arrays([pa.array(column) for column in columns], schema=_SEEN)


def _factors(rules: TailRules, traces: Words, by_rule: Mask) -> Weights:
    """The factor of each trace's weight; 0 for dropped ones."""
    if not rules.rate:
        return np.where(by_rule, 1.0, 0.0)
    drawn = salted(traces, rules.name) >> np.uint64(64 - BITS) < np.uint64(int(SPACE / rules.rate))
    return np.where(by_rule, 1.0, np.where(drawn, rules.rate, 0.0))


def _with_kept(kept: pa.Table, traces: Words, now_ms: int) -> pa.Table:
    """Traces whose late events are kept, oldest first."""
    if not len(traces):
        return kept
    more = pa.Table.from_arrays([pa.array(traces), pa.array(np.full(len(traces), now_ms + _FOLLOW_MS))], schema=_KEPT)
    both = pa.concat_tables([kept, more]).combine_chunks()
    return both.slice(max(0, both.num_rows - _KEPT_MAX)).combine_chunks()
