"""A replay: sends past events again to one sink or all sinks of a pipeline, while the pipeline runs.

The definition of a replay is stored (`replay.json`) before anything runs, with absolute times: so an interrupted replay
can be continued by its name, with the same events. A replay is a separate pipeline: its checkpoint is below that of the
pipeline whose sinks it feeds, its edges and dead letters have its own name, and its events have the attribute
`logboom.replay`. Its events come from one or both of these:

- the streams of the log, which are read again and taken through the same transforms;
- an archive. Its events are brought into a stream of the replay's own first (`archive_loader`), and go on from there as
  those of one output of the pipeline, through what stands behind that output.

A replay from both (`replay_choice`) has two parts, each with its own plan and checkpoint. The border is an offset of
each partition, from which on the log has everything. The part from the log runs first, because retention continues to
delete records there.

Knows plans and one file. Must not know Spark or the log.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from logboom.pipeline.checkpoint.files import make_dir, write_durably
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.findings import hint
from logboom.pipeline.plan.names import archived_stream
from logboom.pipeline.plan.nodes import KernelTransform, Plan, Sink, StreamSource, Transform
from logboom.pipeline.plan.paths import checkpoint_of, resolved
from logboom.pipeline.plan.sql_text import bracketed
from logboom.pipeline.plan.stores import StoreRef
from logboom.pipeline.plan.upstream import unused_name, upstream, with_entry
from logboom.pipeline.sinks.parquet import ParquetSink
from logboom.pipeline.transforms.decode_events import ArchivedTransform
from logboom.pipeline.transforms.filter import FilterTransform
from logboom.pipeline.transforms.reshape import ReshapeTransform, SetField

MARK: Final = "attributes.logboom.replay"
"""The attribute that contains the name of the replay."""
IDS_MAX: Final = 10_000
_FILE: Final = "replay.json"


class ArchiveRef(msgspec.Struct, frozen=True, kw_only=True):
    """An archive whose events are replayed."""

    path: str
    """Its absolute directory; unused for an object store."""
    store: StoreRef | None = None
    at: str
    """The output of the receiving pipeline at which the events continue."""


class LogStart(msgspec.Struct, frozen=True):
    """The log start offsets of partitions when the replay was requested."""

    stream: str
    partition: int
    offset: int


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a replay."""

    name: str
    sink: str | None
    """None: all sinks of the pipeline."""
    from_ms: int
    """Start of the time range (inclusive), in milliseconds since 1970: of the records' timestamps or, for an archive,
    of when events were first seen."""
    to_ms: int
    """End of the time range (exclusive)."""
    where: str | None = None
    """SQL filter on events, before the sinks."""
    route: str | None = None
    """The output whose events are replayed; default: all inputs of each sink."""
    ids: tuple[str, ...] = ()
    """Event ids; if not empty, only these are replayed."""
    events_per_s: int | None = None
    archive: ArchiveRef | None = None
    """None: from the streams of the log."""
    room_bytes: int | msgspec.UnsetType = msgspec.UNSET
    """Limit in bytes, before compression, of an archive's events in the log at a time; None: the loader's default."""
    seam: tuple[LogStart, ...] = ()
    """If not empty, the archive is read up to these offsets of these partitions, and the log for everything else."""
    part: Literal["log", "archive"] | msgspec.UnsetType = msgspec.UNSET
    """Which part this is, if the replay has two."""

    @property
    def reads_archive(self) -> bool:
        """Whether its events, or those of one part, come from an archive."""
        return self.archive is not None and self.part != "log"


def parts_of(replay: Replay) -> tuple[Replay, ...]:
    """The parts, which run one after the other."""
    if not replay.seam:
        return (replay,)
    return tuple(msgspec.structs.replace(replay, part=part) for part in ("log", "archive"))


def directory_of(checkpoint: Path, name: str) -> Path:
    """The checkpoint of a replay. `checkpoint`: that of the pipeline."""
    return checkpoint / "replays" / name


def log_part_directory(directory: Path) -> Path:
    """The checkpoint of the part from the log. `directory`: that of the whole replay."""
    return directory / "log"


