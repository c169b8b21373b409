"""Cells: a number by window, group, metric and slot. An aggregate sends and stores nothing but tables of cells.

A group is known by the fingerprint of its labels. A batch of events becomes one table (ASKED): a cell for each slot
that the events changed, and for each group a cell of the metric GROUP with the group's labels and number of events.
Cells are merged in the order of their rows, so that sums of fractions are the same whenever a batch is repeated. Pure.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logboom.pipeline.aggregate.measures import Metric, Operation, Touched
from logboom.pipeline.state.keys import Words, mixed

GROUP: Final = -1
"""Stands in place of a metric's position: the cell that holds the labels of a group."""
WINDOW, FIRST, SECOND, METRIC, SLOT, NUMBER, LABELS = "window", "first", "second", "metric", "slot", "number", "labels"
CELLS: Final = pa.schema(
    {
        WINDOW: pa.int64(),
        FIRST: pa.uint64(),
        SECOND: pa.uint64(),
        METRIC: pa.int16(),
        SLOT: pa.int32(),
        NUMBER: pa.float64(),
    }
)
ASKED: Final = CELLS.append(pa.field(LABELS, pa.string()))

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_SLOT_BITS: Final = 32


class Groups(NamedTuple):
    """The window and the fingerprint of the labels of some events or cells, by row."""

    window: Longs
    first: Words
    second: Words

    def at(self, rows: Longs | Mask) -> "Groups":
        """Those of some rows."""
        return Groups(self.window[rows], self.first[rows], self.second[rows])

    def words(self) -> Words:
        """A hash of each."""
        return mixed(self.first ^ mixed(self.window.astype(np.uint64)))


class Brought(NamedTuple):
    """The contributions of events to one metric."""

    metric: int
    operation: Operation
    there: Mask
    """Rows of the events that have a value for the metric."""
    touched: Touched
    """By row of these."""


def coded(words: Words, identity: Sequence[npt.NDArray[Any]]) -> tuple[Longs, Longs]:
    """The number of each row's distinct value, in order of first appearance, and the first row of each distinct value.

    `words` is a hash of `identity`, the columns that tell rows apart; rows that differ are told apart whatever their
    hashes are.
    """
    encoded = pa.array(words).dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    firsts = _first_rows(codes, len(encoded.dictionary))
    if all((column == column[firsts][codes]).all() for column in identity):
        return codes, firsts
    rows = np.stack([column.astype(np.uint64) for column in identity])
    _, codes = np.unique(rows, axis=1, return_inverse=True)
    codes = codes.reshape(-1)
    firsts = _first_rows(codes, int(codes.max()) + 1)
    order = np.argsort(firsts)
    return np.argsort(order)[codes], firsts[order]


def _first_rows(codes: Longs, count: int) -> Longs:
    firsts = np.zeros(count, np.int64)
    firsts[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # of equal positions the last write wins
    return firsts


def combined(operation: Operation, codes: Longs, numbers: npt.NDArray[np.float64], count: int) -> Any:
    """For each code, in order from 0: the sum of the numbers of its rows, added in row order, or their minimum or
    maximum."""
    if operation == "sum":
        return np.bincount(codes, weights=numbers, minlength=count)
    found = np.full(count, np.inf if operation == "min" else -np.inf)
    (np.minimum if operation == "min" else np.maximum).at(found, codes, numbers)
    return found


def cells_of_events(
    groups: Groups,
    weights: npt.NDArray[np.float64],
    labels_of: Callable[[Longs], Sequence[str]],
    brought: Sequence[Brought],
) -> pa.Table:
    """The cells of some events, with the columns of ASKED. `labels_of`: the labels of the events of these rows."""
    codes, firsts = coded(groups.words(), groups)
    named = groups.at(firsts)
    count = len(firsts)
    numbers = combined("sum", codes, weights, count)
    found = [_asked(named, GROUP, np.zeros(count, np.int32), numbers, pa.array(labels_of(firsts), pa.string()))]
    for metric, operation, there, touched in brought:
        keys = (codes[there] << _SLOT_BITS) | (touched.slots.astype(np.int64) & (2**_SLOT_BITS - 1))
        encoded = pa.array(keys).dictionary_encode()
        cells = encoded.dictionary.to_numpy()
        numbers = combined(operation, encoded.indices.to_numpy(), touched.numbers, len(cells))
        slots = cells.astype(np.uint32).view(np.int32)
        found.append(_asked(named.at(cells >> _SLOT_BITS), metric, slots, numbers, pa.nulls(len(cells), pa.string())))
    return pa.concat_tables(found).combine_chunks()


def _asked(
    groups: Groups, metric: int, slots: npt.NDArray[np.int32], numbers: npt.NDArray[np.float64], labels: pa.Array
) -> pa.Table:
    position = np.full(len(slots), metric, np.int16)
    columns = [*groups, position, slots, numbers, labels]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=ASKED)


def column_of(table: pa.Table, name: str) -> Any:
    """A column of a table without nulls. A column in a single chunk is not copied."""
    column = table.column(name)
    return column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()


def groups_of(table: pa.Table) -> Groups:
    """The groups of the rows of a table."""
    return Groups(column_of(table, WINDOW), column_of(table, FIRST), column_of(table, SECOND))


def merged(tables: Sequence[pa.Table], metrics: Sequence[Metric]) -> pa.Table:
    """One cell for each window, group, metric and slot, in their order. Cells of groups are left out."""
    whole = pa.concat_tables([CELLS.empty_table(), *(table.select(CELLS.names) for table in tables)])
    if not whole.num_rows:
        return CELLS.empty_table()
    groups = groups_of(whole)
    metric, slot, numbers = (column_of(whole, name) for name in (METRIC, SLOT, NUMBER))
    place = (metric.astype(np.int64) << _SLOT_BITS) | (slot.astype(np.int64) & (2**_SLOT_BITS - 1))
    words = mixed(groups.words() ^ mixed(place.astype(np.uint64)))
    codes, firsts = coded(words, (*groups, metric, slot))
    found = np.zeros(len(firsts))
    operations = np.array([metric.operation for metric in metrics] + ["none"])[metric]  # GROUP, -1, is the last
    for operation in ("sum", "min", "max"):
        mine = operations == operation
        if mine.any():
            of_cells = combined(operation, codes[mine], numbers[mine], len(firsts))
            found = np.where(mine[firsts], of_cells, found)
    kept = np.flatnonzero(metric[firsts] != GROUP)
    firsts, found = firsts[kept], found[kept]
    named, metric, slot = groups.at(firsts), metric[firsts], slot[firsts]
    order = np.lexsort((slot, metric, named.second, named.first, named.window))
    columns = [column[order] for column in (*named, metric, slot, found)]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=CELLS)
