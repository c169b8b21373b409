"""What the inputs hand on: lines that lie one behind the other in one source, with their positions.

It knows bytes and positions only. Lines travel in parallel lists, not as objects, since there may be a million a
second.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Lines(NamedTuple):
    """Whole lines in the order of their source.

    `starts[i]` is the position in bytes of the first byte of `values[i]`; `end` the position behind the last line and
    its newline. `unfinished` holds the indexes of pieces of an over-long line that are not its last piece.
    """

    values: list[bytes]
    starts: list[int]
    end: int
    unfinished: frozenset[int] = frozenset()

    @property
    def size_bytes(self) -> int:
        """Bytes of the values alone."""
        return sum(map(len, self.values))


def concatenate(pieces: Iterable[Lines]) -> Lines | None:
    """One run of lines from several that follow each other; None from nothing."""
    values: list[bytes] = []
    starts: list[int] = []
    unfinished: list[int] = []
    end: int | None = None
    for piece in pieces:
        unfinished.extend(index + len(values) for index in piece.unfinished)
        values.extend(piece.values)
        starts.extend(piece.starts)
        end = piece.end
    return None if end is None else Lines(values, starts, end, frozenset(unfinished))
