"""Finds out what `pipeline replay` can read of the range it was asked for: offsets in the log, events in the archives.

Retention may have deleted the start of the range from the log while a Parquet sink of the pipeline still has it. This
module collects the facts: per partition of the sources the log start offset, the offsets of both ends of the range and
whether retention cut it (`log_parts`); per archive the oldest and newest event of each partition (`held_parts`), or why
its events are not those that are to be replayed (`why_unfit`). `replay_choice`, which does no I/O, decides on them for
the log, an archive, or an archive up to an offset and the log from there; `chosen_origin` carries that into the replay.

Knows the log's offsets, the files of archives and the graph of a plan. Must not know Spark.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial as partial_of
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.checkpoint.ledger import Ledger
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.nodes import KernelTransform, Plan, Sink
from logboom.pipeline.plan.stateful import StatefulTransform
from logboom.pipeline.plan.upstream import upstream
from logboom.pipeline.run.archive_slices import Origin, origins_of
from logboom.pipeline.run.dry_run import partitions_of
from logboom.pipeline.run.held_offsets import HeldOffsets
from logboom.pipeline.run.replay import LogStart, Replay, archive_of, replay_plan
from logboom.pipeline.run.replay_choice import ArchiveState, Choice, HeldPart, Incomplete, LogPart, choose
from logboom.pipeline.sinks.parquet import ParquetSink
from logboom.pipeline.sinks.parquet.reading import ArchiveReader

_COLUMNS: Final = ("stream", "partition", "offset", "observed_time")
_READERS: Final = 8
"""Files that are read at the same time: each needs several requests to an object store, one after the other."""
_ATTEMPTS: Final = 5
"""The archive is read again this often because files were merged during that."""


def chosen_origin(
    plan: Plan, asked: Replay, admin: StreamAdmin, totals: Callable[[], Ledger | None], *, partial: bool
) -> tuple[Replay, Choice] | Incomplete:
    """The request, with the source to read from and the reason. `asked`: the request for the log. `totals`: the
    pipeline's counts from its ledgers, None if there are none; called at most once."""
    replayed = replay_plan(plan, asked)
    log = log_parts(replayed, asked, admin)
    archives = [sink for sink in plan.sinks if isinstance(sink, ParquetSink)]
    is_cut = any(part.is_cut for part in log.values())
    counted = totals() if is_cut and archives else None
    states = [_state(plan, replayed, asked, sink, log, counted) for sink in archives] if is_cut else []
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
    """What the log has of each partition of a replay's sources."""
    counts = {name: count for name, (_, count) in partitions_of(plan, admin).items()}
    starts, ends = admin.starts(counts), admin.ends(counts)
    since, until = admin.since(counts, replay.from_ms), admin.since(counts, replay.to_ms)

    def part(name: str, number: str, start: int) -> LogPart:
        first, behind, end = since[name][number], until[name][number], ends[name][number]
        return LogPart(
            start=start,
            since=end if first < 0 else first,
            until=end if behind < 0 else behind,
            # The log starts within the time range, so earlier records may have been in it, too.
            is_cut=start > 0 and (first == start or (first < 0 and start == end)),
        )

    return {
        Origin(name, int(number)): part(name, number, start)
        for name, partitions in starts.items()
        for number, start in partitions.items()
    }


def _state(
    plan: Plan,
    replayed: Plan,
    asked: Replay,
    sink: ParquetSink,
    log: Mapping[Origin, LogPart],
    counted: Ledger | None,
) -> ArchiveState:
    unfit = why_unfit(plan, replayed, asked, sink)
    if unfit is not None:
        return ArchiveState(name=sink.name, unfit=unfit)
    archive = archive_of(plan, sink.name, plan, None)
    for attempt in range(1, _ATTEMPTS + 1):
        reader = ArchiveReader(archive.path, archive.store)
        try:
            held = held_parts(reader, asked, log)
            return ArchiveState(name=sink.name, held=held, lost_max=lost_max(plan, archive.at, counted))
        except FileNotFoundError:
            if attempt == _ATTEMPTS:
                raise
        except (OSError, pa.ArrowException) as error:
            raise PipelineError(
                f"the archive {sink.name} cannot be searched for records that the log has deleted: {error}; "
                "--from-log replays only the log's records"
            ) from error
    raise AssertionError("the last attempt returns or raises")


def why_unfit(plan: Plan, replayed: Plan, asked: Replay, archive: ParquetSink) -> str | None:
    """Why an archive does not have the events that the replay sends, in a few words."""
    if archive.name == asked.sink:
        return "it is the sink that gets the events"
    if len(archive.inputs) > 1:
        return f"it has events of {', '.join(archive.inputs)}, and does not store which event came from where"
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
    """The outputs that receive events which did not pass this one."""
    reached = {edge for source in plan.sources for edge in source.outputs}
    for node in plan.transforms:  # inputs first
        if reached & set(node.inputs):
            reached |= set(node.outputs) - {at}
    return reached


