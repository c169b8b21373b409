"""Rows on their way through transforms with a state are kept in files between the jobs of one batch.

A part holds the rows of one task of the previous job: whole partitions of origin, in order. `PartWriter` stores the
part's rows and the transforms' requests about them, by shard. `advance_shard` lets one shard answer all parts and
writes the rows that leave from the shard. `resumed_part` gives the part's rows with the answers, in their old order,
and `made_rows` the rows of the shards. Every file is completely written under a unique name before its name is
reported, so a Spark task that is retried or runs twice does no harm. The files need not survive a crash. Reports carry
their checksums; a file that does not match fails the batch, which is repeated with new files.

Knows Arrow, places and the interface of stateful transforms. Must not know Spark, or which state belongs to a batch.
"""

import functools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logboom.pipeline.errors import PipelineError, working_on
from logboom.pipeline.execute.stages import NOTED, PLACE, Counts, conform, count, flat_schema
from logboom.pipeline.plan import names
from logboom.pipeline.plan.layout import StatefulNode, StatefulStep
from logboom.pipeline.plan.stateful import EXIT, TAKEN, Advanced, Asked, BatchContext, State
from logboom.pipeline.route.rows import AT, Rows
from logboom.pipeline.state.segments import file_checksum

_ROW: Final = "row"
"""The position of the row in the Arrow batch to which a request belongs."""
_SHARD: Final = "shard"
_PARTS: Final = b"parts"
_ORIGINS_IN_MS: Final = 1 << 22
_EPOCH_MS: Final = 1_577_836_800_000
"""2020-01-01: offsets of rows that leave from shards count milliseconds from here, times `_ORIGINS_IN_MS`."""
WALL_MS_MAX: Final = _EPOCH_MS + (1 << 63) // _ORIGINS_IN_MS - 1
"""The last time for which there are such offsets, in milliseconds since 1970: in the year 2089."""

Positions = npt.NDArray[np.int64]


class PartReport(msgspec.Struct, frozen=True):
    """The report of a part for the next job."""

    part: int
    token: str
    """Part of the names of its files."""
    counts: Counts
    seen: dict[str, dict[str, int]]
    """By transform and partition of origin: the highest time, in microseconds."""
    asks: dict[str, int]
    """The transforms to which it has requests, with the checksums of the request files."""
    rows: int | None
    """The checksum of its rows; None if no rows remain."""
    first: tuple[str, int, int] | None = None
    """Stream, partition and offset of its first row; None if it has none."""

    @property
    def order(self) -> tuple[tuple[str, int, int], int]:
        """The sort key of parts. Spark may number them differently when a batch is repeated."""
        return self.first or ("", -1, -1), self.part


class ShardReport(msgspec.Struct, frozen=True):
    """The report of one shard of one transform for a batch."""

    transform: str
    shard: int
    token: str
    segments: list[str]
    """Files of its new state."""
    held: int
    remembered: int
    made: int
    """Rows that leave from it, of these `new` were not events of the input."""
    new: int
    answers_sum: int | None
    """The checksum of its answers; None if it gives none."""
    made_sum: int | None
    """The checksum of the rows that leave."""
    counts: dict[str, int]
    dropped: dict[str, int]


class Segments(Protocol):
    """The directory with the tables of a transform's state."""

    def open(self, names: Sequence[str]) -> State: ...

    def keep(self, tables: Sequence[pa.Table]) -> list[str]: ...


# --- parts -----------------------------------------------------------------------------------------------------------


