"""What transforms with a state remember behind each batch: which memory a batch begins with, and where it is kept.

    state/memories/BATCH.json       the memory behind a batch: files of each shard, and how far times have come
    state/segments/TRANSFORM/       these files; several memories share those that have not changed
    state/exchange/                 rows between the jobs of the batch that runs

The memory of a batch is durable before Spark commits the batch, and its files before it. A batch reads the memory of
the last batch below it, however often it is run, and replaces its own. A few are kept, since Spark does not sync its
commits: after a power cut it may run more than the last batch again.
"""

from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.files import keep_last, make_dir, numbered, write_durably
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.execute.stateful import Directories, StatefulBatch
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.state.memory import Memory

KEPT_MEMORIES: Final = 10


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
            return msgspec.json.decode(older[-1].read_bytes(), type=Memory)
        if found and found[0][0] > batch:
            raise PipelineError(
                f"batch {batch} has to run again, but what the pipeline remembered before it is not in "
                f"{self._memories} any more: the oldest there is of batch {found[0][0]}"
            )
        return Memory()

    def last(self) -> Memory:
        """The newest."""
        found = numbered(self._memories)
        return msgspec.json.decode(found[-1][1].read_bytes(), type=Memory) if found else Memory()

    def keep(self, done: StatefulBatch) -> None:
        """Durably keeps what is remembered behind a batch, and removes what no memory names any more."""
        make_dir(self._memories)
        write_durably(self._memories / f"{done.batch}.json", msgspec.json.encode(done.memory()))
        keep_last(self._memories, KEPT_MEMORIES)
        done.close()
        self._remove_unused()

    def _remove_unused(self) -> None:
        memories = [msgspec.json.decode(path.read_bytes(), type=Memory) for _, path in numbered(self._memories)]
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
