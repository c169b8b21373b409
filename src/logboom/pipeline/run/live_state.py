"""The current state of each node of a running pipeline, from its ledgers and the offsets of its queries. Reads only
files and the log. Must not know Spark or how the state is shown."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.ledger import EMPTY, BatchLedgers
from logboom.pipeline.checkpoint.spark_log import last_committed, offsets_of
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.plan import names
from logboom.pipeline.plan.layout import is_direct
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.run.dry_run import partitions_of
from logboom.pipeline.run.volume import started_ms

WINDOW_S: Final = 30.0


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """One node. None: not counted for this kind of node."""

    events_per_s: float | None = None
    dropped_per_s: float | None = None
    dead: int | None = None
    """Dead letters in its stream now, including retried ones."""
    lag: int | None = None
    """Records of its inputs that it has not processed yet."""


def live_state(plan: Plan, checkpoint: Path, admin: StreamAdmin, now_ms: int | None = None) -> dict[str, NodeState]:
    """Rates by node over the last half minute."""
    now_ms = int(time.time() * 1_000) if now_ms is None else now_ms
    entries = BatchLedgers(checkpoint / "ledger").entries() if (checkpoint / "ledger").exists() else []
    recent = EMPTY
    for entry in entries:
        if started_ms(entry) + entry.duration_ms >= now_ms - WINDOW_S * 1_000:
            recent = recent.plus(entry.ledger)
    there = admin.partitions()
    found: dict[str, NodeState] = {}
    for source in plan.sources:
        streams = {name: count for name, (of, count) in partitions_of(plan, admin).items() if of.name == source.name}
        found[source.name] = NodeState(
            events_per_s=recent.records_in.get(source.name, 0) / WINDOW_S,
            lag=_lag(admin, streams, checkpoint / "router"),
        )
    for node in plan.transforms:
        rules = [rule for rule in recent.dropped if rule == node.name or rule.startswith(f"{node.name}.")]
        found[node.name] = NodeState(
            dropped_per_s=sum(recent.dropped[rule] for rule in rules) / WINDOW_S,
            dead=_letters(admin, there, plan.name, node.name),
        )
    for sink in plan.sinks:
        edges = {name: there[name] for edge in sink.inputs if (name := names.edge_stream(plan.name, edge)) in there}
        routes = [sink.name] if is_direct(sink) else sink.inputs
        found[sink.name] = NodeState(
            events_per_s=sum(recent.out.get(route, 0) for route in routes) / WINDOW_S,
            dead=_letters(admin, there, plan.name, sink.name),
            lag=None if is_direct(sink) else _lag(admin, edges, checkpoint / "deliveries" / sink.name / "query"),
        )
    return found


def _letters(admin: StreamAdmin, there: Mapping[str, int], pipeline: str, stage: str) -> int:
    stream = names.dead_stream(pipeline, stage)
    return _between(admin, {stream: there[stream]}, {}) if stream in there else 0


def _lag(admin: StreamAdmin, streams: Mapping[str, int], query: Path) -> int:
    batch = last_committed(query)
    return _between(admin, streams, {} if batch is None else offsets_of(query, batch))


def _between(admin: StreamAdmin, streams: Mapping[str, int], reached: Mapping[str, Mapping[int, int]]) -> int:
    """Number of records after the processed offset; without one, after the beginning of the stream."""
    starts, ends = admin.starts(streams), admin.ends(streams)
    return sum(
        max(0, end - max(starts[stream][number], reached.get(stream, {}).get(int(number), 0)))
        for stream, partitions in ends.items()
        for number, end in partitions.items()
    )