class PartWriter:
    """Writes the rows of a part that has reached a step with a state; a `stages.TaskEmitter`."""

    def __init__(
        self,
        directory: Path,
        step: StatefulStep,
        contexts: Mapping[str, BatchContext],
        part: int,
        shards: int,
        *,
        keeps_dropped: bool = False,
    ) -> None:
        """`contexts`: by transform. `keeps_dropped`: whether dropped rows continue, so that they can be examined after
        the last step; otherwise they are only counted."""
        self._step, self._contexts = step, contexts
        self._part, self._shards, self._keeps_dropped = part, shards, keeps_dropped
        self._token = uuid.uuid4().hex[:12]
        self._first: tuple[str, int, int] | None = None
        self._rows = _Writer(_rows_file(directory, part, self._token))
        self._asked = {
            node.transform.name: _Writer(_asked_file(directory, part, self._token, node.transform.name))
            for node in step.nodes
        }
        self._seen: dict[str, dict[str, int]] = {node.transform.name: {} for node in step.nodes}

    def send(self, rows: Rows, counts: Counts) -> None:
        """Takes some rows, in order."""
        batch = conform(rows.flat(), flat_schema())
        if self._first is None and batch.num_rows:
            stream, partition, offset = (batch.column(name)[0].as_py() for name in ("stream", "partition", "offset"))
            self._first = stream, partition, offset
        for node in self._step.nodes:
            batch = self._ask(node, batch, counts)
        if not self._keeps_dropped:
            batch = _without_dropped(batch, counts)
        if batch.num_rows:
            self._rows.write(batch)

    def finish(self, counts: Counts) -> bytes:
        """Closes all files; returns the part's report."""
        rows = self._rows.close()
        sums = {name: writer.close() for name, writer in self._asked.items()}
        asks = {name: checksum for name, checksum in sums.items() if checksum is not None}
        return msgspec.json.encode(PartReport(self._part, self._token, counts, self._seen, asks, rows, self._first))

    def _ask(self, node: StatefulNode, batch: pa.RecordBatch, counts: Counts) -> pa.RecordBatch:
        """The batch after moving rows that need no answer to their exits."""
        at = batch.column(AT).to_numpy()
        mine = np.flatnonzero(np.isin(at, node.places))
        if not len(mine):
            return batch
        name = node.transform.name
        events = batch if len(mine) == batch.num_rows else batch.take(pa.array(mine))
        inputs = np.zeros(len(mine), np.int8)
        for code, number in node.arrivals:
            inputs[at[mine] == code] = number
        with working_on(f"transform {name}", node.transform.place):
            asked = node.transform.ask(events, inputs, self._contexts[name])
        _see(self._seen[name], events, node.transform.time_column)
        self._keep_asked(name, asked)
        for what, number in asked.counts.items():
            count(counts, f"{NOTED}:{name}.{what}", number)
        if asked.exits is None:
            return batch
        return _moved(batch, mine, node, asked.exits)

    def _keep_asked(self, name: str, asked: Asked) -> None:
        if not asked.rows.num_rows:
            return
        shards = (asked.hashes % np.uint64(self._shards)).astype(np.int16)
        order = np.argsort(shards, kind="stable")
        rows = asked.rows.take(pa.array(order))
        rows = rows.append_column(_ROW, pa.array(order.astype(np.int32)))
        self._asked[name].write(rows.append_column(_SHARD, pa.array(shards[order])))