def remember(checkpoint: Path, replay: Replay) -> None:
    """Store the definition durably."""
    directory = directory_of(checkpoint, replay.name)
    make_dir(directory)
    write_durably(directory / _FILE, msgspec.json.encode(replay))


def remembered(checkpoint: Path, name: str) -> Replay:
    """Load a replay that was started; PipelineError if there is none with this name."""
    path = directory_of(checkpoint, name) / _FILE
    if not path.exists():
        known = sorted(each.parent.name for each in (checkpoint / "replays").glob(f"*/{_FILE}"))
        raise PipelineError(f"there is no replay {name!r} ({hint(name, known)})")
    return msgspec.json.decode(path.read_bytes(), type=Replay)


def at_rate(replay: Replay, events_per_s: int | None) -> Replay:
    """The replay with another rate, if one is given. Everything else stays the same."""
    return replay if events_per_s is None else msgspec.structs.replace(replay, events_per_s=events_per_s)


def archive_of(plan: Plan, sink: str, into: Plan, at: str | None) -> ArchiveRef:
    """The archive of a sink, for a replay into a pipeline, which may be the same; PipelineError if that is not
    possible.

    `at`: the output of `into` at which the events continue. Default: the archive's only input in its own pipeline, or
    the output of the only parse in another.
    """
    found = next((one for one in plan.sinks if one.name == sink), None)
    archives = [one.name for one in plan.sinks if isinstance(one, ParquetSink)]
    if not isinstance(found, ParquetSink):
        what = "no archive" if found is None else f"{_kind(found)}, which cannot be read back, and not an archive"
        raise PipelineError(f"the pipeline {plan.name} has {what} {sink!r} ({hint(sink, archives)})")
    edges = [edge for node in into.transforms for edge in node.outputs]
    if at is None and into is plan:
        candidates: Sequence[str] = found.inputs
    elif at is None:
        candidates = [node.name for node in into.transforms if isinstance(node, KernelTransform) and node.reads_records]
    else:
        candidates = (at,)
    if len(candidates) != 1:
        raise PipelineError(
            f"events of the archive {sink} may continue in {into.name} at {', '.join(candidates)}: "
            "choose with --at OUTPUT"
        )
    if candidates[0] not in edges:
        raise PipelineError(f"the pipeline {into.name} has no output {candidates[0]!r} ({hint(candidates[0], edges)})")
    path, store = _place(plan, found)
    return ArchiveRef(path=path, store=store, at=candidates[0])


def _kind(sink: Sink) -> str:
    return f"a sink of type {type(sink).__struct_config__.tag}"


def replay_plan(plan: Plan, replay: Replay) -> Plan:
    """The pipeline that replays; PipelineError if the plan has no such sink or output."""
    whole = _from_archive(plan, replay, replay.archive) if replay.archive and replay.reads_archive else plan
    sinks = _chosen_sinks(plan, whole, replay)
    added: list[Transform] = []
    fed: list[Sink] = []
    by_edges: dict[tuple[str, ...], str] = {}
    for sink in sinks:
        edges = sink.inputs if replay.route is None else (replay.route,)
        if edges not in by_edges:
            taken = [node.name for node in added]
            chosen = FilterTransform(
                name=unused_name(plan, "chosen", taken), line=sink.line, inputs=edges, condition=_condition(replay)
            )
            name = unused_name(plan, "replayed", taken)
            mark = SetField(target=MARK, sql=f"'{replay.name}'", column=f"set_{name}_0", line=sink.line)
            added += [chosen, ReshapeTransform(name=name, line=sink.line, inputs=(chosen.name,), set=(mark,))]
            by_edges[edges] = name
        fed.append(msgspec.structs.replace(sink, inputs=(by_edges[edges],)))
    part = upstream(whole, [edge for edges in by_edges for edge in edges], fed)
    most, directory = plan.max_records_per_batch, directory_of(_checkpoint(plan), replay.name)
    if replay.events_per_s is not None:
        # One second's worth of records from each source, because a batch with records of only one source may take a
        # second.
        most = max(1, min(most, replay.events_per_s * len(part.sources)))
    return msgspec.structs.replace(
        part,
        name=replay_name(plan, replay),
        checkpoint=str(log_part_directory(directory) if replay.part == "log" else directory),
        checkpoint_store=msgspec.UNSET,
        max_records_per_batch=most,
        sources=part.sources if replay.reads_archive else tuple(_bounded(one, replay) for one in part.sources),
        transforms=(*part.transforms, *added),
    )


