"""Recognises events that a sink has had before, by the order of their origins rather than by their ids.

Knows the records of an edge and their keys. Must not know Spark, batches of a delivery or any sink.
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
"""Separates the key of an origin from the part of a record, in the keys of high-water marks."""


def origin_key(edge_stream: str, stream: str, partition: int, generation: str | None = None) -> str:
    """A partition of origin, as one edge has it; for a batch that was pinned again, with its generation."""
    return " ".join((edge_stream, stream, str(partition), *(() if generation is None else (generation,))))


class RecordKeys:
    """The keys of a batch's records. Most have none; a key describes the origin of its event (see `plan.names`)."""

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
        """The generation of each row; null for rows of a first attempt."""
        kept = pc.if_else(
            pa.array(self.generations[rows]), self._keys.take(pa.array(rows)), pa.scalar(None, pa.binary())
        )
        return kept.cast(pa.string())


class RepeatFilter:
    """Recognises repeats, by what was delivered before.

    Records of a partition of origin arrive in order of their offsets, even if an interrupted attempt wrote some of them
    before. So an event is new exactly if its offset is above the highest one seen. Events that a split made of one
    record have the same offset and are adjacent: at the highest offset they are recognised by the ends of their ids.
    """

    def __init__(self, high_water: Mapping[str, int], retried: frozenset[str]) -> None:
        """The state after earlier batches: marks in the form of `high_water`, and retried dead letters."""
        self._before, self._parts_before = _divided(high_water)
        self._retried_before = retried
        self._marks: dict[str, int] = {}
        self._parts: dict[str, set[str]] = {}
        self.retried: list[str] = []
        """Dead letters whose events this task has seen for the first time."""

    @property
    def high_water(self) -> dict[str, int]:
        """Highest offset of origin that this task has seen, by `origin_key`. If events at that offset are parts of a
        record, there is an additional entry for each part."""
        return {**self._marks, **_with_parts(self._marks, self._parts)}

    def fresh(self, table: pa.Table, rows: Index, topics: pa.Array, keys: RecordKeys) -> Mask:
        """Select the events that were not delivered; from now on they count as delivered.

        `table` has `stream`, `partition`, `offset` and `event_id` of the events; `rows` has the row number in the batch
        of each event; `topics` and `keys` have all rows of the batch.
        """
        columns = [topics.take(pa.array(rows)), table.column("stream"), table.column("partition")]
        if keys.generations[rows].any():
            # These follow the records of the first attempt but may be different ones: compare them only with each
            # other.
            columns.append(keys.marks(rows))
        groups, origins = grouped(columns)
        offsets = table.column("offset").to_numpy()
        retries = keys.retries[rows]
        fresh = np.zeros(len(rows), np.bool_)
        for group, origin in enumerate(origins):
            here = np.flatnonzero((groups == group) & ~retries)
            if len(here):
                self._tell(origin_key(*origin), here, offsets[here], table.column("event_id"), fresh)
        # A retried event has an old offset, so it is recognised by its dead letter.
        for at in np.flatnonzero(retries).tolist():
            fresh[at] = self._retry(keys.letter(int(rows[at])))
        return fresh

    def _tell(self, key: str, rows: Index, offsets: npt.NDArray[np.int64], ids: pa.ChunkedArray, fresh: Mask) -> None:
        """Mark the new rows of one origin."""
        floor = self._marks.get(key, self._before.get(key, -1))
        reached = np.maximum.accumulate(np.concatenate(([floor], offsets)))
        before, last = reached[:-1], int(reached[-1])
        fresh[rows] = offsets > before
        # Rows that may be parts of one record, and the offset at which the next batch may bring more parts.
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
    """Merge the earlier state, in the form of `RepeatFilter.high_water`, with what tasks have delivered since."""
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
    """High-water marks by origin, and the parts seen at these marks."""
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
    """The entries for parts; none if the record was not split, as in versions without parts."""
    return {
        f"{origin}{_PART}{part}": marks[origin]
        for origin, found in parts.items()
        if found != {""}
        for part in sorted(found)
    }


def _part_of(event_id: str) -> str:
    """What a split has appended to the id of an event.

    >>> _part_of("web.1:0:7"), _part_of("web.1:0:7.3.12")
    ('', '3.12')
    """
    return event_id.rpartition(":")[2].partition(".")[2]
