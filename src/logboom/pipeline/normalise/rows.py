"""What a format gives for a batch: for each record its fields or the reason why it has none, or columns for many lines
that have the same fields.

It knows no format.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Fields = dict[str, Any]
"""Names and values that JSON can write."""

Row = Fields | str
"""The fields, or why the line could not be read: the end of a sentence in a dead letter."""

Index = npt.NDArray[np.int64]


class FieldColumn(NamedTuple):
    """One field of lines that all have it."""

    name: str
    texts: pa.Array
    """A string array without nulls: the values, or where they have no quotes how JSON writes them."""
    quoted: bool


class LineColumns(NamedTuple):
    """Lines with the same fields in the same order, as columns."""

    rows: Index
    """The positions of these lines in the batch."""
    columns: tuple[FieldColumn, ...]
