"""Deliveries: one streaming query for each sink that the router does not write itself, with its own checkpoint.

A slow or failing sink delays only its own query. A failed batch is retried with increasing pauses. When the attempts
are used up, it goes to the sink's dead letters and the query continues, or, if the pipeline's file says so, it is
retried until it succeeds.

Knows Spark's streaming and the sink interface. Must not know how a sink works, nor the router.
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from logboom.pipeline.checkpoint.bucket.working_tree import area_of
from logboom.pipeline.checkpoint.checked import write_checked
from logboom.pipeline.checkpoint.files import is_full, make_dir
from logboom.pipeline.checkpoint.keeping import Keeping, OnDisk
from logboom.pipeline.checkpoint.spark_log import durably_committed, unfinished_batch
from logboom.pipeline.checkpoint.unfinished_starts import count_start
from logboom.pipeline.edge.dead_letter_task import COUNT_COLUMN, WriteDeadLetters
from logboom.pipeline.edge.streams import StreamAdmin
from logboom.pipeline.edge.trimming import read_start
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan import names
from logboom.pipeline.plan.nodes import Sink
from logboom.pipeline.run.batch_memory import poll_records
from logboom.pipeline.run.router import StoppedError
from logboom.pipeline.sinks.base import Delivered, PartlyDeliveredError, SinkWriter
from logboom.pipeline.spark.arrow_batches import limit_bytes
from logboom.pipeline.spark.causes import cause_of, is_out_of_memory
from logboom.pipeline.spark.kafka import kafka_reader

_PAUSE_MIN_S: Final = 0.5
_PAUSE_MAX_S: Final = 30.0
_SHORTAGES_MAX: Final = 3
_SMALLER: Final = 4


class UndeliveredError(PipelineError):
    """A sink that must not lose events does not accept a batch, in a run that has to end."""


OnDelivered = Callable[[Delivered], None]


@dataclass(slots=True)
class Delivery:
    """The query of one sink."""

    spark: SparkSession
    pipeline: str
    sink: Sink
    edges: Mapping[str, int]
    """The streams that it reads, with their partitions."""
    admin: StreamAdmin
    checkpoint: Path
    writer: SinkWriter
    stop: threading.Event
    on_delivered: OnDelivered
    keeping: Keeping = field(default_factory=OnDisk)
    """The storage of the checkpoint."""
    once: bool = False
    """Whether this is a run that ends: then no batch is retried forever."""
    event_bytes: Callable[[], float] = lambda: 0.0
    """Average size of the edges' events; 0 if unknown."""
    unfinished: int | None = None
    """The batch that was already started when the query began."""

    def start(self, *, once: bool) -> StreamingQuery:
        """Start the query in its own scheduling pool."""
        self.once = once
        self.unfinished = unfinished_batch(self.checkpoint / "query")
        starts = count_start(self.checkpoint / "starts.json", self.unfinished)
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", f"sink {self.sink.name}")
        records = (
            kafka_reader(self.spark, self.admin.bootstrap, "edges", poll_records(self.event_bytes(), starts))
            .option("subscribe", ",".join(sorted(self.edges)))
            .option("startingOffsets", self._starts())
            .option("maxOffsetsPerTrigger", self.sink.batch_records_max)
            # Spark treats a topic that was added or removed as data loss: an edge begins where it was trimmed to.
            .option("failOnDataLoss", str(not self._inputs_changed()).lower())
            .load()
        )
        writer = records.select("topic", "partition", "offset", "key", "value").writeStream
        writer = (
            writer.trigger(availableNow=True)
            if once
            else writer.trigger(processingTime=f"{self.sink.interval_ms} milliseconds")
        )
        query = (
            writer.queryName(f"{self.pipeline}: {self.sink.name}")
            .option("checkpointLocation", str(self.checkpoint / "query"))
            .foreachBatch(self._batch)
            .start()
        )
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
        return query

    def remember_start(self) -> None:
        """Record the start of a new delivery before the router writes for it: the current ends of its streams."""
        path = self.checkpoint / "start.json"
        if not path.exists():
            make_dir(self.checkpoint)
            write_checked(path, self.admin.ends(self.edges))

    def _starts(self) -> str:
        """Spark requires start offsets for exactly the streams that it reads. Later ones start at their first
        record."""
        known = read_start(self.checkpoint)
        return json.dumps(
            {
                name: {str(partition): known.get(name, {}).get(str(partition), -2) for partition in range(count)}
                for name, count in self.edges.items()
            }
        )

    def _inputs_changed(self) -> bool:
        """Whether the sink read other edges when its last batch was committed."""
        committed = durably_committed(self.checkpoint / "query")
        return committed is not None and set(committed) != set(self.edges)

    def _batch(self, rows: DataFrame, batch: int) -> None:
        # Sinks recognise a batch by its number, so the content of that number must never change.
        self.keeping.save(area_of(self.sink.name))
        self._deliver(rows, batch)
        self.keeping.save(area_of(self.sink.name))
        self.writer.idle()

    def _deliver(self, rows: DataFrame, batch: int) -> None:
        """Retry until the sink has the batch or it is given up."""
        # The session belongs to this query, so the setting affects no other.
        limit_bytes(rows.sparkSession)
        if batch == self.unfinished:  # it may have needed too much memory: one task needs less than many
            rows = rows.coalesce(1)
        failures, shortages = 0, 0
        while (error := self._attempt(rows, batch)) is not None:
            if is_out_of_memory(error) and shortages < _SHORTAGES_MAX and not self.stop.is_set():
                # Not the sink's error, so it does not use up attempts: the events are processed in smaller pieces.
                shortages += 1
                limit_bytes(rows.sparkSession, parts=_SMALLER**shortages)
                continue
            failures += 1
            if self.keeping.is_away or self.keeping.fatal is not None or is_full(self.checkpoint):
                raise error  # not the sink's error: the batch starts over when the query is restarted
            if self.stop.is_set():
                raise StoppedError from error
            cause = cause_of(error)
            if self.sink.on_failure == "dead_letter" and failures >= self.sink.attempts:
                self.on_delivered(self._failed(batch, error, failures))
                dead = self._write_dead_letters(self.writer.left(rows, batch), cause)
                self.on_delivered(Delivered(self.sink.name, batch, dead=dead, error=cause))
                return
            self.on_delivered(self._failed(batch, error, failures))
            if self.once and failures >= self.sink.attempts:
                raise UndeliveredError(
                    f"the sink {self.sink.name} ({self.sink.place}) failed {failures} times, last with {cause}; "
                    "nothing is lost: undelivered events wait in the log for the next run"
                ) from error
            if self.stop.wait(min(_PAUSE_MIN_S * 2 ** (failures - 1), _PAUSE_MAX_S)):
                raise StoppedError from error

    def _attempt(self, rows: DataFrame, batch: int) -> Exception | None:
        try:
            self.on_delivered(self.writer.deliver(rows, batch))
        except Exception as error:  # noqa: BLE001 - outermost: sinks raise many types, and each is retried
            return error
        return None

    def _failed(self, batch: int, error: Exception, failures: int) -> Delivered:
        """The report of a failed attempt; a part of the batch may have been delivered."""
        name, cause = self.sink.name, cause_of(error)
        if not isinstance(error, PartlyDeliveredError):
            return Delivered(name, batch, failures=failures, error=cause)
        return Delivered(name, batch, error.rows, error.repeats, error.dead, failures=failures, error=cause)

    def _write_dead_letters(self, rows: DataFrame, reason: str) -> int:
        """Write the batch to the sink's dead letters; returns how many there were."""
        stream = names.dead_stream(self.pipeline, self.sink.name)
        limit = self.admin.limits([stream])[stream]
        task = WriteDeadLetters(self.admin.bootstrap, self.pipeline, self.sink.name, reason, limit)
        counts = rows.select("topic", "partition", "offset", "key", "value").mapInArrow(task, f"{COUNT_COLUMN} bigint")
        return sum(int(row[0]) for row in counts.collect())
