"""What transforms with a state remember behind each batch: which memory a batch begins with, and where it is kept.

    state/memories/BATCH.json       the memory behind a batch: files of each shard, and how far times have come
    state/segments/TRANSFORM/       these files; several memories share those that have not changed
    state/exchange/                 rows between the jobs of the batch that runs

The memory of a batch is durable before Spark commits the batch, and its files before it. A batch reads the memory of
the last batch below it, however often it is run, and replaces its own. A few are kept, since Spark does not sync its
commits: after a power cut it may run more than the last batch again.
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
_ADVICE: Final = "remove the directory state/ of the checkpoint: all that transforms remember is lost with it"
_GIVEN_UP: Final = "damaged, and given up: "
"""Begins the form of a state that no transform can go on with any more."""


class StateStore:
    """The memories of one pipeline's batches."""

    def __init__(self, directory: Path) -> None:
        self._memories = directory / "memories"
        self._directories = Directories(directory / "exchange", directory / "segments")

    def begin(self, layout: Layout, batch: int, wall_ms: int) -> StatefulBatch | None:
        """The steps with a state of a batch; None where there are none and nothing is remembered."""
        before = self.before(batch)
        if not layout.stateful() and not before.transforms:
            return None
        for node in layout.stateful():
            make_dir(self._directories.segments / node.name)
        return StatefulBatch(layout, before, batch, wall_ms, self._directories)

    def before(self, batch: int) -> Memory:
        """What the batch begins with; PipelineError where that is not kept any more."""
        found = numbered(self._memories)
        older = [path for number, path in found if number < batch]
        if older:
            return read_checked(older[-1], Memory, _ADVICE)
        if found and found[0][0] > batch:
            raise PipelineError(
                f"batch {batch} has to run again, but what the pipeline remembered before it is not in "
                f"{self._memories} any more: the oldest there is of batch {found[0][0]}"
            )
        return Memory()

    def last(self) -> Memory:
        """The newest."""
        found = numbered(self._memories)
        return read_checked(found[-1][1], Memory, _ADVICE) if found else Memory()

    def check_whole(self, batch: int, dropped: Collection[str]) -> None:
        """Looks at every file of what a batch begins with, which takes the time to read them.

        A state with a damaged file is given up where `dropped` has its transform's name: its memory then says so.

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
        """Durably keeps what is remembered behind a batch, and removes what no memory names any more."""
        make_dir(self._memories)
        write_checked(self._memories / f"{done.batch}.json", done.memory())
        keep_last(self._memories, KEPT_MEMORIES)
        done.close()
        self._remove_unused()

    def _remove_unused(self) -> None:
        try:
            memories = [read_checked(path, Memory, _ADVICE) for _, path in numbered(self._memories)]
        except DamagedError:  # one that no batch needs; nothing is removed before it is gone itself
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
