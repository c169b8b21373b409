"""Runs records through a pipeline in this process, without affecting the running pipeline.

The records pass the plan's own steps (`execute.local`). Knows records of the log and plans. Must not know Spark
sessions, sinks or the command line.
"""

import contextlib
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Message

from logboom.pipeline.checkpoint.states import StateStore
from logboom.pipeline.edge.letters import headers_of
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.event.schema import HEADERS, MICROSECONDS
from logboom.pipeline.execute.local import LazyCatalyst, LocalFlow
from logboom.pipeline.plan.layout import FINAL_FROM, Layout
from logboom.pipeline.plan.nodes import Plan, StreamSource
from logboom.pipeline.route.rows import AT


def partitions_of(plan: Plan, admin: StreamAdmin) -> dict[str, tuple[StreamSource, int]]:
    """The existing streams of a plan's sources: their names, and how many partitions they have, by source."""
    there = admin.partitions()
    return {
        name: (source, count)
        for source in plan.sources
        for name, count in there.items()
        if (name in source.streams if source.pattern is None else re.fullmatch(source.pattern, name))
    }


def record_batch(messages: Sequence[Message], sources: Mapping[str, tuple[StreamSource, int]]) -> pa.RecordBatch:
    """Records in the form that the first step of a layout takes."""
    return pa.RecordBatch.from_pydict(
        {
            "source": pa.array([sources[str(one.topic())][0].name for one in messages], pa.string()),
            "stream": pa.array([one.topic() for one in messages], pa.string()),
            "partition": pa.array([one.partition() for one in messages], pa.int32()),
            "offset": pa.array([one.offset() for one in messages], pa.int64()),
            "timestamp": pa.array([one.timestamp()[1] * 1_000 for one in messages], pa.int64()).cast(MICROSECONDS),
            "key": pa.array([one.key() for one in messages], pa.binary()),
            "value": pa.array([one.value() for one in messages], pa.binary()),
            "headers": pa.array([list(headers_of(one)) for one in messages], HEADERS),
        }
    )


class DryRun:
    """Runs records through a plan, chunk by chunk. Transforms with state start with an empty one, separate from that of
    the running pipeline."""

    def __init__(self, flow: LocalFlow, layout: Layout, directory: str) -> None:
        self._flow = flow
        self._layout = layout
        self._states = StateStore(Path(directory) / "state")
        self._chunks = 0

    def events(self, batch: pa.RecordBatch, *, ends: bool = False) -> pa.RecordBatch:
        """The events that arrive at a sink of the plan, without dead and dropped records. `ends`: with everything that
        transforms hold."""
        stateful = self._states.begin(self._layout, self._chunks, int(time.time() * 1_000), ends=ends)
        rows = self._flow.rows(batch, stateful)
        if stateful is not None:
            self._states.keep(stateful)
        self._chunks += 1
        is_out = pa.compute.greater_equal(rows.column(AT), FINAL_FROM)
        return rows.filter(pa.compute.and_(is_out, pa.compute.is_null(rows.column("dead_reason"))))

    def rest_by_sink(self) -> Counter[str]:
        """Number of events held by transforms that arrive at each sink after the last record."""
        return self.by_sink(record_batch((), {}), ends=True) if self._layout.stateful() else Counter()

    def by_sink(self, batch: pa.RecordBatch, *, ends: bool = False) -> Counter[str]:
        """Number of events that arrive at each sink. `ends`: as in `events`."""
        found = Counter[str]()
        for code, count in Counter(self.events(batch, ends=ends).column(AT).to_pylist()).items():
            place = self._layout.place(code)
            readers = [sink.name for sink in self._layout.plan.sinks if place.edge in sink.inputs]
            found.update(dict.fromkeys([place.node] if place.kind == "direct" else readers, count))
        return found


@contextlib.contextmanager
def dry_run(plan: Plan, keys: Mapping[str, bytes]) -> Iterator[DryRun]:
    """A dry run of a plan, with the secret keys and tables that it needs."""
    layout = Layout(plan)
    with LazyCatalyst() as spark, tempfile.TemporaryDirectory(prefix="logboom-dry-run-") as directory:
        yield DryRun(LocalFlow(layout, keys, spark), layout, directory)


def ranges_since(admin: StreamAdmin, counts: Mapping[str, int], from_ms: int) -> dict[tuple[str, int], tuple[int, int]]:
    """Offset ranges by partition: from the first record at or after a time to the end."""
    starts, ends = admin.since(counts, from_ms), admin.ends(counts)
    return {
        (stream, int(number)): (starts[stream][number] if starts[stream][number] >= 0 else end, end)
        for stream, partitions in ends.items()
        for number, end in partitions.items()
    }
