"""What every format gives for a batch: per record either its fields or the reason why it has none. Lines of one form
may come as columns instead.

It knows that much and no format.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Fields = dict[str, Any]
"""Names and values that JSON can write."""

Row = Fields | str
"""The fields, or why the line could not be read: the end of a sentence for a person."""

Index = npt.NDArray[np.int64]


class CutColumn(NamedTuple):
    """One field of lines that all have it."""

    name: str
    texts: pa.Array
    """A string array without nulls: the values, or where they have no quotes how JSON writes them."""
    quoted: bool


class Cut(NamedTuple):
    """Lines with the same fields in the same order, as columns."""

    rows: Index
    """Which of the batch's."""
    columns: tuple[CutColumn, ...]
