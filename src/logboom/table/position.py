"""Where somebody who watches a table is, as a short text to be kept beside what was made of the changes. Pure."""

import re
from typing import Final, NamedTuple, Self

_FORMAT: Final = "1"
_PLACE: Final = re.compile("[=-]")


class Position(NamedTuple):
    """A place in one life of a stream."""

    topic_id: str
    """The identity of the stream: one that was deleted and recreated has another."""
    offsets: dict[int, int]
    """The next offset of each partition."""
    starts: dict[int, int]
    """The first offset of each partition at that time: what was deleted from the log since then left no tombstones."""
    known_at_ms: int
    """Every record at or above the offsets was appended after this moment, in milliseconds since 1970."""

    def __str__(self) -> str:
        places = [f"{index}={offset}-{self.starts.get(index, 0)}" for index, offset in sorted(self.offsets.items())]
        return f"{_FORMAT};{self.topic_id};{self.known_at_ms};{','.join(places)}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The position that a text means. ValueError where it means none.

        >>> Position.parse("1;UQXqhV9tSnCU;1763823000000;0=12-0,1=7-2").offsets
        {0: 12, 1: 7}
        """
        try:
            version, topic_id, known_at_ms, places = text.split(";")
            if version != _FORMAT:
                raise ValueError
            found = [[int(number) for number in _PLACE.split(place)] for place in places.split(",")]
            offsets = {index: offset for index, offset, _ in found}
            return cls(topic_id, offsets, {index: start for index, _, start in found}, int(known_at_ms))
        except ValueError:
            raise ValueError(f"{text!r} is no position of a table") from None
