"""The output of a format for a batch: for each record its fields or the reason why it has none, or columns for many
lines with the same fields.

Must not know any format.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Fields = dict[str, Any]
"""Names and values that can be written as JSON."""

Row = Fields | str
"""The fields, or the end of a sentence with the reason of the dead letter."""

Index = npt.NDArray[np.int64]


class FieldColumn(NamedTuple):
    """One field of lines that all have it."""

    name: str
    texts: pa.Array
    """A string array without nulls: the values, or for values without quotes their JSON text."""
    quoted: bool


class LineColumns(NamedTuple):
    """Lines with the same fields in the same order, as columns."""

    rows: Index
    """The positions of these lines in the batch."""
    columns: tuple[FieldColumn, ...]
