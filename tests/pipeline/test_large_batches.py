"""A delivery hands large events to Python a bounded number of bytes at a time, and keeps none of them."""

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.support import make_stream, needs_java, publish
from tests.support.server import BrokerProcess
from tests.support.waiting import until

from logboom.base.units import MIB
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.plan.names import dead_stream, edge_stream
from logboom.pipeline.run.delivery import Delivery
from logboom.pipeline.sinks.base import BaseWriter, Delivered, SinkWriter
from logboom.pipeline.sinks.console import ConsoleSink

pytestmark = [pytest.mark.spark, needs_java]

EVENTS, EVENT_BYTES = 150, 500_000
LIMIT_BYTES = 64 * MIB + EVENT_BYTES
FEW_EVENTS, READINGS = 8, 60
assert EVENTS * EVENT_BYTES > LIMIT_BYTES, "one batch would do"


def _sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "size": [batch.nbytes]})


class Weighing(BaseWriter):
    """A sink that notes how many rows and bytes each Arrow batch has."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int]] = []

    def deliver(self, rows: Any, batch: int) -> Delivered:
        self.batches += [(row[0], row[1]) for row in rows.mapInArrow(_sizes, "rows bigint, size bigint").collect()]
        return Delivered("weighing", batch)


class Insisting(BaseWriter):
    """A sink that reads its batch again and again, as one does whose server refuses it."""

    def deliver(self, rows: Any, batch: int) -> Delivered:
        assert all(rows.count() == FEW_EVENTS for _ in range(READINGS))
        return Delivered("insisting", batch)


def test_arrow_batches_of_large_events_are_bounded_in_bytes(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    writer = Weighing()
    _deliver(spark, broker.kafka, tmp_path, "weighed", writer, EVENTS)
    assert sum(rows for rows, _ in writer.batches) == EVENTS
    assert max(size for _, size in writer.batches) <= LIMIT_BYTES


def test_what_was_read_of_a_partition_does_not_stay_in_memory(
    spark: Any, broker: BrokerProcess, tmp_path: Path
) -> None:
    """Spark keeps what its last poll brought, for each partition and each time it is read, and no limit but a time."""
    before = _heap_bytes(spark)
    _deliver(spark, broker.kafka, tmp_path, "insisted", Insisting(), FEW_EVENTS)
    until(lambda: _heap_bytes(spark) < before + READINGS * MIB // 2, "memory that is given back", every_s=0.5)


def _heap_bytes(spark: Any) -> int:
    """What the JVM holds and needs."""
    runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    return int(runtime.totalMemory() - runtime.freeMemory())


def _deliver(spark: Any, bootstrap: str, checkpoint: Path, pipeline: str, writer: SinkWriter, events: int) -> None:
    """Brings large events to a writer."""
    edge, admin = edge_stream(pipeline, "edge"), StreamAdmin(bootstrap)
    make_stream(bootstrap, edge, 1)
    make_stream(bootstrap, dead_stream(pipeline, "sink"), 1)
    delivery = Delivery(
        spark=spark,
        pipeline=pipeline,
        sink=ConsoleSink(name="sink", line=1, inputs=("edge",)),
        edges={edge: 1},
        admin=admin,
        checkpoint=checkpoint,
        writer=writer,
        stop=threading.Event(),
        on_delivered=lambda _: None,
    )
    delivery.remember_start()
    publish(bootstrap, edge, [b"x" * EVENT_BYTES] * events, 1)
    query = delivery.start(once=True)
    assert query.awaitTermination(240)
    assert query.exception() is None