class _Writer:
    """An Arrow file that is created with the first batch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_file(str(self._path), batch.schema)
        self._writer.write_batch(batch)

    def close(self) -> int | None:
        """Closes the file; returns its checksum, or None if nothing was written."""
        if self._writer is None:
            return None
        self._writer.close()
        return file_checksum(self._path)


def _rows_file(directory: Path, part: int, token: str) -> Path:
    return directory / f"part-{part}-{token}.rows"


def _asked_file(directory: Path, part: int, token: str, transform: str) -> Path:
    return directory / f"part-{part}-{token}.asked-{transform}"


@functools.lru_cache(maxsize=4_096)
def _whole(path: Path, checksum: int) -> Path:
    """The file, checked once by each process: names are unique. Arrow itself would not detect damage.

    :raises PipelineError: it does not hold what was written.
    """
    if file_checksum(path) != checksum:
        raise PipelineError(
            f"{path} is damaged: it does not hold what another task of the batch wrote. The batch is repeated; if "
            "this happens again, check the disk and the machine's memory for faults"
        )
    return path


def _see(seen: dict[str, int], events: pa.RecordBatch, time_column: str | None) -> None:
    """Records the highest time of each partition of origin."""
    if time_column is None:
        return
    columns = [events.column(name) for name in ("stream", "partition")]
    table = pa.table([*columns, events.column(time_column)], ["stream", "partition", "time"])
    for row in table.group_by(["stream", "partition"]).aggregate([("time", "max")]).to_pylist():
        if row["time_max"] is not None:
            name, highest = f"{row['stream']}/{row['partition']}", int(pa.scalar(row["time_max"]).value)
            seen[name] = max(seen.get(name, highest), highest)


def _moved(batch: pa.RecordBatch, mine: Positions, node: StatefulNode, exits: npt.NDArray[np.int8]) -> pa.RecordBatch:
    """The batch with these rows at the places after their exits, without rows that a shard has taken over."""
    at = batch.column(AT).to_numpy().copy()
    places = dict(node.exits)
    for code in np.unique(exits).tolist():
        if code != TAKEN:
            at[mine[exits == code]] = places[code]
    moved = batch.set_column(batch.schema.get_field_index(AT), batch.schema.field(AT), pa.array(at))
    taken = mine[exits == TAKEN]
    return moved if not len(taken) else moved.take(pa.array(np.setdiff1d(np.arange(len(at)), taken)))


def _without_dropped(batch: pa.RecordBatch, counts: Counts) -> pa.RecordBatch:
    at = batch.column(AT).to_numpy()
    if (at >= 0).all():
        return batch
    for code, rows in zip(*(found.tolist() for found in np.unique(at[at < 0], return_counts=True)), strict=True):
        count(counts, f"{PLACE}:{code}", rows)
    return batch.filter(pa.array(at >= 0))


# --- shards ----------------------------------------------------------------------------------------------------------


def advance_shard(
    directory: Path,
    node: StatefulNode,
    shard: int,
    parts: Sequence[PartReport],
    state: Sequence[str],
    segments: Segments,
    context: BatchContext,
    pipeline: str,
) -> ShardReport:
    """Lets one shard of a transform answer the requests of the parts. `state`: files of its current state."""
    name = node.transform.name
    asked = [
        (part.part, rows) for part in parts if name in part.asks for rows in _asked_of(directory, part, name, shard)
    ]
    with working_on(f"transform {name}", node.transform.place):
        done = node.transform.advance(segments.open(state), [rows for _, rows in asked], context)
    token = uuid.uuid4().hex[:12]
    answers_sum, made_sum = None, None
    if done.answers:
        path = _shard_file(directory, name, shard, token, "answers")
        answers_sum = _write_answers(path, [part for part, _ in asked], done.answers)
    made, new = _with_origins(done, node, names.made_stream(pipeline, name), shard, context.wall_ms)
    if made is not None:
        leaving = _Writer(_shard_file(directory, name, shard, token, "made"))
        leaving.write(made)
        made_sum = leaving.close()
    return ShardReport(
        transform=name,
        shard=shard,
        token=token,
        segments=segments.keep(done.state),
        held=done.held,
        remembered=done.remembered,
        made=0 if made is None else made.num_rows,
        new=new,
        answers_sum=answers_sum,
        made_sum=made_sum,
        counts=dict(done.counts),
        dropped=dict(done.dropped),
    )


def _shard_file(directory: Path, transform: str, shard: int, token: str, what: str) -> Path:
    return directory / f"shard-{transform}-{shard}-{token}.{what}"


def _asked_of(directory: Path, part: PartReport, transform: str, shard: int) -> list[pa.RecordBatch]:
    """The requests of a part to one shard: one batch, unless the text exceeds what one column can hold."""
    pieces = [piece for piece, _ in _shard_slices(_asked_by(directory, part, transform), shard)]
    whole: pa.Table = pa.Table.from_batches(pieces).drop_columns([_ROW]).combine_chunks()
    return [batch for batch in whole.to_batches() if batch.num_rows]


def _asked_by(directory: Path, part: PartReport, transform: str) -> Path:
    return _whole(_asked_file(directory, part.part, part.token, transform), part.asks[transform])


def _shard_slices(path: Path, shard: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """By Arrow batch of the part: the rows of requests to a shard, without copying, and their number."""
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            first, end = np.searchsorted(batch.column(_SHARD).to_numpy(), (shard, shard + 1)).tolist()
            yield batch.slice(first, end - first).drop_columns([_SHARD]), end - first


def _one_batch(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows of some batches, at least one of which has rows."""
    (whole,) = pa.Table.from_batches(pieces).combine_chunks().to_batches()
    return whole


def _write_answers(path: Path, parts: Sequence[int], answers: Sequence[pa.RecordBatch]) -> int:
    """Gives the checksum of the file."""
    schema = answers[0].schema.with_metadata({_PARTS: msgspec.json.encode(list(parts))})
    with pa.ipc.new_file(str(path), schema) as writer:
        for answer in answers:
            writer.write_batch(answer.replace_schema_metadata(schema.metadata))
    return file_checksum(path)


