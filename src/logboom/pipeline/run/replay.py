"""A replay: events of the past once more into one sink, or into all of a pipeline's, beside the running pipeline.

What is replayed is written down (`replay.json`) before anything runs, with times instead of ages: so a replay that was
interrupted goes on under its name, with the same events. It is a pipeline of its own: its checkpoint is below that of
the pipeline whose sinks it feeds, its edges and dead letters are named after it, and its events have the attribute
`logboom.replay`. Where its events come from is one of two, or both:

- the streams of the log, which are read again and taken through the same transforms;
- an archive. Its events are brought into a stream of the replay's own first (`archive_loader`), and go on from there as
  those of one output of the pipeline, through what stands behind that output.

Where it is both (`replay_choice`), each is a part with a plan and a checkpoint of its own. They meet at a seam: an
offset of each partition, behind which the log has all. The part from the log runs first, since retention goes on
deleting there.

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
"""Holds the name of the replay in each event of it."""
IDS_MAX: Final = 10_000
_FILE: Final = "replay.json"


class ArchiveRef(msgspec.Struct, frozen=True, kw_only=True):
    """An archive whose events are replayed."""

    path: str
    """Its directory, absolute; without meaning where it is in an object store."""
    store: StoreRef | None = None
    at: str
    """The output, of the pipeline that gets the events, as whose events they go on."""


class LogStart(msgspec.Struct, frozen=True):
    """Where the log began to hold a partition when a replay was asked for."""

    stream: str
    partition: int
    offset: int


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What is replayed."""

    name: str
    sink: str | None
    """None: all sinks of the pipeline."""
    from_ms: int
    """The first that is replayed, in milliseconds since 1970: by the timestamps of records, or, from an archive, by
    when events were seen first."""
    to_ms: int
    """The first that is not any more."""
    where: str | None = None
    """SQL over the event, in front of the sinks."""
    route: str | None = None
    """The output whose events are replayed; default: all inputs of each sink."""
    ids: tuple[str, ...] = ()
    """Event ids; with any, no others are replayed."""
    events_per_s: int | None = None
    archive: ArchiveRef | None = None
    """None: from the streams of the log."""
    room_bytes: int | msgspec.UnsetType = msgspec.UNSET
    """What events of an archive may take of the log at once, in bytes before compression; the loader has a default."""
    seam: tuple[LogStart, ...] = ()
    """With any: of these partitions the archive has what is before these offsets, all else is in the log."""
    part: Literal["log", "archive"] | msgspec.UnsetType = msgspec.UNSET
    """Of a replay from both, which of them this is."""

    @property
    def reads_archive(self) -> bool:
        """Whether its events, or those of one part of it, come from an archive."""
        return self.archive is not None and self.part != "log"


def parts_of(replay: Replay) -> tuple[Replay, ...]:
    """What runs one after the other."""
    if not replay.seam:
        return (replay,)
    return tuple(msgspec.structs.replace(replay, part=part) for part in ("log", "archive"))


def directory_of(checkpoint: Path, name: str) -> Path:
    """The checkpoint of a replay. `checkpoint`: of the pipeline."""
    return checkpoint / "replays" / name


def log_part_directory(directory: Path) -> Path:
    """The checkpoint of the part from the log. `directory`: of the whole replay."""
    return directory / "log"


def remember(checkpoint: Path, replay: Replay) -> None:
    """Writes down durably what is replayed."""
    directory = directory_of(checkpoint, replay.name)
    make_dir(directory)
    write_durably(directory / _FILE, msgspec.json.encode(replay))


def remembered(checkpoint: Path, name: str) -> Replay:
    """A replay that was begun; PipelineError if there is none of this name."""
    path = directory_of(checkpoint, name) / _FILE
    if not path.exists():
        known = sorted(each.parent.name for each in (checkpoint / "replays").glob(f"*/{_FILE}"))
        raise PipelineError(f"there is no replay {name!r} ({hint(name, known)})")
    return msgspec.json.decode(path.read_bytes(), type=Replay)


def at_rate(replay: Replay, events_per_s: int | None) -> Replay:
    """A replay that goes on at another rate; at its own where none is given. What is replayed stays the same."""
    return replay if events_per_s is None else msgspec.structs.replace(replay, events_per_s=events_per_s)


def archive_of(plan: Plan, sink: str, into: Plan, at: str | None) -> ArchiveRef:
    """The archive of a sink, for a replay into a pipeline, which may be the same; PipelineError if that cannot be.

    `at`: the output of `into` as whose events they go on. Default: the one input of the archive in its own pipeline,
    the output of the one parse in another.
    """
    found = next((one for one in plan.sinks if one.name == sink), None)
    archives = [one.name for one in plan.sinks if isinstance(one, ParquetSink)]
    if not isinstance(found, ParquetSink):
        what = "no archive" if found is None else f"{_kind(found)}, which cannot be read back, and no archive"
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
            f"events of the archive {sink} may go on in {into.name} as those of {', '.join(candidates)}: "
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
        # A second's worth from each source, since a batch that gets something from one source alone may take that long.
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
    """A replay's own checkpoint stays on this machine: it is a run with an end."""
    return Path(plan.checkpoint) if plan.checkpoint_store is msgspec.UNSET else checkpoint_of(plan)


def replay_name(plan: Plan, replay: Replay) -> str:
    """The name of the pipeline that replays."""
    whole = f"{plan.name}.replay.{replay.name}"
    return f"{whole}-log" if replay.part == "log" else whole


def left_out(plan: Plan, replayed: Plan) -> list[str]:
    """Sinks of a pipeline that get nothing of a replay into all of them."""
    fed = {sink.name for sink in replayed.sinks}
    return [sink.name for sink in plan.sinks if sink.name not in fed]


def _chosen_sinks(plan: Plan, whole: Plan, replay: Replay) -> list[Sink]:
    """`whole`: what of the plan gets events."""
    if replay.sink is not None and replay.sink not in [one.name for one in plan.sinks]:
        known = hint(replay.sink, [one.name for one in plan.sinks])
        raise PipelineError(f"the pipeline {plan.name} has no sink {replay.sink!r} ({known})")
    events = [edge for node in plan.transforms for edge in node.outputs]
    if replay.route is not None and replay.route not in events:
        raise PipelineError(f"the pipeline {plan.name} has no output {replay.route!r} ({hint(replay.route, events)})")
    reached = [edge for node in whole.transforms for edge in node.outputs]
    if replay.route is not None and replay.route not in reached:
        raise PipelineError(f"no event of {_at(replay)} comes to {replay.route}: name another output with --at")
    # A route of its own leads to a sink, whatever the sink's inputs are.
    sinks = [one for one in (whole if replay.route is None else plan).sinks if replay.sink in (None, one.name)]
    if replay.sink is None:  # an archive that is read is not written
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
    """What of the plan the events of an archive go through."""
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
