"""Contents of records that differ in a few fields of one size each, which are kept as columns.

A burst of one publisher is mostly of that kind: payloads of one size, reply subjects of one size, all else the same.
Its records are put into a batch (`contents.batch_of`) straight from the columns, and no content is ever made alone.
"""

from collections.abc import Sequence
from typing import TypeAlias, overload

Column: TypeAlias = Sequence[bytes]
"""One field of each record, in their order; all are of one size."""


class AlikeContents(Sequence[bytes]):
    """Read as `record_content`s, each of which is made when it is asked for."""

    __slots__ = ("behind", "columns", "content_bytes", "size_bytes", "texts")

    def __init__(self, fields: Sequence[tuple[bytes, Column]], behind: bytes) -> None:
        """`fields`: columns, each with what stands before its cell in every record; `behind`: what stands behind the
        last one's. There is a column, and a record."""
        self.texts = [text for text, _ in fields]
        self.columns = [column for _, column in fields]
        self.behind = behind
        self.content_bytes = len(behind) + sum([len(text) + len(column[0]) for text, column in fields])
        """Of each record."""
        self.size_bytes = self.content_bytes * len(self)
        """Of all of them."""

    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        cells = [text + column[place] for text, column in zip(self.texts, self.columns, strict=True)]
        return b"".join((*cells, self.behind))


def contents_bytes(contents: Sequence[bytes]) -> int:
    """The size of all contents."""
    return contents.size_bytes if isinstance(contents, AlikeContents) else sum(map(len, contents))
