"""Looks at the log and at a pipeline's archives, for the choice where a replay reads from (`replay_choice`).

Knows the log's offsets, archives and the graph of a plan. Must not know Spark.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.nodes import Plan, Sink
from logboom.pipeline.plan.stateful import StatefulTransform
from logboom.pipeline.run.archive_slices import Origin, origins_of
from logboom.pipeline.run.dry_run import partitions_of
from logboom.pipeline.run.replay import LogStart, Replay, archive_of, replay_plan
from logboom.pipeline.run.replay_choice import ArchiveState, Choice, HeldPart, Incomplete, LogPart, choose
from logboom.pipeline.sinks.parquet import ParquetSink
from logboom.pipeline.sinks.parquet.reading import ArchiveReader

_COLUMNS: Final = ("stream", "partition", "offset", "observed_time")
_ATTEMPTS: Final = 5
"""Files that are merged with others while they are read make a look begin anew."""


def chosen_origin(
    plan: Plan, asked: Replay, admin: StreamAdmin, *, partial: bool
) -> tuple[Replay, Choice] | Incomplete:
    """What was asked for with where it is read from, and why. `asked`: from the log."""
    replayed = replay_plan(plan, asked)
    log = log_parts(replayed, asked, admin)
    archives = [sink for sink in plan.sinks if isinstance(sink, ParquetSink)]
    starts = {origin: part.start for origin, part in log.items() if part.is_cut}
    states = [_state(plan, replayed, asked, sink, starts) for sink in archives] if starts else []
    remembering = next((node.name for node in replayed.transforms if isinstance(node, StatefulTransform)), None)
    choice = choose(asked.from_ms, log, states, remembering, partial=partial)
    if isinstance(choice, Incomplete):
        return choice
    if choice.archive is None:
        return asked, choice
    seam = tuple(LogStart(*origin, offset) for origin, offset in sorted((choice.seam or {}).items()))
    archive = archive_of(plan, choice.archive, plan, None)
    return msgspec.structs.replace(asked, archive=archive, seam=seam), choice


def log_parts(plan: Plan, replay: Replay, admin: StreamAdmin) -> dict[Origin, LogPart]:
    """What the log holds of each partition of a replay's sources."""
    counts = {name: count for name, (_, count) in partitions_of(plan, admin).items()}
    starts, ends = admin.starts(counts), admin.ends(counts)
    since, until = admin.since(counts, replay.from_ms), admin.since(counts, replay.to_ms)

    def part(name: str, number: str, start: int) -> LogPart:
        first, behind, end = since[name][number], until[name][number], ends[name][number]
        return LogPart(
            start=start,
            since=end if first < 0 else first,
            until=end if behind < 0 else behind,
            # What the log holds begins within that time: what was before may have been of it too.
            is_cut=start > 0 and (first == start or (first < 0 and start == end)),
        )

    return {
        Origin(name, int(number)): part(name, number, start)
        for name, partitions in starts.items()
        for number, start in partitions.items()
    }


def _state(plan: Plan, replayed: Plan, asked: Replay, sink: ParquetSink, starts: Mapping[Origin, int]) -> ArchiveState:
    unfit = why_unfit(plan, replayed, asked, sink)
    if unfit is not None:
        return ArchiveState(name=sink.name, unfit=unfit)
    archive = archive_of(plan, sink.name, plan, None)
    for attempt in range(1, _ATTEMPTS + 1):
        reader = ArchiveReader(archive.path, archive.store)
        try:
            return ArchiveState(name=sink.name, held=held_parts(reader, asked, starts))
        except FileNotFoundError:
            if attempt == _ATTEMPTS:
                raise
        except (OSError, pa.ArrowException) as error:
            raise PipelineError(
                f"the archive {sink.name} cannot be looked at for what the log has deleted: {error}; "
                "--from-log replays what the log has"
            ) from error
    raise AssertionError("the last attempt returns or raises")


def why_unfit(plan: Plan, replayed: Plan, asked: Replay, archive: ParquetSink) -> str | None:
    """Why what an archive holds is not what a replay sends, in a few words."""
    if archive.name == asked.sink:
        return "it is the sink that gets the events"
    if len(archive.inputs) > 1:
        return f"it has events of {', '.join(archive.inputs)}, and does not say which came from where"
    (at,) = archive.inputs
    besides = _reached_without(plan, at)
    named = [sink for sink in plan.sinks if sink.name in {one.name for one in replayed.sinks} and sink != archive]
    passed_by = [edge for edge in _edges(asked, named) if edge in besides]
    if passed_by:
        return f"events come to {passed_by[0]} that do not come through {at}"
    return None


def _edges(asked: Replay, sinks: Iterable[Sink]) -> tuple[str, ...]:
    return (asked.route,) if asked.route is not None else tuple(edge for sink in sinks for edge in sink.inputs)


def _reached_without(plan: Plan, at: str) -> set[str]:
    """The outputs to which events come that were not at this one."""
    reached = {edge for source in plan.sources for edge in source.outputs}
    for node in plan.transforms:  # inputs come first
        if reached & set(node.inputs):
            reached |= set(node.outputs) - {at}
    return reached


def held_parts(reader: ArchiveReader, asked: Replay, starts: Mapping[Origin, int]) -> dict[Origin, HeldPart]:
    """What an archive holds of each partition that its events came from. `starts`: where the log begins."""
    found: dict[Origin, HeldPart] = {}
    for file in reader.files():
        for events in reader.batches(file, _COLUMNS):
            for origin, part in _parts(events, asked, starts):
                before = found.get(origin)
                found[origin] = part if before is None else _both(before, part)
    return found


def _parts(events: pa.RecordBatch, asked: Replay, starts: Mapping[Origin, int]) -> Iterable[tuple[Origin, HeldPart]]:
    stream, partition, offset = origins_of(events)
    seen: Any = events.column("observed_time").cast(pa.int64())
    is_asked = pc.and_(pc.greater_equal(seen, asked.from_ms * 1_000), pc.less(seen, asked.to_ms * 1_000))
    columns = {"stream": stream, "partition": partition, "offset": offset, "seen": seen, "is_asked": is_asked}
    table = pa.table(columns)
    sums: list[Any] = [("offset", "min"), ("offset", "max"), ("seen", "min")]
    for row in table.group_by(["stream", "partition"]).aggregate(sums).to_pylist():
        origin = Origin(row["stream"], row["partition"])
        mine = pc.and_(pc.equal(stream, origin.stream), pc.equal(partition, origin.partition))
        older = pc.and_(pc.and_(mine, is_asked), pc.less(offset, starts.get(origin, 0)))
        first_us = row["seen_min"]
        yield (
            origin,
            HeldPart(
                # Without any time it says nothing of how far back it reaches.
                first_ms=asked.from_ms if first_us is None else first_us // 1_000,
                first=row["offset_min"],
                last=row["offset_max"],
                older=pc.sum(older).as_py() or 0,
            ),
        )


def _both(left: HeldPart, right: HeldPart) -> HeldPart:
    return HeldPart(
        first_ms=min(left.first_ms, right.first_ms),
        first=min(left.first, right.first),
        last=max(left.last, right.last),
        older=left.older + right.older,
    )
