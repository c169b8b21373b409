"""How often events were repeated: counts by key and opening time, and an event with the count when the window has
ended.

The counts are metrics in windows (`logboom.pipeline.aggregate`): a window begins when a key is opened, and a group is
the key. Only repeated keys have one.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logboom.pipeline.aggregate.cells import LABELS, Brought, Groups, cells_of_events, column_of, groups_of
from logboom.pipeline.aggregate.made_events import MadeEvent, made_events
from logboom.pipeline.aggregate.measures import Metric, Touched
from logboom.pipeline.aggregate.open_windows import Limit, OpenWindows
from logboom.pipeline.dedupe.seen import Keys

METRICS: Final = (Metric(name="count", kind="count"), Metric(name="last", kind="max", of="time"))


def with_repeats(
    opened: OpenWindows,
    keys: Keys,
    since: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
    labels: pa.Array,
) -> OpenWindows:
    """Adds the repeats of a batch. `since`: by row, when the key was opened; `labels`: the key, as JSON."""
    if not len(keys):
        return opened
    groups = Groups(since, keys.first, keys.second)
    everything, slots = np.ones(len(keys), np.bool_), np.zeros(len(keys), np.int32)
    brought = [
        Brought(0, "sum", everything, Touched(slots, weights)),
        Brought(1, "max", everything, Touched(slots, keys.times.astype(np.float64))),
    ]
    cells = cells_of_events(groups, weights, lambda rows: labels.take(pa.array(rows)).to_pylist(), brought)
    return opened.with_batch(cells, Limit(np.iinfo(np.int64).max, ""))[0]


def ended(opened: OpenWindows, before_us: int, wall_ms: int, code: int) -> tuple[OpenWindows, pa.RecordBatch | None]:
    """Removes the keys that were opened before this time, and returns the events with their counts. `code`: the exit of
    the events."""
    groups, cells = opened.ending(before_us)
    if not groups.num_rows:
        return opened, None
    # Cells are in the order of groups, two of each: count and last time.
    named, numbers = groups_of(cells), column_of(cells, "number")
    texts = dict(zip(_identities(groups_of(groups)), groups.column(LABELS).to_pylist(), strict=True))
    found = sorted(
        (since, texts[since, first, second], count, int(last))
        for (since, first, second), count, last in zip(
            _identities(named.at(np.arange(0, len(numbers), 2))),
            numbers[0::2].tolist(),
            numbers[1::2].tolist(),
            strict=True,
        )
    )
    return opened.ended(groups), _events(found, wall_ms, code)


def _identities(groups: Groups) -> list[tuple[int, int, int]]:
    return list(zip(*(column.tolist() for column in groups), strict=True))


def _events(found: Sequence[tuple[int, str, float, int]], wall_ms: int, code: int) -> pa.RecordBatch:
    events = []
    for since, text, count, last in found:
        key = msgspec.json.decode(text)
        about = {"repeats.count": count, "repeats.first": since, "repeats.last": last, "repeats.key": key}
        events.append(MadeEvent(last, key.get("service"), key.get("host"), key.get("body"), about))
    return made_events(events, wall_ms, code)
