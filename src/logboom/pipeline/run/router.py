"""The router: one streaming query over all sources that parses, masks and routes each batch once and writes it once.

Knows Spark's streaming and the order of things in a batch: pin the plan, build the rows, write, count, book. Must not
know sinks beyond their streams, nor who watches.
"""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from logboom.pipeline.checkpoint.batch_plans import KeyChangedError, PinBook
from logboom.pipeline.checkpoint.ledger import BalanceError, BatchRecord, LedgerBook, ledger_of
from logboom.pipeline.edge.emitter import LogCourier
from logboom.pipeline.edge.record_encoder import Envelope, Exit
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.execute.flow import Flow
from logboom.pipeline.execute.stages import REPORT, reported
from logboom.pipeline.plan import names
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.plan.nodes import RAW_COLUMNS, KeyRef, LogOutput, Plan, StreamSource
from logboom.pipeline.sinks.registry import read_plan
from logboom.pipeline.spark.kafka import kafka_reader, spark_name

QUERY_NAME: Final = "router"


class StoppedError(Exception):
    """The pipeline is stopping; the batch will run again at the next start."""


LoadKeys = Callable[[tuple[KeyRef, ...]], Mapping[str, bytes]]
OnBatch = Callable[[BatchRecord], None]


class Router:
    """The main query of a pipeline. One per checkpoint at a time."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        admin: StreamAdmin,
        checkpoint: Path,
        load_keys: LoadKeys,
        stop: threading.Event,
        on_batch: OnBatch,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._admin = admin
        self._checkpoint = checkpoint
        self._load_keys = load_keys
        self._stop = stop
        self._on_batch = on_batch
        self._pins = PinBook(checkpoint / "pins", read_plan)
        self.book = LedgerBook(checkpoint / "ledger")
        self.fatal: PipelineError | None = None
        """Set where going on would lose records unseen, or trying again cannot help."""
        self._partitions = 1
        self._ready: dict[str, tuple[Layout, Envelope, Mapping[str, bytes]]] = {}

    def prepare(self, partitions: int) -> Layout:
        """Makes the streams the plan writes, those that are missing with so many partitions."""
        self._partitions = partitions
        return self._prepared(self._plan)[0]

    def start(self, *, once: bool) -> StreamingQuery:
        """Starts the query, after `prepare`. With `once` it ends with what is there now."""
        writer = self._trigger(self._source().writeStream, once=once)
        return (
            writer.queryName(f"{self._plan.name}: {QUERY_NAME}")
            .option("checkpointLocation", str(self._checkpoint / "router"))
            .foreachBatch(self._batch)
            .start()
        )

    def _trigger(self, writer: DataStreamWriter, *, once: bool) -> DataStreamWriter:
        if once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{self._plan.trigger_interval_ms} milliseconds")

    def _source(self) -> DataFrame:
        share = max(1, self._plan.max_records_per_batch // len(self._plan.sources))
        frames = [self._read(source, share) for source in self._plan.sources]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def _read(self, source: StreamSource, records_max: int) -> DataFrame:
        reader = kafka_reader(self._spark, self._admin.bootstrap, spark_name(source.name))
        reader = (
            reader.option("subscribePattern", source.pattern)
            if source.pattern is not None
            else reader.option("subscribe", ",".join(source.streams))
        )
        found = (
            reader.option("startingOffsets", source.start)
            .option("failOnDataLoss", str(source.on_data_loss == "fail").lower())
            .option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", records_max)
            .load()
        )
        found = found.withColumns({"source": F.lit(source.name), "stream": F.col("topic")})
        return found.select(*(name for name, _ in RAW_COLUMNS))

    def _batch(self, raw: DataFrame, batch: int) -> None:
        started_at, start = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()
        if self._stop.is_set():
            raise StoppedError("stopping before the next batch")
        try:
            plan = self._pins.pin(batch, self._plan, self._load_keys)
        except KeyChangedError as error:
            self.fatal = error
            raise
        layout, envelope, keys = self._prepared(plan)
        courier = LogCourier(envelope, self._admin.bootstrap)
        told = Flow(raw.sparkSession, layout, keys).sent(raw, courier).collect()
        counts = reported([bytes(row[REPORT]) for row in told])
        try:
            entry = self.book.record(
                batch=batch,
                plan=plan.content_hash(),
                started_at=started_at,
                duration_ms=round((time.monotonic() - start) * 1_000),
                ledger=ledger_of(layout, counts),
            )
        except BalanceError as error:
            self.fatal = error
            raise
        self._on_batch(entry)

    def _prepared(self, plan: Plan) -> tuple[Layout, Envelope, Mapping[str, bytes]]:
        """What a plan needs to run, its streams made."""
        name = plan.content_hash()
        if name not in self._ready:
            layout = Layout(plan)
            wanted = place_streams(layout)
            counts = {stream: 1 if dead else self._partitions for stream, dead in wanted.values()}
            there = self._admin.ensure(counts)
            self._ready[name] = (layout, envelope_of(layout, there), self._load_keys(plan.key_refs()))
        return self._ready[name]


def place_streams(layout: Layout) -> dict[int, tuple[str, bool]]:
    """The stream of each place that leaves through the log, and whether it is one of dead letters."""
    outputs = _log_outputs(layout)
    found: dict[int, tuple[str, bool]] = {}
    for place in layout.finals():
        if place.kind == "direct":
            found[place.code] = (outputs[place.node].stream, False)
        elif place.kind == "edge":
            found[place.code] = (names.edge_stream(layout.plan.name, place.edge), False)
        else:
            found[place.code] = (names.dead_stream(layout.plan.name, place.node), True)
    return found


def _log_outputs(layout: Layout) -> dict[str, LogOutput]:
    """By sink: what the router itself writes."""
    outputs = {sink.name: sink.log_output for sink in layout.plan.sinks}
    return {name: output for name, output in outputs.items() if output is not None}


def envelope_of(layout: Layout, partitions: Mapping[str, int]) -> Envelope:
    """How the records of a layout leave; `partitions`: of each stream."""
    outputs, streams = _log_outputs(layout), place_streams(layout)
    exits: dict[int, Exit] = {}
    for place in layout.finals():
        stream, dead = streams[place.code]
        output = outputs[place.node] if place.kind == "direct" else None
        exits[place.code] = Exit(
            stream=stream,
            partitions=partitions[stream],
            node=place.node,
            dead=dead,
            announced=output is not None,
            body_only=output is not None and output.body_only,
            key=None if output is None else output.key,
            too_large=layout.oversize.get(place.code),
        )
    return Envelope(layout.plan.name, exits)
