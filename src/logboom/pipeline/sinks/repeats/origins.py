"""Which events of an edge's stream a sink has had before: known by the order of their origins, not by their ids.

Knows the records of an edge and the meaning of their keys. Must not know Spark, batches of a delivery or any sink.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.spans import Index, Mask
from logboom.pipeline.plan.names import REPIN_KEY, RETRY_KEY
from logboom.pipeline.sinks.repeats.grouping import grouped

_PART: Final = " #"
"""In a key of a high-water mark, between that of the origin and the part of a record."""


def origin_key(edge_stream: str, stream: str, partition: int, generation: str | None = None) -> str:
    """One partition of origin as one edge sees it, and of a batch that was pinned again its generation."""
    return " ".join((edge_stream, stream, str(partition), *(() if generation is None else (generation,))))


class RecordKeys:
    """The keys of a batch's records: most have none; those of some say what their events are (see `plan.names`)."""

    def __init__(self, keys: pa.Array) -> None:
        self._keys = keys
        self.retries = self._begin_with(RETRY_KEY)
        self.generations = self._begin_with(REPIN_KEY)

    def _begin_with(self, prefix: bytes) -> Mask:
        if self._keys.null_count == len(self._keys):
            return np.zeros(len(self._keys), np.bool_)
        found: Mask = pc.fill_null(pc.starts_with(self._keys, prefix.decode()), False).to_numpy(zero_copy_only=False)
        return found

    def letter(self, row: int) -> str:
        """The dead letter that a retried record came from."""
        key: bytes = self._keys[row].as_py()
        return key.removeprefix(RETRY_KEY).decode(errors="replace")

    def marks(self, rows: Index) -> pa.Array:
        """The generation of each row; null for all that were written at the first attempt."""
        kept = pc.if_else(
            pa.array(self.generations[rows]), self._keys.take(pa.array(rows)), pa.scalar(None, pa.binary())
        )
        return kept.cast(pa.string())


class RepeatFilter:
    """What was delivered before, by which repeats are known.

    The records of a partition of origin come in order of their offsets, also where an attempt that was cut short left
    some of them a first time: so all that is not above the highest offset seen is a repeat. Events that a split made of
    one record have one offset, and follow each other: at the highest offset they are known by the ends of their ids.
    """

    def __init__(self, high_water: Mapping[str, int], retried: frozenset[str]) -> None:
        """What earlier batches delivered: marks as `high_water` has them, and retried dead letters."""
        self._before, self._parts_before = _divided(high_water)
        self._retried_before = retried
        self._marks: dict[str, int] = {}
        self._parts: dict[str, set[str]] = {}
        self.retried: list[str] = []
        """Dead letters whose events this task has seen for the first time."""

    @property
    def high_water(self) -> dict[str, int]:
        """Highest offset of origin that this task has seen, by `origin_key`. Where events at that offset are parts of a
        record, it stands once more for each part, under the key with the part."""
        return {**self._marks, **_with_parts(self._marks, self._parts)}

    def fresh(self, table: pa.Table, rows: Index, topics: pa.Array, keys: RecordKeys) -> Mask:
        """Which events have not been delivered; they count as delivered from now on.

        `table` has `stream`, `partition`, `offset` and `event_id` of the events, `rows` says which row of a batch each
        is; `topics` and `keys` are of the whole batch.
        """
        columns = [topics.take(pa.array(rows)), table.column("stream"), table.column("partition")]
        if keys.generations[rows].any():
            # Its records follow those of the first attempt but may be others: they are compared with their own only.
            columns.append(keys.marks(rows))
        groups, origins = grouped(columns)
        offsets = table.column("offset").to_numpy()
        retries = keys.retries[rows]
        fresh = np.zeros(len(rows), np.bool_)
        for group, origin in enumerate(origins):
            here = np.flatnonzero((groups == group) & ~retries)
            if len(here):
                self._tell(origin_key(*origin), here, offsets[here], table.column("event_id"), fresh)
        # A retried event has an old offset; it is known by the dead letter that it came from.
        for at in np.flatnonzero(retries).tolist():
            fresh[at] = self._retry(keys.letter(int(rows[at])))
        return fresh

    def _tell(self, key: str, rows: Index, offsets: npt.NDArray[np.int64], ids: pa.ChunkedArray, fresh: Mask) -> None:
        """Marks which of the rows of one origin are fresh."""
        floor = self._marks.get(key, self._before.get(key, -1))
        reached = np.maximum.accumulate(np.concatenate(([floor], offsets)))
        before, last = reached[:-1], int(reached[-1])
        fresh[rows] = offsets > before
        # Rows that may be parts of one record, and those that the next batch may bring more parts of.
        asked = np.unique(np.append(offsets[offsets == before], last))
        some = np.flatnonzero((offsets >= before) & np.isin(offsets, asked))
        offset, seen = floor, set(self._parts.get(key, self._parts_before.get(key, {""})))
        named = ids.take(pa.array(rows[some])).to_pylist()
        for row, at, event_id in zip(rows[some].tolist(), offsets[some].tolist(), named, strict=True):
            if at > offset:
                offset, seen = at, set()
            part = _part_of(event_id)
            fresh[row] = part not in seen
            seen.add(part)
        self._marks[key], self._parts[key] = last, seen

    def _retry(self, letter: str) -> bool:
        """Whether the event of a dead letter is delivered for the first time."""
        if letter in self._retried_before or letter in self.retried:
            return False
        self.retried.append(letter)
        return True


def marks_after(before: Mapping[str, int], reports: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """What had been delivered, as `RepeatFilter.high_water` has it, and what tasks have delivered since."""
    marks, parts = _divided(before)
    for report in reports:
        more, more_parts = _divided(report)
        for key, offset in more.items():
            known = marks.get(key, -1)
            if offset > known:
                marks[key], parts[key] = offset, more_parts.get(key, {""})
            elif offset == known:
                parts[key] = parts.get(key, {""}) | more_parts.get(key, {""})
    return {**marks, **_with_parts(marks, parts)}


def _divided(high_water: Mapping[str, int]) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Marks by origin, and the parts at the marks."""
    marks: dict[str, int] = {}
    parts: dict[str, set[str]] = {}
    for key, offset in high_water.items():
        origin, is_part, part = key.partition(_PART)
        if is_part:
            parts.setdefault(origin, set()).add(part)
        else:
            marks[origin] = offset
    return marks, parts


def _with_parts(marks: Mapping[str, int], parts: Mapping[str, set[str]]) -> dict[str, int]:
    """The entries for parts; none where the record alone is there, as before there were parts."""
    return {
        f"{origin}{_PART}{part}": marks[origin]
        for origin, found in parts.items()
        if found != {""}
        for part in sorted(found)
    }


def _part_of(event_id: str) -> str:
    """What a split has added to the id of an event.

    >>> _part_of("web.1:0:7"), _part_of("web.1:0:7.3.12")
    ('', '3.12')
    """
    return event_id.rpartition(":")[2].partition(".")[2]