def _checkpoint(plan: Plan) -> Path:
    """A replay's checkpoint is always local, because its run ends."""
    return Path(plan.checkpoint) if plan.checkpoint_store is msgspec.UNSET else checkpoint_of(plan)


def replay_name(plan: Plan, replay: Replay) -> str:
    """The name of the replay's pipeline."""
    whole = f"{plan.name}.replay.{replay.name}"
    return f"{whole}-log" if replay.part == "log" else whole


def left_out(plan: Plan, replayed: Plan) -> list[str]:
    """Sinks of a pipeline that receive no events of a replay into all sinks."""
    fed = {sink.name for sink in replayed.sinks}
    return [sink.name for sink in plan.sinks if sink.name not in fed]


def _chosen_sinks(plan: Plan, whole: Plan, replay: Replay) -> list[Sink]:
    """`whole`: the part of the plan that receives events."""
    if replay.sink is not None and replay.sink not in [one.name for one in plan.sinks]:
        known = hint(replay.sink, [one.name for one in plan.sinks])
        raise PipelineError(f"the pipeline {plan.name} has no sink {replay.sink!r} ({known})")
    events = [edge for node in plan.transforms for edge in node.outputs]
    if replay.route is not None and replay.route not in events:
        raise PipelineError(f"the pipeline {plan.name} has no output {replay.route!r} ({hint(replay.route, events)})")
    reached = [edge for node in whole.transforms for edge in node.outputs]
    if replay.route is not None and replay.route not in reached:
        raise PipelineError(f"no event of {_at(replay)} comes to {replay.route}: name another output with --at")
    # An additional route leads to the sink, whatever the sink's inputs are.
    sinks = [one for one in (whole if replay.route is None else plan).sinks if replay.sink in (None, one.name)]
    if replay.sink is None:  # an archive that is being read is not written
        sinks = [one for one in sinks if replay.archive is None or not _is_archive(plan, one, replay.archive)]
    if not sinks:
        raise PipelineError(f"no event of {_at(replay)} comes to the sink {replay.sink}: name another output with --at")
    return sinks


def _is_archive(plan: Plan, sink: Sink, archive: ArchiveRef) -> bool:
    return isinstance(sink, ParquetSink) and _place(plan, sink) == (archive.path, archive.store)


def _place(plan: Plan, sink: ParquetSink) -> tuple[str, StoreRef | None]:
    if sink.store is not msgspec.UNSET:
        return "", sink.store
    return str(resolved(plan, sink.path).resolve()), None


def _at(replay: Replay) -> str:
    return replay.archive.at if replay.archive is not None and replay.reads_archive else "the log"


def _from_archive(plan: Plan, replay: Replay, archive: ArchiveRef) -> Plan:
    """The part of the plan that an archive's events pass."""
    events = [edge for node in plan.transforms for edge in node.outputs]
    if archive.at not in events:
        raise PipelineError(f"the pipeline {plan.name} has no output {archive.at!r} ({hint(archive.at, events)})")
    name = unused_name(plan, "archived")
    source = StreamSource(name=name, line=0, streams=(archived_stream(replay_name(plan, replay)),))
    return with_entry(plan, source, ArchivedTransform(name=archive.at, line=0, inputs=(name,)))


def _bounded(source: StreamSource, replay: Replay) -> StreamSource:
    return msgspec.structs.replace(
        source, from_ms=replay.from_ms, until_ms=replay.to_ms, on_data_loss="continue", start="earliest"
    )


def _condition(replay: Replay) -> str:
    parts = [] if replay.where is None else [bracketed(replay.where)]
    if replay.ids:
        listed = ", ".join("'{}'".format(one.replace("\\", "\\\\").replace("'", "\\'")) for one in replay.ids)
        parts.append(f"event_id IN ({listed})")
    return " AND ".join(parts) or "true"
