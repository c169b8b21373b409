"""Conditional batches, and what decides about appends to a log without a broker."""

from collections.abc import Iterable
from typing import NoReturn
from uuid import UUID

from logboom.base.dynamic import Current
from logboom.base.ids import Offset, StreamId
from logboom.base.ports import Clock
from logboom.broker.config import BrokerConfig
from logboom.broker.metrics import Counters
from logboom.broker.partition.condition_check import ConditionCheck, WindowMemory
from logboom.broker.partition.id_memory import IdMemory
from logboom.broker.partition.id_scan import IdLimits
from logboom.broker.partition.message_ids import MessageIds
from logboom.broker.settled_clock import SettledClock
from logboom.records import Codec, Headers, Record, build_batch
from logboom.storage import PartitionLog

STREAM_ID = StreamId(UUID(int=1))

Put = tuple[bytes, bytes | None, Headers]
"""Key, value and headers of a record."""


def put(
    key: bytes, value: bytes | None, expected: int | None = None, read_to: int | None = None, *others: tuple[str, bytes]
) -> Put:
    """A record with a condition, if `expected` is given."""
    headers: list[tuple[str, bytes]] = list(others)
    if expected is not None:
        headers.append(("logboom-expected-offset", str(expected).encode()))
    if read_to is not None:
        headers.append(("logboom-read-to", str(read_to).encode()))
    return key, value, tuple(headers)


def puts(
    records: Iterable[Put], *, codec: Codec = Codec.NONE, producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytearray:
    """A batch of such records; `producer` is id, epoch and first sequence."""
    return build_batch(
        [Record(Offset(n), 1_000, key, value, headers) for n, (key, value, headers) in enumerate(records)],
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )


def check_without_reads(log: PartitionLog, clock: Clock, counters: Counters) -> ConditionCheck:
    """The conditions of a log's appends that can all be decided from memory."""
    config = Current(BrokerConfig())
    return ConditionCheck(
        STREAM_ID,
        log,
        config=config,
        clock=clock,
        counters=counters,
        memory=WindowMemory(config),
        read_soon=_nothing_to_read,
        resume=_nothing_waits,
    )


def ids_without_reads(log: PartitionLog, clock: Clock, counters: Counters) -> MessageIds:
    """The ids of a log's messages, where none is asked for."""
    return MessageIds(
        log,
        IdLimits(window_ms=1_000, records_max=100, max_decompressed_bytes=1 << 20),
        clock=clock,
        settled_clock=SettledClock(clock),
        counters=counters,
        memory=IdMemory(Current(BrokerConfig()), clock, counters),
        read_soon=_nothing_to_read,
        resume=_nothing_waits,
    )


def _nothing_to_read(function: object) -> NoReturn:
    raise AssertionError(f"{function} was to be read from the disk")


def _nothing_waits() -> None: ...
