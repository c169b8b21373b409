"""Traces that are decided as a whole, once their events have had time to come: the work of `tail_sample`.

A trace is open from its first event on. After `wait_ms`, or earlier where too much is held, it is decided: kept at its
weight where a rule says so, else by its hash at a rate, which its weight grows by. Events that come behind that begin
another trace, but for those of a trace that a rule has kept, which follow it for a while.

Knows Arrow and hashes. Must not know how rules are written.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.keyed.columns import Longs, Mask, Weights, Words, found_at, salted, weights_of
from logboom.pipeline.keyed.held import Waits, rows_where, still_held
from logboom.pipeline.plan.sampling import BITS, SPACE

TRACE: Final = "trace_word"
"""Of the rows that are given: the hash of the trace."""
KEEPS: Final = "keeps"
"""Whether a rule keeps the trace of this event."""
SIZE: Final = "size_bytes"
TIME: Final = "time_ms"
RARE: Final = "rare_word"
"""The hash of what may be rare; 0 if there is nothing."""

ALONE: Final = "alone"
"""Whether the event is a trace of its own, which nothing is waited for."""
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
"""What is given."""

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
"""How long events of a trace that was kept by a rule are kept when they come late."""
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class TailRules:
    """How traces are decided."""

    name: str
    """Salt of the hash, so that an earlier sample's choice says nothing about this one."""
    wait_ms: int
    rate: float
    """One in this many of the traces that no rule keeps; 0 for none."""
    slower_ms: int | None
    """A trace whose events are further apart is kept."""
    rare: int
    """The first so many traces a minute of each of what may be rare are kept."""
    events_max: int
    bytes_max: int


class Decided(NamedTuple):
    """What has become of traces in a batch."""

    rows: pa.Table | None
    """The events of the traces that were decided, and those that came late to a kept one."""
    stays: Mask
    weights: Weights
    state: tuple[pa.Table, ...]
    held: int
    opened: int
    """How many traces are not decided."""
    early: int
    """How many traces were decided before their time, since too much was held."""


def advance(
    rules: TailRules, state: tuple[pa.Table, ...], rows: pa.Table, now_ms: int, *, ends: bool = False
) -> Decided:
    """Takes the rows of a batch, and decides what is due. `ends`: everything is."""
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
    """The rows of these traces. Of a trace that was decided and has started over, an older row may still stand in a
    table; it came before the trace was opened again."""
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
    """The open traces with these events, in the order of their hashes."""
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
    """Which open traces are to be decided, and how many of them before their time."""
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
    """By closed trace: whether a rule keeps it; and what has been seen of what may be rare."""
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
    rank = np.arange(len(index)) - starts[index]  # pairs are in the order of words, then of traces
    kept[pairs[1][before[index] + rank < rules.rare].astype(np.int64)] = True
    rest = np.setdiff1d(np.arange(len(known)), places[there])
    words_now, counts_now = np.concatenate((known[rest], names)), np.concatenate((counts[rest], before + fresh))
    most = np.argsort(-counts_now, kind="stable")[:_SEEN_MAX]
    most = most[np.argsort(words_now[most])]
    columns = (words_now[most], np.full(len(most), window_ms), counts_now[most])
    return kept, pa.Table.from_arrays([pa.array(column) for column in columns], schema=_SEEN)


def _factors(rules: TailRules, traces: Words, by_rule: Mask) -> Weights:
    """By trace what its weight grows by; 0 for those that are dropped."""
    if not rules.rate:
        return np.where(by_rule, 1.0, 0.0)
    drawn = salted(traces, rules.name) >> np.uint64(64 - BITS) < np.uint64(int(SPACE / rules.rate))
    return np.where(by_rule, 1.0, np.where(drawn, rules.rate, 0.0))


def _with_kept(kept: pa.Table, traces: Words, now_ms: int) -> pa.Table:
    """Those that late events follow, oldest first."""
    if not len(traces):
        return kept
    more = pa.Table.from_arrays([pa.array(traces), pa.array(np.full(len(traces), now_ms + _FOLLOW_MS))], schema=_KEPT)
    both = pa.concat_tables([kept, more]).combine_chunks()
    return both.slice(max(0, both.num_rows - _KEPT_MAX)).combine_chunks()
