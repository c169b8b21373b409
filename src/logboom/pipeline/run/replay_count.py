"""What a replay would send, counted without sending it: the dry run of `logboom pipeline replay`.

Knows the log, archives and dry runs. Must not know Spark sessions.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import pyarrow as pa

from logboom.pipeline.edge.reading import read_ranges
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.event.json import json_values
from logboom.pipeline.event.schema import HEADERS, LIVE_SCHEMA, MICROSECONDS
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.run.dry_run import dry_run, partitions_of, ranges_since, record_batch
from logboom.pipeline.run.replay import Replay
from logboom.pipeline.sinks.parquet.reading import ArchiveReader

_CHUNK: Final = 5_000


class ReplayCount(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay reads, and what comes of it."""

    records: int
    """Of the log, or events of the archive."""
    by_sink: dict[str, int]
    """Events that would go to each sink."""
    loaded_bytes: int = 0
    """Of an archive: room that its events take in the log meanwhile, before compression; times the log's replicas."""

    @property
    def events(self) -> int:
        """To all sinks together."""
        return sum(self.by_sink.values())


def count_replay(plan: Plan, replay: Replay, admin: StreamAdmin, keys: Mapping[str, bytes]) -> ReplayCount:
    """`plan`: that of the replay."""
    records, loaded, found = 0, 0, Counter[str]({sink.name: 0 for sink in plan.sinks})
    batches = _of_log(plan, replay, admin) if replay.archive is None else _of_archive(plan, replay)
    with dry_run(plan, keys) as run:
        for batch in batches:
            records += batch.num_rows
            loaded += 0 if replay.archive is None else batch.column("value").nbytes
            found.update(run.by_sink(batch))
    return ReplayCount(records=records, by_sink=dict(found), loaded_bytes=loaded)


def begins_late(plan: Plan, replay: Replay, admin: StreamAdmin) -> list[str]:
    """The streams of which records of the time that is asked for may be deleted: what they hold begins within it."""
    counts = {name: count for name, (_, count) in partitions_of(plan, admin).items()}
    starts, ends, since = admin.starts(counts), admin.ends(counts), admin.since(counts, replay.from_ms)

    def is_cut(name: str, number: str, start: int) -> bool:
        first = since[name][number]
        return start > 0 and (first == start or (first < 0 and start == ends[name][number]))

    return sorted(
        name
        for name, partitions in starts.items()
        if any(is_cut(name, number, start) for number, start in partitions.items())
    )


def _of_log(plan: Plan, replay: Replay, admin: StreamAdmin) -> Iterator[pa.RecordBatch]:
    sources = partitions_of(plan, admin)
    ranges = ranges_since(admin, {name: count for name, (_, count) in sources.items()}, replay.from_ms)
    chunk = []
    for message in read_ranges(admin.bootstrap, ranges):
        if replay.from_ms <= message.timestamp()[1] < replay.to_ms:
            chunk.append(message)
        if len(chunk) == _CHUNK:
            yield record_batch(chunk, sources)
            chunk = []
    if chunk:
        yield record_batch(chunk, sources)


def _of_archive(plan: Plan, replay: Replay) -> Iterator[pa.RecordBatch]:
    assert replay.archive is not None, "one from the log has none"
    source = plan.sources[0]
    reader = ArchiveReader(replay.archive.path, replay.archive.store)
    for file in reader.files():
        for events in reader.batches(file, LIVE_SCHEMA.names, replay.from_ms, replay.to_ms, replay.ids):
            rows = events.num_rows
            yield pa.RecordBatch.from_pydict(
                {
                    "source": pa.repeat(pa.scalar(source.name), rows),
                    "stream": pa.repeat(pa.scalar(source.streams[0]), rows),
                    "partition": pa.repeat(pa.scalar(0, pa.int32()), rows),
                    "offset": pa.array(range(rows), pa.int64()),
                    "timestamp": pa.nulls(rows, MICROSECONDS),
                    "key": pa.nulls(rows, pa.binary()),
                    "value": json_values(events),
                    "headers": pa.nulls(rows, HEADERS),
                }
            )
