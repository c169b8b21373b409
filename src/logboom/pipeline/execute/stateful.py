"""Processes one batch in the steps with a state: from the memory before the batch to the memory after it.

`StatefulBatch` is on the driver. It creates the tasks, which run anywhere (`OpenPart` with the rows before a step,
`ShardTask` for the shards, `ResumedTask` for the rows after it), and computes the next memory and the counts from their
reports. `flow` and `local` decide where the tasks run.

Knows layouts, memories and the files between jobs. Must not know Spark, nor which memory is durable.
"""

import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from logboom.pipeline.errors import placed
from logboom.pipeline.execute.exchange import (
    PartReport,
    PartWriter,
    ShardReport,
    advance_shard,
    made_rows,
    resumed_part,
)
from logboom.pipeline.execute.stages import (
    ABANDONED,
    HELD_AFTER,
    HELD_BEFORE,
    MADE,
    NOTED,
    PLACE,
    REMEMBERED,
    Counts,
    add_counts,
    count,
)
from logboom.pipeline.plan.layout import Layout, StatefulNode, StatefulStep
from logboom.pipeline.plan.stateful import BatchContext, dropped_by
from logboom.pipeline.state.memory import Memory, ShardMemory, TransformMemory
from logboom.pipeline.state.segments import SegmentDirectory

_part_report: Final = msgspec.json.Decoder(PartReport)
_shard_reports: Final = msgspec.json.Decoder(list[ShardReport])


@dataclass(frozen=True, slots=True)
class Directories:
    """The directories of a batch's files, shared by all machines of the pipeline."""

    exchange: Path
    """For the files between jobs; emptied before each batch."""
    segments: Path
    """With a directory for each stateful transform, made before the batch."""


