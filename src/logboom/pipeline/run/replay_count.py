"""Counts what a replay would send, without sending it: the dry run of `logboom pipeline replay`.

Knows the log, archives and dry runs. Must not know Spark sessions.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec
import pyarrow as pa

from logboom.base.units import MIB
from logboom.pipeline.edge.reading import read_ranges
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.event.json import json_values
from logboom.pipeline.event.schema import HEADERS, MICROSECONDS
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.run.archive_slices import ArchivePart, Origin
from logboom.pipeline.run.dry_run import dry_run, partitions_of, ranges_since, record_batch
from logboom.pipeline.run.replay import Replay
from logboom.pipeline.sinks.parquet.reading import ArchiveReader

_CHUNK: Final = 5_000
_CHUNK_BYTES: Final = 64 * MIB


class ReplayCount(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a replay and its results."""

    from_log: int
    """Records read from the log."""
    from_archive: int
    """Events read from an archive."""
    by_sink: dict[str, int]
    """Events for each sink."""
    loaded_bytes: int = 0
    """For an archive: space that its events take in the log during the replay, before compression, times the
    replicas."""

    @property
    def records(self) -> int:
        """Records of the log and events of the archive."""
        return self.from_log + self.from_archive

    @property
    def events(self) -> int:
        """Events for all sinks together."""
        return sum(self.by_sink.values())

    def plus(self, other: "ReplayCount") -> "ReplayCount":
        """The sum of two parts of one replay."""
        return ReplayCount(
            from_log=self.from_log + other.from_log,
            from_archive=self.from_archive + other.from_archive,
            by_sink={
                name: self.by_sink.get(name, 0) + other.by_sink.get(name, 0) for name in self.by_sink | other.by_sink
            },
            loaded_bytes=self.loaded_bytes + other.loaded_bytes,
        )


def count_replay(
    plan: Plan,
    replay: Replay,
    admin: StreamAdmin,
    keys: Mapping[str, bytes],
    told: Callable[[int], None] = lambda records: None,
) -> ReplayCount:
    """`plan`: that of the replay or of this part. `told`: called now and then with the number of records so far."""
    records, loaded, found = 0, 0, Counter[str]({sink.name: 0 for sink in plan.sinks})
    batches = _of_archive(plan, replay) if replay.reads_archive else _of_log(plan, replay, admin)
    with dry_run(plan, keys) as run:
        for batch in batches:
            records += batch.num_rows
            loaded += batch.column("value").nbytes if replay.reads_archive else 0
            found.update(run.by_sink(batch))
            told(records)
        found.update(run.rest_by_sink())
    from_archive = records if replay.reads_archive else 0
    return ReplayCount(
        from_log=records - from_archive, from_archive=from_archive, by_sink=dict(found), loaded_bytes=loaded
    )


def _of_log(plan: Plan, replay: Replay, admin: StreamAdmin) -> Iterator[pa.RecordBatch]:
    sources = partitions_of(plan, admin)
    ranges = ranges_since(admin, {name: count for name, (_, count) in sources.items()}, replay.from_ms)
    chunk, size_bytes = [], 0
    for message in read_ranges(admin.bootstrap, ranges):
        if replay.from_ms <= message.timestamp()[1] < replay.to_ms:
            chunk.append(message)
            size_bytes += len(message.value() or b"")
        if len(chunk) == _CHUNK or size_bytes >= _CHUNK_BYTES:
            yield record_batch(chunk, sources)
            chunk, size_bytes = [], 0
    if chunk:
        yield record_batch(chunk, sources)


def _of_archive(plan: Plan, replay: Replay) -> Iterator[pa.RecordBatch]:
    assert replay.archive is not None, "one from the log has none"
    source = plan.sources[0]
    reader = ArchiveReader(replay.archive.path, replay.archive.store)
    end = {Origin(one.stream, one.partition): one.offset for one in replay.seam} if replay.seam else None
    part = ArchivePart(reader, tuple(reader.files()), replay.from_ms, replay.to_ms, replay.ids, {}, end)
    for events in _chunks(each for file in range(len(part.files)) for each in part.events(file)):
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


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: an archive may have very many small files, and each batch has a fixed cost."""
    held: list[pa.RecordBatch] = []
    rows, size_bytes = 0, 0
    for batch in batches:
        held.append(batch)
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        if rows >= _CHUNK or size_bytes >= _CHUNK_BYTES:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, rows, size_bytes = [], 0, 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()
