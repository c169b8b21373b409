"""The state that transforms keep after each batch ("memory"): which memory a batch begins with, and where it is stored.

    state/memories/BATCH.json       the memory after a batch: files of each shard, and the watermarks
    state/segments/TRANSFORM/       these files; several memories share unchanged files
    state/exchange/                 rows between the jobs of the running batch

The files of a memory are durable before the memory is, and the memory is durable before Spark commits the batch. Each
run of a batch reads the memory of the previous batch and replaces its own. A few memories are kept, since Spark does
not sync its commits: after a power cut it may repeat more than the last batch.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.checked import DamagedError, read_checked, write_checked
from logboom.pipeline.checkpoint.files import keep_last, make_dir, numbered
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.execute.stateful import Directories, StatefulBatch
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.state.memory import Memory
from logboom.pipeline.state.segments import fault_of

KEPT_MEMORIES: Final = 10
_ADVICE: Final = "remove the directory state/ of the checkpoint: the state of all transforms is lost with it"
_GIVEN_UP: Final = "damaged, and given up: "
"""Marks a state as given up: no transform continues from it."""


class StateStore:
    """The memories of one pipeline's batches."""

    def __init__(self, directory: Path) -> None:
        self._memories = directory / "memories"
        self._directories = Directories(directory / "exchange", directory / "segments")

    def begin(self, layout: Layout, batch: int, wall_ms: int, *, ends: bool = False) -> StatefulBatch | None:
        """The steps with a state of a batch; None if there are none and no state is stored. `ends`: as in
        `BatchContext`."""
        before = self.before(batch)
        if not layout.stateful() and not before.transforms:
            return None
        for node in layout.stateful():
            make_dir(self._directories.segments / node.name)
        return StatefulBatch(layout, before, batch, wall_ms, self._directories, ends=ends)

    def before(self, batch: int) -> Memory:
        """The memory with which the batch begins; PipelineError if it is no longer stored."""
        found = numbered(self._memories)
        older = [path for number, path in found if number < batch]
        if older:
            return read_checked(older[-1], Memory, _ADVICE)
        if found and found[0][0] > batch:
            raise PipelineError(
                f"batch {batch} has to run again, but the state before that batch is no longer in "
                f"{self._memories} : the oldest one there is of batch {found[0][0]}"
            )
        return Memory()

    def last(self) -> Memory:
        """The newest."""
        found = numbered(self._memories)
        return read_checked(found[-1][1], Memory, _ADVICE) if found else Memory()

    def check_whole(self, batch: int, dropped: Collection[str]) -> None:
        """Checks every file of a batch's initial memory, which takes the time to read them.

        A state with a damaged file is given up if `dropped` has its transform's name; the memory then records that.

        :raises DamagedError: the state of another transform is damaged.
        """
        memory = self.before(batch)
        damaged = {}
        for name, transform in memory.transforms.items():
            names = {segment for shard in transform.shards for segment in shard.segments}
            fault = next(filter(None, map(fault_of, (self._directories.segments / name / one for one in names))), None)
            if fault is not None and name not in dropped:
                held = f"{transform.remembered:,} remembered, {transform.held:,} events held"
                raise DamagedError(*fault, f"give up what {name} remembers ({held}) with --drop-state {name}")
            if fault is not None:
                damaged[name] = msgspec.structs.replace(transform, form=_GIVEN_UP + transform.form)
        if damaged:
            number = max(number for number, _ in numbered(self._memories) if number < batch)
            changed = msgspec.structs.replace(memory, transforms={**memory.transforms, **damaged})
            write_checked(self._memories / f"{number}.json", changed)

    def keep(self, done: StatefulBatch) -> None:
        """Durably stores the memory after a batch, and removes files that no memory names any more."""
        make_dir(self._memories)
        write_checked(self._memories / f"{done.batch}.json", done.memory())
        keep_last(self._memories, KEPT_MEMORIES)
        done.close()
        self._remove_unused()

    def _remove_unused(self) -> None:
        try:
            memories = [read_checked(path, Memory, _ADVICE) for _, path in numbered(self._memories)]
        except DamagedError:  # a memory that no batch needs; its files are removed only after the memory itself
            return
        used = {
            (name, segment)
            for memory in memories
            for name, transform in memory.transforms.items()
            for shard in transform.shards
            for segment in shard.segments
        }
        for path in self._directories.segments.glob("*/*.arrow"):
            if (path.parent.name, path.name) not in used:
                path.unlink(missing_ok=True)