@dataclass(frozen=True, slots=True)
class OpenPart:
    """Opens the writer of a part. It is sent to executors."""

    directory: Path
    step: StatefulStep
    contexts: Mapping[str, BatchContext]
    shards: int
    keeps_dropped: bool = False

    def __call__(self, part: int) -> PartWriter:
        return PartWriter(self.directory, self.step, self.contexts, part, self.shards, keeps_dropped=self.keeps_dropped)


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Runs some shards of all transforms of a step; each answers the requests of the parts. It is sent to executors."""

    directory: Path
    segments: Path
    pipeline: str
    file: str
    work: tuple[tuple[StatefulNode, int, tuple[str, ...], BatchContext], ...]
    """Transform, shard, the files of its state, and what it may depend on."""
    parts: tuple[PartReport, ...]

    def __call__(self) -> bytes:
        """The reports of all shards."""
        return msgspec.json.encode([self._advance(*one) for one in self.work])

    def _advance(self, node: StatefulNode, shard: int, state: tuple[str, ...], context: BatchContext) -> ShardReport:
        segments = SegmentDirectory(self.segments / node.transform.name)
        try:
            return advance_shard(self.directory, node, shard, self.parts, state, segments, context, self.pipeline)
        except Exception as error:  # raised again as one sentence with the place in the file
            raise placed(error, self.file) from error


@dataclass(frozen=True, slots=True)
class ResumedTask:
    """Reads the rows after a step: those of one part, or of some shards. It is sent to executors."""

    directory: Path
    step: StatefulStep
    part: PartReport | None
    shards: tuple[ShardReport, ...]
    """For a part: all transforms, with their answers; else those whose shards have leaving rows."""

    def __call__(self) -> Iterator[pa.RecordBatch]:
        if self.part is None:
            return made_rows(self.directory, self.shards)
        return resumed_part(self.directory, self.step, self.part, self.shards)


@dataclass(slots=True)
class StatefulBatch:
    """The steps with a state of one batch, in order: for each `open_part`, `shard_tasks`, `resumed_tasks`."""

    layout: Layout
    before: Memory
    batch: int
    wall_ms: int
    """The time of day that is pinned to the batch."""
    directories: Directories
    keeps_dropped: bool = False
    ends: bool = False
    """See `BatchContext.ends`."""
    counts: Counts = field(default_factory=dict)
    """Counts of parts and shards, and of events held before and after the batch."""
    _after: dict[str, TransformMemory] = field(default_factory=dict)
    _directory: Path = field(init=False)

    def __post_init__(self) -> None:
        shutil.rmtree(self.directories.exchange, ignore_errors=True)
        # A unique name: a task of a failed attempt may still be writing.
        self._directory = self.directories.exchange / f"{self.batch}-{uuid.uuid4().hex[:12]}"
        self._directory.mkdir(parents=True)
        carried = self._carried()
        for name, memory in self.before.transforms.items():
            count(self.counts, f"{HELD_BEFORE}:{name}", memory.held)
            if name not in carried and memory.held:
                count(self.counts, f"{ABANDONED}:{name}", memory.held)

    def _carried(self) -> dict[str, TransformMemory]:
        """The memories from which transforms of this plan continue."""
        forms = {node.name: node.state_form for node in self.layout.stateful()}
        return {name: memory for name, memory in self.before.transforms.items() if forms.get(name) == memory.form}

    def _memory_of(self, node: StatefulNode) -> TransformMemory:
        empty = TransformMemory(node.transform.state_form, (ShardMemory(),) * self.before.shards)
        return self._carried().get(node.transform.name, empty)

    def open_part(self, step: StatefulStep) -> OpenPart:
        """Opens writers for the rows before a step."""
        contexts = {}
        for node in step.nodes:
            mark = self._memory_of(node).progress.mark_us
            contexts[node.transform.name] = BatchContext(self.batch, self.wall_ms, mark, mark, self.ends)
        return OpenPart(self._directory, step, contexts, self.before.shards, self.keeps_dropped)

    def shard_tasks(self, step: StatefulStep, parts: Sequence[bytes], tasks: int) -> list[ShardTask]:
        """At most this many tasks for the shards, from the reports of the parts."""
        reports = tuple(sorted(map(_part_report.decode, parts), key=lambda report: report.order))
        for report in reports:
            add_counts(self.counts, report.counts)
        work = []
        for node in step.nodes:
            memory, name = self._memory_of(node), node.transform.name
            seen: dict[str, int] = {}
            for report in reports:
                for origin, highest in report.seen[name].items():
                    seen[origin] = max(seen.get(origin, highest), highest)
            progress = memory.progress.advanced(seen, self.wall_ms)
            context = BatchContext(self.batch, self.wall_ms, memory.progress.mark_us, progress.mark_us, self.ends)
            self._after[name] = TransformMemory(memory.form, memory.shards, progress)
            work += [(node, shard, memory.shards[shard].segments, context) for shard in range(self.before.shards)]
        plan = self.layout.plan
        return [
            ShardTask(
                self._directory, self.directories.segments, plan.name, plan.file, tuple(work[first::tasks]), reports
            )
            for first in range(min(tasks, len(work)))
        ]

    def resumed_tasks(
        self, step: StatefulStep, parts: Sequence[bytes], shards: Sequence[bytes], tasks: int
    ) -> list[ResumedTask]:
        """The tasks that give the rows after a step: one for each part, and at most `tasks` for rows of shards."""
        found = sorted(
            (report for reports in shards for report in _shard_reports.decode(reports)),
            key=lambda report: (report.transform, report.shard),
        )
        for node in step.nodes:
            self._take(node, [report for report in found if report.transform == node.transform.name])
        reports = sorted(map(_part_report.decode, parts), key=lambda report: report.order)
        answering = tuple(report for report in found if report.answers_sum is not None)
        resumed = [ResumedTask(self._directory, step, report, answering) for report in reports]
        making = [report for report in found if report.made_sum is not None]
        # Consecutive shards stay together. Sorted by their first rows, the parts of the next step with a state then
        # have all rows in the same order, whatever the number of tasks.
        each = -(-len(making) // tasks)
        resumed += [
            ResumedTask(self._directory, step, None, tuple(making[first : first + each]))
            for first in range(0, len(making), max(1, each))
        ]
        return resumed

    def _take(self, node: StatefulNode, reports: Sequence[ShardReport]) -> None:
        name, places = node.transform.name, dict(node.exits)
        rules = {rule: places[dropped_by(at)] for at, rule in enumerate(node.transform.drop_rules)}
        for report in reports:
            count(self.counts, f"{MADE}:{name}", report.new)
            count(self.counts, f"{HELD_AFTER}:{name}", report.held)
            count(self.counts, f"{REMEMBERED}:{name}", report.remembered)
            for rule, rows in report.dropped.items():
                count(self.counts, f"{PLACE}:{rules[rule]}", rows)
            for what, number in report.counts.items():
                count(self.counts, f"{NOTED}:{name}.{what}", number)
        shards = tuple(ShardMemory(tuple(report.segments), report.held, report.remembered) for report in reports)
        self._after[name] = msgspec.structs.replace(self._after[name], shards=shards)

    def memory(self) -> Memory:
        """What is remembered after the batch, when all steps are done."""
        return Memory(self.before.shards, dict(self._after))

    def close(self) -> None:
        """Removes the files between jobs."""
        shutil.rmtree(self.directories.exchange, ignore_errors=True)


def run_shards(tasks: Iterable[ShardTask]) -> list[bytes]:
    """Runs the tasks in this process, one after the other."""
    return [task() for task in tasks]
