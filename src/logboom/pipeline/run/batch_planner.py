"""Chooses the plan of a batch that was started before the pipeline was edited, and reports what a change would repeat.

Before the first record of a batch can be written, the batch is pinned: to its plan and to the current ends of all
output streams. If a batch has to run again after an edit, there are two cases:

- no record of it is above those ends: no reader has seen any, so it runs with the edited plan. This repairs a batch
  that failed because of an error in the pipeline.
- some records were written: it continues with its old plan, so that readers see one version of each event.
  `logboom pipeline repin` changes that on request, after printing what may be duplicated.

After a crash between any two steps, one of these cases applies: the ends are read first, the pin is durable before the
first write, and a new pin replaces the old one atomically. A new pin increases the generation, which is part of the
keys of edge records.

Knows pins, the log and the router's offsets in Spark. Must not know how a batch is run.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import Message

from logboom.pipeline.checkpoint.batch_plans import BatchPlans, PinnedPlan, fingerprints
from logboom.pipeline.checkpoint.spark_log import Offsets, offsets_of, unfinished_batch
from logboom.pipeline.edge.letters import headers_of
from logboom.pipeline.edge.reading import read_ranges
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.enrich.store import TableStore
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan import names
from logboom.pipeline.plan.nodes import KeyRef, Plan
from logboom.pipeline.registry import read_plan
from logboom.pipeline.run.batch_clock import BatchClock
from logboom.pipeline.run.batch_dials import BatchDials
from logboom.pipeline.run.outputs import output_streams

LoadKeys = Callable[[tuple[KeyRef, ...]], Mapping[str, bytes]]
_REPIN: Final = "logboom pipeline repin"


class KeyChangedError(PipelineError):
    """The batch was partly written and cannot be repeated identically, because a mask has another key now."""


class _Origin(msgspec.Struct):
    stream: str
    partition: int
    offset: int


_origin = msgspec.json.Decoder(_Origin)


@dataclass(frozen=True, slots=True)
class Written:
    """What an unfinished batch has written to the log."""

    batch: int
    plan_changed: bool
    """Whether the file's plan differs from the plan of the batch."""
    known: bool
    """False for a batch of an earlier version of Logboom, which did not record the ends of streams."""
    records: Mapping[str, int]
    """Number of records by stream. If the beginning of a stream was deleted, the deleted records are included."""

    def lines(self) -> list[str]:
        """A text for the user: what may be duplicated if the batch runs with another plan."""
        begun = f"batch {self.batch} was begun before the pipeline was edited"
        if not self.known:
            return [f"{begun}, by a version of Logboom that did not note what it wrote: all of it may be there twice"]
        total = sum(self.records.values())
        if not total:
            return [f"{begun}, but has written nothing: nothing is repeated"]
        return [
            f"{begun}; it has written {total:,} records, which stay where they are while the batch is written again:",
            *(f"  {count:,} in {stream}" for stream, count in sorted(self.records.items())),
            "Readers of a stream know an event that is there twice by its logboom-event-id; sinks behind an edge",
            "(streams that begin with _), the archive among them, get both versions of an event that both versions of",
            "the pipeline deliver.",
        ]


