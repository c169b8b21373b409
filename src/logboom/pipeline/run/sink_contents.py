"""What sinks hold of the events that came to them: read back from streams and archives, for counts and comparisons.

Knows the sinks whose contents can be read by anybody, and the log. Must not know Spark or what is compared.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from confluent_kafka import Message

from logboom.pipeline.edge.letters import headers_of
from logboom.pipeline.edge.reading import read_ranges
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.plan.names import HEADER_EVENT_ID
from logboom.pipeline.plan.nodes import Plan, Sink
from logboom.pipeline.plan.paths import resolved
from logboom.pipeline.run.dry_run import ranges_since
from logboom.pipeline.sinks.parquet import ParquetSink
from logboom.pipeline.sinks.parquet.reading import ArchiveReader
from logboom.pipeline.sinks.stream import StreamSink

EVENTS_MAX: Final = 2_000_000
"""Of one sink; what is beyond is not read."""
_COLUMNS: Final = ("event_id", "service", "observed_time", "weight")


class Held(NamedTuple):
    """One event that a sink holds."""

    event_id: str
    service: str
    observed_ms: int
    """When it was seen first, in milliseconds since 1970."""
    arrived_ms: int | None
    """When it came to the sink; None where the sink does not say."""
    size_bytes: int | None
    """None where events have no size of their own there."""
    weight: float


class _Event(msgspec.Struct):
    event_id: str = ""
    service: str | None = None
    observed_time: str | None = None
    weight: float = 1.0


_decode = msgspec.json.Decoder(_Event).decode


def can_be_read(sink: Sink) -> bool:
    """Whether what it holds can be read back."""
    is_open_stream = isinstance(sink, StreamSink) and sink.encoding == "json" and sink.security is msgspec.UNSET
    return isinstance(sink, ParquetSink) or is_open_stream


def held_by(plan: Plan, sink: Sink, admin: StreamAdmin, since_ms: int) -> Iterator[Held]:
    """The events that a sink holds which were seen first at that moment or later; at most `EVENTS_MAX` + 1 of them."""
    found: Iterator[Held] = iter(())
    if isinstance(sink, ParquetSink):
        store = None if sink.store is msgspec.UNSET else sink.store
        found = archived(ArchiveReader("" if store else str(resolved(plan, sink.path)), store), since_ms)
    elif isinstance(sink, StreamSink):
        found = _streamed(sink, admin, since_ms)
    for number, held in enumerate(found):
        yield held
        if number == EVENTS_MAX:
            return


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
    """None for a record that is no event of a pipeline."""
    value = message.value()
    if not isinstance(value, bytes) or HEADER_EVENT_ID not in dict(headers_of(message)):
        return None
    try:
        event = _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    arrived_ms = message.timestamp()[1]
    observed_ms = arrived_ms if event.observed_time is None else _milliseconds(event.observed_time)
    return Held(event.event_id, event.service or "", observed_ms, arrived_ms, len(value), event.weight)


def _milliseconds(text: str) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(text).timestamp() * 1_000)


def archived(reader: ArchiveReader, since_ms: int) -> Iterator[Held]:
    """The events of an archive that were seen first at that moment or later; it does not say when they came."""
    for file in reader.files():
        for batch in reader.batches(file, _COLUMNS, since_ms):
            observed = batch.column("observed_time").cast(pa.int64()).to_pylist()
            ids, services, weights = (batch.column(name).to_pylist() for name in ("event_id", "service", "weight"))
            for event_id, service, at, weight in zip(ids, services, observed, weights, strict=True):
                yield Held(event_id, service or "", at // 1_000, None, None, weight or 1.0)
