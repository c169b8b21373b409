"""The windows of one shard that are open: which groups they have, and the cells of these.

Groups and cells are kept in tables that do not change. A batch adds one of each; a table that is less than twice as
large as the next one is merged with it (a log-structured merge tree: O'Neil et al., 1996). So the amount written for a
batch depends on the batch, and not on how many windows are open. A group is in one table only, so that the groups of a
window can be counted. A cell may be in several tables; its numbers are then merged.

Windows end in order. Rows of ended windows (those before `ended_us`) are ignored, and are removed when their table is
merged or has no other rows.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.aggregate.cells import (
    ASKED,
    CELLS,
    FIRST,
    GROUP,
    LABELS,
    METRIC,
    NUMBER,
    SECOND,
    WINDOW,
    Groups,
    Longs,
    Mask,
    coded,
    column_of,
    combined,
    groups_of,
    merged,
)
from logboom.pipeline.aggregate.measures import Metric

OVERFLOW: Final = "otel.metric.overflow"
"""The label of the group that counts the events of all groups beyond the limit, named as in OpenTelemetry's SDKs."""
_NONE_ENDED: Final = np.iinfo(np.int64).min
_WORD: Final = "word"
_GROUPS: Final = pa.schema(
    {
        _WORD: pa.uint64(),
        WINDOW: pa.int64(),
        FIRST: pa.uint64(),
        SECOND: pa.uint64(),
        LABELS: pa.string(),
    }
)
_ENDED: Final = pa.schema({"ended_us": pa.int64()})
_encode = msgspec.json.Encoder().encode


class Limit(NamedTuple):
    """How many groups a window of a shard may have."""

    groups_max: int
    shard_label: str
    """Distinguishes the overflow groups of shards."""


class OpenWindows:
    """The state of a shard; it is not changed in place."""

    def __init__(self, metrics: Sequence[Metric], groups: Sequence[pa.Table], cells: Sequence[pa.Table]) -> None:
        self._metrics = metrics
        self._groups, self._cells = tuple(groups), tuple(cells)
        self._ended: pa.Table | None = None

    @classmethod
    def of(cls, metrics: Sequence[Metric], state: Sequence[pa.Table]) -> tuple["OpenWindows", list[pa.Table]]:
        """From the tables of a state. Tables with the columns of ASKED (an earlier version stored no others) are
        returned: the caller adds them to the batch, before its own cells."""

        def of_schema(schema: pa.Schema) -> list[pa.Table]:
            return [table for table in state if table.schema.names == schema.names]

        found = cls(metrics, of_schema(_GROUPS), of_schema(CELLS))
        for table in of_schema(_ENDED):
            found._ended = table
        return found, of_schema(ASKED)

    def state(self) -> tuple[pa.Table, ...]:
        """The tables to store; unchanged ones are the same objects."""
        ended = () if self._ended is None or not (self._groups or self._cells) else (self._ended,)
        return (*self._groups, *self._cells, *ended)

    @property
    def ended_us(self) -> int:
        """Windows that begin before it have ended."""
        return _NONE_ENDED if self._ended is None else int(column_of(self._ended, "ended_us")[0])

    def count(self) -> int:
        """How many groups are open, over all windows."""
        return sum(int((column_of(table, WINDOW) >= self.ended_us).sum()) for table in self._groups)

    # --- a batch -----------------------------------------------------------------------------------------------------

    def with_batch(self, asked: pa.Table, limit: Limit) -> tuple["OpenWindows", float]:
        """The state after adding the cells of a batch, and the number of events whose groups exceeded the limit."""
        if not asked.num_rows:
            return self, 0.0
        rows = groups_of(asked)
        if int(rows.window.min()) < self.ended_us:  # the lateness was raised: ended windows begin again
            return self._without_left_over().with_batch(asked, limit)
        is_group = column_of(asked, METRIC) == GROUP
        codes, firsts = coded(rows.words(), rows)
        named = rows.at(firsts)
        numbers = np.where(is_group, column_of(asked, NUMBER), 0.0)
        fresh = ~self._known(named)
        over = self._over(named, fresh, limit)
        overflowed = float(combined("sum", codes, numbers, len(firsts))[over].sum())
        texts = asked.column(LABELS).filter(pa.array(is_group)).to_pylist()
        labels: list[str] = [""] * len(firsts)
        for code, text in zip(codes[is_group].tolist(), texts, strict=True):
            labels[code] = labels[code] or text
        more = _group_table(named.at(fresh & ~over), [labels[code] for code in np.flatnonzero(fresh & ~over)])
        if over.any():
            more = _merged_groups([more, self._overflow_groups(np.unique(named.window[over]), limit)], _NONE_ENDED)
            gone = pa.array(over[codes])
            for name in (FIRST, SECOND):
                zero = pc.if_else(gone, pa.scalar(0, pa.uint64()), asked.column(name))
                asked = asked.set_column(ASKED.get_field_index(name), ASKED.field(name), zero)
        return self._with(more, merged([asked], self._metrics)), overflowed

    def _known(self, groups: Groups) -> Mask:
        """Which of the groups are open."""
        known = np.zeros(len(groups.window), np.bool_)
        words = groups.words()
        for table in self._groups:
            at = np.searchsorted(column_of(table, _WORD), words)
            at[at == table.num_rows] = 0
            there = groups_of(table).at(at)
            known |= (there.window == groups.window) & (there.first == groups.first) & (there.second == groups.second)
        return known

    def _over(self, groups: Groups, fresh: Mask, limit: Limit) -> Mask:
        """Which of the new groups exceed the limit of their window; earlier groups have priority."""
        over = np.zeros(len(fresh), np.bool_)
        if sum(table.num_rows for table in self._groups) + int(fresh.sum()) <= limit.groups_max:
            return over
        windows = np.unique(groups.window)
        taken = np.zeros(len(windows), np.int64)
        for table in self._groups:
            there, first = column_of(table, WINDOW), column_of(table, FIRST)
            at = np.searchsorted(windows, there)
            at[at == len(windows)] = 0
            taken += np.bincount(at[(windows[at] == there) & (first != 0)], minlength=len(windows))
        rows = np.flatnonzero(fresh & (groups.first != 0))
        rows = rows[np.argsort(groups.window[rows], kind="stable")]
        starts = np.searchsorted(groups.window[rows], groups.window[rows], side="left")
        place = np.arange(len(rows)) - starts + taken[np.searchsorted(windows, groups.window[rows])]
        over[rows[place >= limit.groups_max]] = True
        return over

    def _overflow_groups(self, windows: Longs, limit: Limit) -> pa.Table:
        """The overflow groups of these windows, as far as they are not open yet."""
        nothing = np.zeros(len(windows), np.uint64)
        groups = Groups(windows, nothing, nothing)
        fresh = groups.at(~self._known(groups))
        label = _encode({OVERFLOW: "true", "shard": limit.shard_label}).decode()
        return _group_table(fresh, [label] * len(fresh.window))

    def _with(self, groups: pa.Table, cells: pa.Table) -> "OpenWindows":
        ended = self.ended_us
        return self._changed(
            _levels(self._groups, groups, lambda tables: _merged_groups(tables, ended)),
            _levels(self._cells, cells, lambda tables: self._merged_cells(tables, ended)),
        )

    def _merged_cells(self, tables: Sequence[pa.Table], since_us: int) -> pa.Table:
        return merged([_between(table, since_us, None) for table in tables], self._metrics)

    def _changed(self, groups: Sequence[pa.Table], cells: Sequence[pa.Table]) -> "OpenWindows":
        found = OpenWindows(self._metrics, groups, cells)
        found._ended = self._ended
        return found

    def _without_left_over(self) -> "OpenWindows":
        """Without any rows of ended windows."""
        ended = self.ended_us
        groups, cells = _merged_groups(self._groups, ended), self._merged_cells(self._cells, ended)
        return OpenWindows(self._metrics, _filled([groups]), _filled([cells]))

    # --- windows that end --------------------------------------------------------------------------------------------

    def ending(self, before_us: int) -> tuple[pa.Table, pa.Table]:
        """Groups (`window`, `first`, `second`, `labels`) and cells of the open windows that begin before it."""
        since, found = self.ended_us, []
        for table in self._groups:
            windows = column_of(table, WINDOW)
            found.append(table.filter(pa.array((windows >= since) & (windows < before_us))))
        groups = pa.concat_tables([_GROUPS.empty_table(), *found]).combine_chunks()
        if not groups.num_rows:
            return groups, CELLS.empty_table()
        return groups, merged([_between(table, since, before_us) for table in self._cells], self._metrics)

    def ended(self, groups: pa.Table) -> "OpenWindows":
        """Without the windows of these groups, which `ending` has given."""
        if not groups.num_rows:
            return self
        ended = int(column_of(groups, WINDOW).max()) + 1
        found = OpenWindows(
            self._metrics,
            [table for table in self._groups if int(column_of(table, WINDOW).max()) >= ended],
            [table for table in self._cells if int(column_of(table, WINDOW)[-1]) >= ended],
        )
        found._ended = pa.Table.from_arrays([pa.array([ended])], schema=_ENDED)
        return found


