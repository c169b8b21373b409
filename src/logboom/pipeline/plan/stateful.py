"""Transforms with state from one batch to the next, and their interface to the runner.

A batch at such a transform has three steps, all on executors:

1. `ask`, for the rows of each part (a part holds whole partitions of origin, in order): returns which rows a shard must
   process, with which columns, and the hash of the key that selects the shard. The number of shards is fixed and stored
   in the checkpoint, so that cores and executors may change.
2. `advance`, once for each shard. Input: the rows of all parts for this shard, in order, and the state after the
   previous batch. Output: answers, rows that the shard emits, and the new state. It runs for every shard in every
   batch, even without rows, so that windows end.
3. `answered`, for the rows of each part again: combines their columns with the shards' answers. Depending on the exit
   in the answer, each row continues, is dropped by a named rule, or has been taken over by its shard.

All three must depend only on their arguments: a repeated batch must have the same result, even with another number of
cores. Rows keep their part and their order, so that repeats can still be recognised by the order of origins.

Knows only Arrow's names. Must not know Spark, files, shards' places or any particular transform.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from logboom.pipeline.plan.nodes import Transform

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from pyarrow import RecordBatch, Table

    Exits = npt.NDArray[np.int8]
    Hashes = npt.NDArray[np.uint64]

TAKEN: Final = -128
"""The exit of a row that its shard has taken over: it is held in the state, or emitted by the shard."""

EXIT: Final = "exit"
"""The int8 column with the exit of a row: the position of one of the transform's `outputs`, `dropped_by(i)` for the
drop rule at position i, or TAKEN."""

State = tuple["Table", ...]
"""The state of a shard: tables with any columns, distinguished by their schemas' metadata if there are several kinds. A
table that is returned unchanged (the same object) costs nothing; every other one is written to disk."""


def dropped_by(rule: int) -> int:
    """The exit of rows that the drop rule at this position drops.

    >>> dropped_by(0), dropped_by(2)
    (-1, -3)
    """
    return -1 - rule


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What a batch may depend on in addition to its rows and the state. Equal when the batch is repeated."""

    batch: int
    wall_ms: int
    """The time of day at which the batch was first started, in milliseconds since 1970. It increases from batch to
    batch."""
    watermark_us: int | None
    """The watermark before this batch, in microseconds since 1970: the highest time in `time_column` of earlier
    batches, of the partition that is furthest behind (see `logboom.pipeline.state.watermarks`); None before the
    first."""
    watermark_after_us: int | None
    """The watermark including this batch's rows; equal to `watermark_us` in `ask`, where these are not known yet."""
    ends: bool = False
    """Whether no batch follows, so that everything held should be emitted: true at the end of a replay, and of a test
    in a pipeline's file."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The request of a part to the shards, for one Arrow batch of its rows."""

    rows: RecordBatch
    """The rows for the shards, with columns of the transform's choice, in order."""
    hashes: Hashes
    """A hash of the key, for each row of `rows`. Rows with equal hashes go to the same shard."""
    exits: Exits | None = None
    """The exit of each row of the batch, if it is known without the shards. None: `rows` has one row for each row of
    the batch, in order, and the shards answer."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Additional counts for the batch, recorded as `TRANSFORM.WHAT`."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """The results of a shard for a batch."""

    state: State
    answers: tuple[RecordBatch, ...] = ()
    """For each `Asked.rows`, a table of the same length: the column EXIT, and any others that `answered` uses. Empty if
    a transform returns its exits in `ask`."""
    made: RecordBatch | None = None
    """Rows that the shard emits, in order: any of EVENT_COLUMNS (missing ones are null) and EXIT, which is an output.
    The caller sets `stream`, `partition` and `offset`. A row without an `event_id` is a new event and gets one; a row
    with one was an input event that the shard had taken."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Number of taken events that were dropped, by drop rule."""
    held: int = 0
    """Number of taken events that are in `state` now."""
    remembered: int = 0
    """Number of items in `state` (keys, windows), for display."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Additional counts, by a name of the transform's choice (`evicted`); summed over shards and batches."""


class StatefulTransform(Transform, frozen=True, kw_only=True):
    """A transform with state. If rows do not depend on others, use `KernelTransform`."""

    @property
    def time_column(self) -> str | None:
        """The column of times that `BatchContext.watermark_us` follows; None if it needs none."""
        return None

    drops_held: ClassVar[bool] = False
    """Whether it drops events that its shards had taken: for these there is only a count, no row."""

    @property
    def leaves_by_time(self) -> bool:
        """Whether it emits events by time alone: then batches run even without records, while it has state or holds
        events."""
        return False

    @property
    def drop_rules(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    @abstractmethod
    def state_form(self) -> str:
        """Two transforms with equal forms can continue with each other's state. The text should describe what the state
        depends on (`by host, path in windows of 60 s`): it is shown if a state cannot be continued."""

    @abstractmethod
    def ask(self, batch: RecordBatch, inputs: npt.NDArray[np.int8], context: BatchContext) -> Asked:
        """Called for the events at this transform, one Arrow batch at a time. `inputs`: for each row, the position in
        `inputs` of its edge."""

    @abstractmethod
    def advance(self, state: State, asked: Sequence[RecordBatch], context: BatchContext) -> Advanced:
        """Called once for each shard. `asked`: the rows of this shard, one batch for each part, in order. Parts may be
        empty batches. `state` is empty at the beginning."""

    def answered(self, batch: RecordBatch, answers: RecordBatch) -> RecordBatch:
        """The events of `ask` combined with the shards' answers, row by row. By default only EXIT is used. Not called
        if `ask` returned the exits."""
        return batch
