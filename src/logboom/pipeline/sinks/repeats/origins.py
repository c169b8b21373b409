"""Which events of an edge's stream a sink has had before: known by the order of their origins, not by their ids.

Knows the records of an edge and the meaning of their keys. Must not know Spark, batches of a delivery or any sink.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.event.spans import Index, Mask
from logboom.pipeline.plan.names import REPIN_KEY, RETRY_KEY
from logboom.pipeline.sinks.repeats.grouping import grouped


def origin_key(edge_stream: str, stream: str, partition: int, generation: str | None = None) -> str:
    """One partition of origin as one edge sees it, and of a batch that was pinned anew its generation."""
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
    some of them a first time: so all that is not above the highest offset seen is a repeat.
    """

    def __init__(self, high_water: Mapping[str, int], retried: frozenset[str]) -> None:
        """What earlier batches delivered: the highest offset of origin by `origin_key`, and retried dead letters."""
        self._before = high_water
        self._retried_before = retried
        self.high_water: dict[str, int] = {}
        """Highest offset of origin that this task has seen, by `origin_key`."""
        self.retried: list[str] = []
        """Dead letters whose events this task has seen for the first time."""

    def fresh(self, table: pa.Table, rows: Index, topics: pa.Array, keys: RecordKeys) -> Mask:
        """Which events have not been delivered; they count as delivered from now on.

        `table` has `stream`, `partition` and `offset` of the events, `rows` says which row of a batch each is;
        `topics` and `keys` are of the whole batch.
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
                key = origin_key(*origin)
                floor = self.high_water.get(key, self._before.get(key, -1))
                reached = np.maximum.accumulate(np.concatenate(([floor], offsets[here])))
                fresh[here] = offsets[here] > reached[:-1]
                self.high_water[key] = int(reached[-1])
        # A retried event has an old offset; it is known by the dead letter that it came from.
        for at in np.flatnonzero(retries).tolist():
            fresh[at] = self._retry(keys.letter(int(rows[at])))
        return fresh

    def _retry(self, letter: str) -> bool:
        """Whether the event of a dead letter is delivered for the first time."""
        if letter in self._retried_before or letter in self.retried:
            return False
        self.retried.append(letter)
        return True