def _group_table(groups: Groups, labels: Sequence[str]) -> pa.Table:
    columns = [groups.words(), *groups, pa.array(labels, pa.string())]
    return _in_order(pa.Table.from_arrays([pa.array(column) for column in columns], schema=_GROUPS))


def _in_order(groups: pa.Table) -> pa.Table:
    order = np.argsort(column_of(groups, _WORD), kind="stable")
    return groups.take(pa.array(order)).combine_chunks()


def _merged_groups(tables: Sequence[pa.Table], since_us: int) -> pa.Table:
    whole = pa.concat_tables([_GROUPS.empty_table(), *tables]).combine_chunks()
    alive = column_of(whole, WINDOW) >= since_us
    return _in_order(whole if alive.all() else whole.filter(pa.array(alive)))


def _between(cells: pa.Table, since_us: int, before_us: int | None) -> pa.Table:
    """The cells of windows that begin in this time, without copying them."""
    windows = column_of(cells, WINDOW)
    first = int(np.searchsorted(windows, since_us))
    end = cells.num_rows if before_us is None else int(np.searchsorted(windows, before_us))
    return cells.slice(first, max(0, end - first))


def _levels(
    tables: Sequence[pa.Table], fresh: pa.Table, merge: Callable[[Sequence[pa.Table]], pa.Table]
) -> Sequence[pa.Table]:
    if not fresh.num_rows:
        return tables
    kept = [*tables, fresh]
    while len(kept) > 1 and kept[-2].num_rows < 2 * kept[-1].num_rows:
        newer, older = kept.pop(), kept.pop()
        kept += _filled([merge([older, newer])])
    return kept


def _filled(tables: Sequence[pa.Table]) -> list[pa.Table]:
    return [table for table in tables if table.num_rows]
