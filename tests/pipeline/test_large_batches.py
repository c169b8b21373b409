"""A delivery hands large events to Python a bounded number of bytes at a time."""

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.support import make_stream, needs_java, publish
from tests.support.server import BrokerProcess

from logboom.base.units import MIB
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.plan.names import dead_stream, edge_stream
from logboom.pipeline.run.delivery import Delivery
from logboom.pipeline.sinks.base import BaseWriter, Delivered
from logboom.pipeline.sinks.console import ConsoleSink

pytestmark = [pytest.mark.spark, needs_java]

EVENTS, EVENT_BYTES = 150, 500_000
LIMIT_BYTES = 64 * MIB + EVENT_BYTES
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


def test_arrow_batches_of_large_events_are_bounded_in_bytes(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    edge, admin, writer = edge_stream("weighed", "edge"), StreamAdmin(broker.kafka), Weighing()
    make_stream(broker.kafka, edge, 1)
    make_stream(broker.kafka, dead_stream("weighed", "weighing"), 1)
    delivery = Delivery(
        spark=spark,
        pipeline="weighed",
        sink=ConsoleSink(name="weighing", line=1, inputs=("edge",)),
        edges={edge: 1},
        admin=admin,
        checkpoint=tmp_path,
        writer=writer,
        stop=threading.Event(),
        on_delivered=lambda _: None,
    )
    delivery.remember_start()
    publish(broker.kafka, edge, [b"x" * EVENT_BYTES] * EVENTS, 1)
    query = delivery.start(once=True)
    assert query.awaitTermination(240)
    assert sum(rows for rows, _ in writer.batches) == EVENTS
    assert max(size for _, size in writer.batches) <= LIMIT_BYTES
