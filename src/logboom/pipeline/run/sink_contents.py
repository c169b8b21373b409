"""Reads back the events of sinks from streams, archives and servers, for counts and comparisons.

Knows the log, streams and archives, which can be read without the sink; servers are read by their kind of sink. Must
not know Spark or what is compared.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import pyarrow as pa
from confluent_kafka import Message

from logboom.base.errors import LogboomError
from logboom.pipeline.edge.letters import headers_of
from logboom.pipeline.edge.reading import read_ranges
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.names import HEADER_EVENT_ID
from logboom.pipeline.plan.nodes import KeyRef, Plan, Sink
from logboom.pipeline.plan.paths import resolved
from logboom.pipeline.run.dry_run import ranges_since
from logboom.pipeline.sinks.bulk.model import BulkSink
from logboom.pipeline.sinks.bulk.secrets import without_secrets
from logboom.pipeline.sinks.parquet import ParquetSink
from logboom.pipeline.sinks.parquet.reading import ArchiveReader
from logboom.pipeline.sinks.read_back import Held, Since, milliseconds_of
from logboom.pipeline.sinks.registry import type_of
from logboom.pipeline.sinks.stream import StreamSink

EVENTS_MAX: Final = 2_000_000
"""Limit of events of one sink; a comparison holds the ids of two sinks in memory."""
_COLUMNS: Final = ("event_id", "service", "observed_time", "time", "weight")


class _Event(msgspec.Struct):
    event_id: str = ""
    service: str | None = None
    observed_time: str | None = None
    time: str | None = None
    weight: float = 1.0


_decode = msgspec.json.Decoder(_Event).decode


def is_open(sink: Sink) -> bool:
    """Whether it can be read without the sink: a stream without a credential, or an archive."""
    is_open_stream = isinstance(sink, StreamSink) and sink.encoding == "json" and sink.security is msgspec.UNSET
    return isinstance(sink, ParquetSink) or is_open_stream


def hindrance(sink: Sink) -> str | None:
    """Why a sink cannot be read back, as the end of a sentence; None if it can."""
    if is_open(sink):
        return None
    read_back = type_of(sink).read_back
    return "cannot be read back from here" if read_back is None else read_back.hindrance(sink)


def is_by_time(sink: Sink) -> bool:
    """Whether it is searched by the events' own times, instead of the times when they were first seen."""
    read_back = None if is_open(sink) else type_of(sink).read_back
    return read_back is not None and read_back.is_by_time(sink)


def held_by(
    plan: Plan, sink: Sink, admin: StreamAdmin, since_ms: int, secret: Callable[[KeyRef], str] | None = None
) -> Iterator[Held]:
    """The events in a sink that were first seen at this time or later.

    `secret`: returns the texts of credentials, for sinks that are not open.

    :raises PipelineError: its server does not answer or refuses; or there are more events than `EVENTS_MAX`.
    """
    found: Iterator[Held] = iter(())
    if isinstance(sink, ParquetSink):
        store = None if sink.store is msgspec.UNSET else sink.store
        found = archived(ArchiveReader("" if store else str(resolved(plan, sink.path)), store), since_ms)
    elif isinstance(sink, StreamSink):
        found = _streamed(sink, admin, since_ms)
    elif isinstance(sink, BulkSink) and secret is not None:
        found = _served(sink, secret, since_ms)
    for number, held in enumerate(found):
        if number == EVENTS_MAX:
            raise PipelineError(
                f"{sink.name} has more than {EVENTS_MAX:,} events of that time: choose a shorter time with --since"
            )
        yield held


def _served(sink: BulkSink, secret: Callable[[KeyRef], str], since_ms: int) -> Iterator[Held]:
    read_back = type_of(sink).read_back
    assert read_back is not None
    secrets: dict[str, str] = {}
    try:
        secrets |= {ref.id: secret(ref) for _, ref in sink.secret_refs}
        for held in read_back.events(sink, secrets, Since(since_ms)):
            if held.observed_ms >= since_ms or read_back.is_by_time(sink):
                yield held
    except LogboomError as error:
        raise PipelineError(f"{sink.name}: {without_secrets(str(error), secrets.values())}") from error


def _streamed(sink: StreamSink, admin: StreamAdmin, since_ms: int) -> Iterator[Held]:
    there = admin if sink.bootstrap is None else StreamAdmin(sink.bootstrap)
    partitions = there.partitions().get(sink.stream)
    if partitions is None:
        return
    for message in read_ranges(there.bootstrap, ranges_since(there, {sink.stream: partitions}, since_ms)):
        held = _of_record(message)
        if held is not None and held.observed_ms >= since_ms:
            yield held


def _of_record(message: Message) -> Held | None:
    """None for a record that is not an event of a pipeline."""
    value = message.value()
    if not isinstance(value, bytes) or HEADER_EVENT_ID not in dict(headers_of(message)):
        return None
    try:
        event = _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    arrived_ms = message.timestamp()[1]
    seen_ms = milliseconds_of(event.observed_time)
    observed_ms = arrived_ms if seen_ms is None else seen_ms
    service, time_ms = event.service or "", milliseconds_of(event.time)
    return Held(event.event_id, service, observed_ms, arrived_ms, len(value), event.weight, time_ms)


def archived(reader: ArchiveReader, since_ms: int) -> Iterator[Held]:
    """The events of an archive that were first seen at this time or later, without arrival times."""
    for file in reader.files():
        for batch in reader.batches(file, _COLUMNS, since_ms):
            observed, times = (batch.column(name).cast(pa.int64()).to_pylist() for name in ("observed_time", "time"))
            ids, services, weights = (batch.column(name).to_pylist() for name in ("event_id", "service", "weight"))
            for event_id, service, at, time, weight in zip(ids, services, observed, times, weights, strict=True):
                time_ms = None if time is None else time // 1_000
                yield Held(event_id, service or "", at // 1_000, weight=weight or 1.0, time_ms=time_ms)
