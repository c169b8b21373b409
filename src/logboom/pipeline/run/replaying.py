"""A replay: events of the past once more into one sink, as a pipeline of its own beside the running one.

What is replayed is written down (`replay.json`) before anything runs, with times instead of ages: so a replay that was
interrupted goes on under its name, with the same events. It reads the streams of the log again, takes the records
through the same transforms as the pipeline does, and delivers to the one sink alone; its events have the attribute
`logboom.replay`. Its checkpoint is below that of the pipeline, its edges and dead letters are named after it.

Knows plans and one file. Must not know Spark or the log.
"""

from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.files import make_dir, write_durably
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.findings import hint
from logboom.pipeline.plan.nodes import Plan, StreamSource, Transform
from logboom.pipeline.plan.upstream import unused_name, upstream
from logboom.pipeline.transforms.filter import FilterTransform
from logboom.pipeline.transforms.reshape import ReshapeTransform, SetField

MARK: Final = "attributes.logboom.replay"
"""Holds the name of the replay in each event of it."""
IDS_MAX: Final = 10_000
_FILE: Final = "replay.json"


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What is replayed."""

    name: str
    sink: str
    from_ms: int
    """Of the records' timestamps, in milliseconds since 1970; the first that is replayed."""
    to_ms: int
    """The first that is not any more."""
    where: str | None = None
    """SQL over the event, in front of the sink."""
    route: str | None = None
    """The output whose events are replayed; default: all inputs of the sink."""
    ids: tuple[str, ...] = ()
    """Event ids; with any, no others are replayed."""
    events_per_s: int | None = None


def directory_of(checkpoint: Path, name: str) -> Path:
    """The checkpoint of a replay. `checkpoint`: of the pipeline."""
    return checkpoint / "replays" / name


def remember(checkpoint: Path, replay: Replay) -> None:
    """Writes down durably what is replayed."""
    directory = directory_of(checkpoint, replay.name)
    make_dir(directory)
    write_durably(directory / _FILE, msgspec.json.encode(replay))


def remembered(checkpoint: Path, name: str) -> Replay:
    """A replay that was begun; PipelineError where there is none of this name."""
    path = directory_of(checkpoint, name) / _FILE
    if not path.exists():
        known = sorted(each.parent.name for each in (checkpoint / "replays").glob(f"*/{_FILE}"))
        raise PipelineError(f"there is no replay {name!r} ({hint(name, known)})")
    return msgspec.json.decode(path.read_bytes(), type=Replay)


def replay_plan(plan: Plan, replay: Replay) -> Plan:
    """The pipeline that replays; PipelineError where the plan has no such sink or output."""
    sink = next((sink for sink in plan.sinks if sink.name == replay.sink), None)
    if sink is None:
        known = hint(replay.sink, [one.name for one in plan.sinks])
        raise PipelineError(f"the pipeline {plan.name} has no sink {replay.sink!r} ({known})")
    edges = sink.inputs if replay.route is None else (replay.route,)
    events = [edge for node in plan.transforms for edge in node.outputs]
    if replay.route is not None and replay.route not in events:
        raise PipelineError(f"the pipeline {plan.name} has no output {replay.route!r} ({hint(replay.route, events)})")
    chosen = FilterTransform(
        name=unused_name(plan, "chosen"), line=sink.line, inputs=edges, condition=_condition(replay)
    )
    mark = SetField(target=MARK, sql=f"'{replay.name}'", column="set_replayed_0", line=sink.line)
    marked = ReshapeTransform(name=unused_name(plan, "replayed"), line=sink.line, inputs=(chosen.name,), set=(mark,))
    into = msgspec.structs.replace(sink, inputs=(marked.name,))
    part = upstream(plan, edges, (into,))
    added: tuple[Transform, ...] = (chosen, marked)
    most = plan.max_records_per_batch
    return msgspec.structs.replace(
        part,
        name=f"{plan.name}.replay.{replay.name}",
        checkpoint=str(directory_of(Path(plan.checkpoint), replay.name)),
        max_records_per_batch=most if replay.events_per_s is None else max(1, min(most, replay.events_per_s)),
        sources=tuple(_bounded(source, replay) for source in part.sources),
        transforms=(*part.transforms, *added),
    )


def _bounded(source: StreamSource, replay: Replay) -> StreamSource:
    return msgspec.structs.replace(
        source, from_ms=replay.from_ms, until_ms=replay.to_ms, on_data_loss="continue", start="earliest"
    )


def _condition(replay: Replay) -> str:
    parts = [] if replay.where is None else [f"({replay.where})"]
    if replay.ids:
        listed = ", ".join("'{}'".format(one.replace("\\", "\\\\").replace("'", "\\'")) for one in replay.ids)
        parts.append(f"event_id IN ({listed})")
    return " AND ".join(parts) or "true"