def lost_max(plan: Plan, at: str, counted: Ledger | None) -> int | None:
    """The maximum number of records that have not become events of an output since the pipeline's start; None if the
    ledgers do not contain that."""
    if counted is None:
        return None
    way = upstream(plan, [at], ()).transforms
    if any(len(node.outputs) > 1 for node in way):
        return _sent_elsewhere(upstream(plan, [at], ()), at, counted)
    names = {node.name for node in way}
    lost = (*counted.dropped.items(), *counted.dead.items(), *counted.held.items())
    return sum(count for rule, count in lost if rule.split(".")[0] in names)


def _sent_elsewhere(way: Plan, at: str, counted: Ledger) -> int | None:
    """For an output of a route: the number of input records minus the events at the output. None if one record may have
    several events there, because of a split or of two paths."""
    ways = {edge: 1 for source in way.sources for edge in source.outputs}
    for node in way.transforms:  # inputs first
        if isinstance(node, StatefulTransform) or (isinstance(node, KernelTransform) and node.splits):
            return None
        ways.update(dict.fromkeys(node.outputs, sum(ways.get(edge, 0) for edge in node.inputs)))
    if ways.get(at, 0) > len(way.sources):
        return None
    # Events without a reader are counted as dropped under the output's name, and a stream of the log is counted as a
    # sink.
    by_stream = [sent.get(at, 0) for sent in counted.routed.values()]
    were_there = max([counted.out.get(at, 0), *by_stream]) + counted.dropped.get(at, 0)
    return max(0, sum(counted.records_in.get(source.name, 0) for source in way.sources) - were_there)


def held_parts(reader: ArchiveReader, asked: Replay, log: Mapping[Origin, LogPart]) -> dict[Origin, HeldPart]:
    """What an archive has of each partition of the sources. `log`: what the log has."""
    found: dict[Origin, HeldPart] = {}
    with ThreadPoolExecutor(_READERS, "archive") as pool:
        try:
            for parts in pool.map(partial_of(_in_file, reader, asked, log), reader.files()):
                _add(found, parts.items())
        except BaseException:  # an interrupt, too: files whose reading has not begun are not read
            pool.shutdown(cancel_futures=True)
            raise
    return found


def _in_file(reader: ArchiveReader, asked: Replay, log: Mapping[Origin, LogPart], file: str) -> dict[Origin, HeldPart]:
    found: dict[Origin, HeldPart] = {}
    for events in reader.batches(file, _COLUMNS):
        _add(found, _parts(events, asked, log))
    return found


def _add(found: dict[Origin, HeldPart], parts: Iterable[tuple[Origin, HeldPart]]) -> None:
    for origin, part in parts:
        before = found.get(origin)
        found[origin] = part if before is None else _both(before, part)


def _parts(events: pa.RecordBatch, asked: Replay, log: Mapping[Origin, LogPart]) -> Iterator[tuple[Origin, HeldPart]]:
    stream, partition, offset = origins_of(events)
    seen: Any = events.column("observed_time").cast(pa.int64())
    table = pa.table({"stream": stream, "partition": partition, "offset": offset, "seen": seen})
    for pair in table.group_by(["stream", "partition"]).aggregate([]).to_pylist():
        origin = Origin(pair["stream"], pair["partition"])
        if origin in log:  # events that a transform created have their own, widely spaced offsets
            mine = table.filter(pc.and_(pc.equal(stream, origin.stream), pc.equal(partition, origin.partition)))
            yield origin, _part(mine["offset"], mine["seen"], asked, log[origin])


def _part(offset: Any, seen: Any, asked: Replay, log: LogPart) -> HeldPart:
    first_us = pc.min(seen).as_py()
    is_before = pc.fill_null(pc.less(seen, asked.from_ms * 1_000), False)
    is_after = pc.fill_null(pc.greater_equal(seen, asked.to_ms * 1_000), False)
    is_asked = pc.and_not(pc.is_valid(seen), pc.or_(is_before, is_after))
    is_older = pc.less(offset, log.start) if log.is_cut else pc.is_valid(offset)
    offsets = HeldOffsets()
    offsets.add(offset.to_numpy())
    return HeldPart(
        # Without any time, its file does not show how far back it reaches.
        first_ms=asked.from_ms if first_us is None else first_us // 1_000,
        first=pc.min(offset).as_py(),
        last=pc.max(offset).as_py(),
        older=pc.sum(pc.and_(is_asked, is_older)).as_py() or 0 if log.is_cut else 0,
        before=pc.max(offset.filter(pc.and_(is_before, is_older))).as_py(),
        after=pc.min(offset.filter(is_after)).as_py(),
        offsets=offsets,
    )


def _both(left: HeldPart, right: HeldPart) -> HeldPart:
    assert left.offsets is not None, "all files are looked at alike"
    assert right.offsets is not None, "all files are looked at alike"
    left.offsets.update(right.offsets)
    return HeldPart(
        first_ms=min(left.first_ms, right.first_ms),
        first=min(left.first, right.first),
        last=max(left.last, right.last),
        older=left.older + right.older,
        before=max((one for one in (left.before, right.before) if one is not None), default=None),
        after=min((one for one in (left.after, right.after) if one is not None), default=None),
        offsets=left.offsets,
    )
