"""Rows that wait for a later batch, as a list of tables. Most tables are written to disk once and later dropped as a
whole.

Rows wait for similar times, so the oldest table usually becomes empty first. A table is rebuilt only if most of its
rows are gone, or if there are too many tables. Knows Arrow. Must not know what rows wait for.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from logboom.pipeline.stateful.grouping import Mask

TABLES_MAX: Final = 12
"""If there are more tables, they are merged, the smallest first."""

Waits = Callable[[pa.Table], Mask]
"""For each row of a table: whether it still waits."""


def still_held(tables: Sequence[pa.Table], waits: Waits) -> tuple[pa.Table, ...]:
    """Remove rows that no longer wait, if rebuilding a table is worth it. Keeps the order of rows."""
    kept: list[pa.Table] = []
    for table in tables:
        waiting = waits(table)
        count = int(waiting.sum())
        if count:
            kept.append(table if 2 * count >= table.num_rows else _only(table, waiting))
    while len(kept) > TABLES_MAX:
        at = min(range(len(kept) - 1), key=lambda at: kept[at].num_rows + kept[at + 1].num_rows)
        both = pa.concat_tables(kept[at : at + 2])
        kept[at : at + 2] = [_only(both, waits(both))]
    return tuple(kept)


def rows_where(tables: Sequence[pa.Table], wanted: Waits) -> pa.Table | None:
    """The wanted rows of all tables, in order; None if there is no table."""
    return pa.concat_tables([_only(table, wanted(table)) for table in tables]) if tables else None


def _only(table: pa.Table, rows: Mask) -> pa.Table:
    if rows.all():
        return table.combine_chunks()
    return table.take(pa.array(np.flatnonzero(rows))).combine_chunks()