def _with_origins(
    done: Advanced, node: StatefulNode, stream: str, shard: int, wall_ms: int
) -> tuple[pa.RecordBatch | None, int]:
    """The rows that leave from a shard, and how many of them are new events.

    Their origin must always grow: readers of the edges drop records that are not above the highest origin seen.
    """
    if done.made is None or not done.made.num_rows:
        return None, 0
    rows = done.made.num_rows
    places = dict(node.exits)
    at = [places[code] for code in done.made.column(EXIT).to_pylist()]
    given = done.made.drop_columns([name for name in (EXIT, AT) if name in done.made.schema.names])
    flat = conform(given, flat_schema()) if rows else given
    overflow, row = np.divmod(np.arange(rows), _ORIGINS_IN_MS)
    partitions = shard + (overflow << 10)
    offsets = (wall_ms - _EPOCH_MS) * _ORIGINS_IN_MS + row
    ids = pa.array([f"{stream}:{p}:{o}" for p, o in zip(partitions.tolist(), offsets.tolist(), strict=True)])
    new = flat.column("event_id").null_count
    stamped = {
        "stream": pa.repeat(pa.scalar(stream), rows),
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "event_id": pc.coalesce(flat.column("event_id"), ids),
        "source": pc.fill_null(flat.column("source"), node.transform.name),
        "weight": pc.fill_null(flat.column("weight"), 1.0),
        AT: pa.array(at, pa.int32()),
    }
    for name, column in stamped.items():
        flat = flat.set_column(flat.schema.get_field_index(name), flat.schema.field(name), column)
    return flat, new


# --- behind the shards -----------------------------------------------------------------------------------------------


def resumed_part(
    directory: Path, step: StatefulStep, part: PartReport, answers: Sequence[ShardReport]
) -> Iterator[pa.RecordBatch]:
    """The rows of a part behind a step, in their order."""
    if part.rows is None:  # no rows remain
        return
    path = _whole(_rows_file(directory, part.part, part.token), part.rows)
    readers = [
        _Answers(directory, node, part, [report for report in answers if report.transform == node.transform.name])
        for node in step.nodes
        if node.transform.name in part.asks
    ]
    with pa.memory_map(str(path)) as file:
        rows = pa.ipc.open_file(file)
        for number in range(rows.num_record_batches):
            batch = rows.get_batch(number)
            for reader in readers:
                batch = reader.applied(batch)
            if batch.num_rows:
                yield batch


def made_rows(directory: Path, shards: Sequence[ShardReport]) -> Iterator[pa.RecordBatch]:
    """The rows that leave from shards."""
    for report in shards:
        if report.made_sum is not None:
            path = _whole(_shard_file(directory, report.transform, report.shard, report.token, "made"), report.made_sum)
            with pa.memory_map(str(path)) as file:
                yield from pa.ipc.open_file(file).read_all().to_batches()


class _Answers:
    """The answers of all shards of a transform to a part, in the order of its rows."""

    def __init__(self, directory: Path, node: StatefulNode, part: PartReport, shards: Sequence[ShardReport]) -> None:
        self._node = node
        self._by_shard: list[tuple[pa.RecordBatch | None, Iterator[tuple[pa.RecordBatch, int]]]] = []
        self._used = [0] * len(shards)
        for report in shards:
            found = _answers_to(directory, report, part.part)
            path = _asked_by(directory, part, report.transform)
            self._by_shard.append((found, _shard_slices(path, report.shard)))

    def applied(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch behind the transform."""
        mine = np.flatnonzero(np.isin(batch.column(AT).to_numpy(), self._node.places))
        if not len(mine):
            return batch
        answers = self._next(len(mine))
        transform = self._node.transform
        events = batch if len(mine) == batch.num_rows else batch.take(pa.array(mine))
        with working_on(f"transform {transform.name}", transform.place):
            done = conform(transform.answered(events, answers), flat_schema())
        exits = answers.column(EXIT).to_numpy()
        if len(mine) == batch.num_rows:
            return _moved(done, mine, self._node, exits)
        others = np.setdiff1d(np.arange(batch.num_rows), mine)
        both = _one_batch([done, batch.take(pa.array(others))])
        order = np.argsort(np.concatenate([mine, others]))
        return _moved(both.take(pa.array(order)), mine, self._node, exits)

    def _next(self, rows: int) -> pa.RecordBatch:
        """The answers for the next rows, as many as one Arrow batch requested."""
        pieces, positions = [], []
        for number, (found, asked) in enumerate(self._by_shard):
            batch, length = next(asked)
            if length:
                assert found is not None, "a transform without exits of its own answers every row"
                pieces.append(found.slice(self._used[number], length))
                positions.append(batch.column(_ROW).to_numpy())
                self._used[number] += length
        order = np.argsort(np.concatenate(positions))
        assert len(order) == rows, "one answer for each row"
        return _one_batch(pieces).take(pa.array(order))


def _answers_to(directory: Path, report: ShardReport, part: int) -> pa.RecordBatch | None:
    if report.answers_sum is None:
        return None
    path = _whole(_shard_file(directory, report.transform, report.shard, report.token, "answers"), report.answers_sum)
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        parts = msgspec.json.decode((reader.schema.metadata or {})[_PARTS], type=list[int])
        found = [reader.get_batch(number) for number, asking in enumerate(parts) if asking == part]
    return _one_batch(found) if found else None