class BatchPlanner:
    """Pins the batches of one pipeline."""

    def __init__(
        self,
        plan: Plan,
        admin: StreamAdmin,
        checkpoint: Path,
        load_keys: LoadKeys,
        notify: Callable[[str], None],
        tables: TableStore | None = None,
        dials: BatchDials | None = None,
    ) -> None:
        """`tables`: None for a plan without tables. `dials`: None if all have the values of the file."""
        self._plan = plan
        self._tables = tables
        self._dials = dials
        self._admin = admin
        self._query = checkpoint / "router"
        self._load_keys = load_keys
        self._notify = notify
        self._plans = BatchPlans(checkpoint / "pins", read_plan)
        self._clock = BatchClock()
        self.is_last = False
        """Whether nothing comes after the batches that are pinned from now on, so that all that is held leaves."""

    def choose(self, batch: int, outputs: Mapping[str, int]) -> PinnedPlan:
        """The plan for the batch, durably pinned. `outputs`: partitions of the output streams of the current plan."""
        pin = self._plans.pinned(batch)
        if pin is None:
            return self._pin(batch, outputs, 0)
        keys_now = fingerprints(self._load_keys(pin.plan.key_refs()))
        changed = sorted(name for name, mark in pin.keys.items() if keys_now.get(name) != mark)
        if pin.plan_hash == self._plan.content_hash() and not changed:
            return self._with_tables(batch, pin)
        if pin.ends is not None and next(self._written(batch, pin), None) is None:
            self._notify(f"batch {batch} had written nothing yet: it runs with the edited pipeline")
            return self._pin(batch, outputs, pin.generation + 1)
        if changed:
            raise KeyChangedError(
                f"batch {batch} was partly written with another mask key in {changed[0].partition(':')[2]} and has to "
                f"run again: run once with the old key, then change it; or use {_REPIN} to have two hashes of its "
                "secrets"
            )
        self._notify(
            f"batch {batch} was partly written before the pipeline was edited: it runs again with the old version; "
            f"{_REPIN} {self._plan.file} shows what the edited one would write twice"
        )
        return self._with_tables(batch, pin)

    def _with_tables(self, batch: int, pin: PinnedPlan) -> PinnedPlan:
        """The pin with existing tables: those it was pinned to or, if a version is gone, the current ones."""
        gone = [] if self._tables is None else self._tables.missing(pin.tables)
        if self._tables is None or not gone:
            return pin
        for name in gone:
            version, table = pin.tables[name], name.replace(":", " of ", 1)
            self._notify(
                f"batch {batch} began with version {version} of the {table}, which is no longer in the checkpoint: "
                "it runs with the current version"
            )
        refs = [ref for ref in pin.plan.table_refs() if ref.id in gone]
        return replace(pin, tables={**pin.tables, **self._tables.current(refs)})

    def unfinished(self) -> Written | None:
        """What the next batch has written in an earlier attempt; None if it has not run."""
        batch = unfinished_batch(self._query)
        pin = None if batch is None else self._plans.pinned(batch)
        if batch is None or pin is None:
            return None
        keys_now = fingerprints(self._load_keys(pin.plan.key_refs()))
        changed = pin.plan_hash != self._plan.content_hash() or any(
            keys_now.get(name) != mark for name, mark in pin.keys.items()
        )
        records = Counter[str]()
        if pin.ends is not None:
            for stream, count in self._written(batch, pin):
                records[stream] += count
        return Written(batch, changed, pin.ends is not None, dict(records))

    def repin(self, batch: int) -> None:
        """Durably pin the current plan for an unfinished batch, whatever it has written."""
        pin = self._plans.pinned(batch)
        assert pin is not None, "only a batch that has run is pinned"
        there = self._admin.partitions()
        streams = output_streams(self._plan)
        self._pin(batch, {name: there[name] for name in streams if name in there}, pin.generation + 1)

    def _pin(self, batch: int, outputs: Mapping[str, int], generation: int) -> PinnedPlan:
        keys = self._load_keys(self._plan.key_refs())
        ends = self._admin.ends(outputs)
        tables = {} if self._tables is None else self._tables.current(self._plan.table_refs())
        dials = {} if self._dials is None else self._dials.values()
        wall_ms = self._clock.next(self._plans.wall_ms(batch - 1))
        self._plans.pin(batch, self._plan, keys, ends, generation, tables, dials, wall_ms, is_last=self.is_last)
        name = self._plan.content_hash()
        return PinnedPlan(self._plan, name, fingerprints(keys), ends, generation, tables, dials, wall_ms, self.is_last)

    def _written(self, batch: int, pin: PinnedPlan) -> Iterator[tuple[str, int]]:
        """The streams with their number of records of the batch, a few at a time."""
        assert pin.ends is not None
        there = self._admin.partitions()
        counts = {name: there[name] for name in pin.ends if name in there}
        starts, ends = self._admin.starts(counts), self._admin.ends(counts)
        ranges: dict[tuple[str, int], tuple[int, int]] = {}
        for stream, partitions in ends.items():
            for partition, end in partitions.items():
                before, start = pin.ends[stream].get(partition, 0), starts[stream][partition]
                if start > before:
                    yield stream, start - before
                ranges[stream, int(partition)] = (max(before, start), end)
        first, behind = offsets_of(self._query, batch - 1), offsets_of(self._query, batch)
        for message in read_ranges(self._admin.bootstrap, ranges):
            if _is_of(message, first, behind, pin.plan.name):
                yield str(message.topic()), 1


def _is_of(message: Message, first: Offsets, behind: Offsets, pipeline: str) -> bool:
    """Whether a record belongs to the batch's input, and not to a retried dead letter."""
    headers = dict(headers_of(message))
    if names.HEADER_RETRY_OF in headers or bytes(message.key() or b"").startswith(names.RETRY_KEY):
        return False
    try:
        if names.HEADER_ORIGIN in headers:
            stream, partition, offset = names.parse_origin(bytes(headers[names.HEADER_ORIGIN] or b"").decode())
        else:
            origin = _origin.decode(message.value() or b"")
            stream, partition, offset = origin.stream, origin.partition, origin.offset
    except (ValueError, msgspec.DecodeError):
        return False  # written by another program
    if stream.startswith(names.made_stream(pipeline, "")):
        return True  # it comes from a transform's state, and no other batch is writing
    return first.get(stream, {}).get(partition, 0) <= offset < behind.get(stream, {}).get(partition, 0)
