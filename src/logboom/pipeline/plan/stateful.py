"""Transforms that remember something from one batch to the next, and what they agree on with whoever runs them.

A batch is done in three steps at such a transform, all on executors:

1. `ask`, over the rows of each part (a part holds whole partitions of origin, in order): which of them need to be seen
   by a shard, as what columns, and the hash of the key that chooses the shard. There is a fixed number of shards, kept
   with the checkpoint, so that cores and executors may change.
2. `advance`, once for each shard: what all parts asked it, in their order, and the state that the batch before this one
   left, give answers, rows that leave from the shard, and the next state. It runs for every shard in every batch, also
   without rows, so that windows end.
3. `answered`, over the rows of each part again: their columns with what the shards answered. By the answer's exit each
   row goes on, is dropped by a named rule, or has been taken over by its shard.

All three must depend on nothing but their arguments: a batch that is repeated, with other cores, must come out the
same. Rows keep their part and their order; so what is known of repeats by the order of origins holds behind them.

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
"""The exit of a row that its shard has taken over: it is held in the state, or leaves from the shard."""

EXIT: Final = "exit"
"""The int8 column with the exit of a row: the position of one of the transform's `outputs`, `dropped_by(i)` for the
drop rule at position i, or TAKEN."""

State = tuple["Table", ...]
"""What a shard remembers: tables of any columns, told apart by their schemas' metadata where there are several kinds.
A table that is handed back as it was given (the same object) costs nothing; every other one is written to disk."""


def dropped_by(rule: int) -> int:
    """The exit of rows that the drop rule at this position drops.

    >>> dropped_by(0), dropped_by(2)
    (-1, -3)
    """
    return -1 - rule


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What a batch may depend on beside its rows and the state: all of it is the same when the batch is repeated."""

    batch: int
    wall_ms: int
    """The time of day at which the batch was first begun, in milliseconds since 1970; it grows from batch to batch."""
    watermark_us: int | None
    """Up to here, in microseconds since 1970, the times of earlier batches had come in `time_column`, on the partition
    that is furthest behind (see `logboom.pipeline.state.watermarks`); None before the first."""
    watermark_after_us: int | None
    """The same with this batch's rows; equal to `watermark_us` in `ask`, where these are not known yet."""
    ends: bool = False
    """Whether nothing comes behind this batch and all that is held should leave: true in tests of a pipeline's file."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a part has to ask the shards about one Arrow batch of its rows."""

    rows: RecordBatch
    """What the shards see, with columns of the transform's choice, in order."""
    hashes: Hashes
    """By row of `rows`: a hash of its key. Rows of one hash meet in one shard."""
    exits: Exits | None = None
    """By row of the batch: its exit, where that is known without the shards. None: `rows` has one row for each row of
    the batch, in order, and the shards answer."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What else it counts of the batch, noted as `TRANSFORM.WHAT`."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """What a shard makes of a batch."""

    state: State
    answers: tuple[RecordBatch, ...] = ()
    """For each `Asked.rows` that was given, as long as it: the column EXIT, and any others that `answered` uses. Left
    empty by a transform that gives its exits in `ask`."""
    made: RecordBatch | None = None
    """Rows that leave from the shard, in order: any of EVENT_COLUMNS (what is missing is null) and EXIT, which names an
    output. `stream`, `partition` and `offset` are given to them by whoever runs this. A row without an `event_id` is a
    new event, and gets one; one with it was an event of the input that the shard had taken."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Events that the shard had taken and has dropped, by drop rule."""
    held: int = 0
    """Events that the shard has taken and that are in `state` now."""
    remembered: int = 0
    """How many things `state` remembers (keys, windows), to be shown."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What else is worth counting, by a name of the transform's choice (`evicted`); summed over shards and batches."""


class StatefulTransform(Transform, frozen=True, kw_only=True):
    """A transform with a state. Rows that must not depend on others need none: see `KernelTransform`."""

    @property
    def time_column(self) -> str | None:
        """The column of times whose progress `BatchContext.watermark_us` follows; None if it needs none."""
        return None

    drops_held: ClassVar[bool] = False
    """Whether what it drops are events that its shards had taken: of these there is a number, and no row."""

    @property
    def leaves_by_time(self) -> bool:
        """Whether events leave it by time alone: batches without records then run while it remembers or holds
        anything."""
        return False

    @property
    def drop_rules(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    @abstractmethod
    def state_form(self) -> str:
        """Equal for two transforms where one can go on with the state of the other. It should name in words what the
        state depends on (`by host, path in windows of 60 s`): it is shown where a state cannot be carried over."""

    @abstractmethod
    def ask(self, batch: RecordBatch, inputs: npt.NDArray[np.int8], context: BatchContext) -> Asked:
        """Called for the events at this transform, a batch at a time. `inputs`: by row, the position in `inputs` of
        the edge that it came by."""

    @abstractmethod
    def advance(self, state: State, asked: Sequence[RecordBatch], context: BatchContext) -> Advanced:
        """Called once for each shard. `asked`: the rows of this shard, one batch for each part, in order; parts are
        empty batches or left out only together with their answers. `state` is empty at the beginning."""

    def answered(self, batch: RecordBatch, answers: RecordBatch) -> RecordBatch:
        """The events of `ask` with what the shards answered about them, row by row. By default nothing but EXIT is
        looked at. Not called where `ask` gave the exits."""
        return batch
