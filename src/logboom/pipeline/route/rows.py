"""Rows on their way through a batch: Arrow columns, and the place of each row, or copy of a row.

Knows Arrow and places as numbers. Must not know transforms, Spark, or what a place means. Copies share the columns of
the row they were made of until plain columns are asked for.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

AT: Final = "at"
"""Column that holds the place of a row wherever rows travel as plain columns."""
WEIGHT: Final = "weight"

Index = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a batch in the order of the batch, each once or several times."""

    batch: pa.RecordBatch
    """Without `at`."""
    at: Places
    index: Index | None = None
    """By row: which of the batch's; None if it is each of them once."""
    own_weights: Weights | None = None
    """By row, where they differ from the batch's."""

    def __len__(self) -> int:
        return len(self.at)

    @property
    def of_batch(self) -> Index:
        """By row: which of the batch's."""
        return np.arange(self.batch.num_rows) if self.index is None else self.index

    @property
    def weights(self) -> Weights:
        """By row."""
        if self.own_weights is not None:
            return self.own_weights
        weights: Weights = self.batch.column(WEIGHT).to_numpy(zero_copy_only=False)
        # Dead rows have none, and count as one record each.
        weights = np.where(np.isnan(weights), 1.0, weights)
        return weights if self.index is None else weights[self.index]

    def flat(self) -> pa.RecordBatch:
        """Plain columns, `at` behind the others."""
        batch = self.batch if self.index is None else self.batch.take(pa.array(self.index))
        if self.own_weights is not None:
            position = batch.schema.get_field_index(WEIGHT)
            batch = batch.set_column(position, WEIGHT, pa.array(self.own_weights))
        return batch.append_column(AT, pa.array(self.at, pa.int32()))


def rows_of(flat: pa.RecordBatch) -> Rows:
    """The reverse of `Rows.flat`."""
    position = flat.schema.get_field_index(AT)
    return Rows(flat.remove_column(position), flat.column(position).to_numpy(zero_copy_only=False))
