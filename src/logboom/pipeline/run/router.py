"""The router: one streaming query over all sources that parses, masks, routes and writes each batch in one pass.

Knows Spark's streaming and the order of steps in a batch: pin the plan, build the rows, write, count, record the
ledger. Must not know sinks beyond their streams, nor how progress is shown.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from logboom.pipeline.checkpoint.checked import DamagedError
from logboom.pipeline.checkpoint.ledger import BalanceError, BatchLedgers, BatchRecord, ledger_of
from logboom.pipeline.checkpoint.spark_log import unfinished_batch
from logboom.pipeline.checkpoint.states import StateStore
from logboom.pipeline.edge.emitter import LogTaskEmitter
from logboom.pipeline.edge.record_encoder import RecordEncoder
from logboom.pipeline.edge.streams import EDGE_CONFIGS, OWN_CONFIGS, StreamAdmin
from logboom.pipeline.edge.table_streams import TableStreams
from logboom.pipeline.enrich.sources import TableError
from logboom.pipeline.enrich.store import TableStore
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.execute.flow import Flow
from logboom.pipeline.execute.stages import NOTED, add_counts
from logboom.pipeline.plan import names
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.plan.nodes import RAW_COLUMNS, Plan, StreamSource
from logboom.pipeline.plan.paths import resolved
from logboom.pipeline.run.batch_dials import BatchDials
from logboom.pipeline.run.batch_memory import BatchMemory, bytes_of_event
from logboom.pipeline.run.batch_planner import BatchPlanner, KeyChangedError, LoadKeys
from logboom.pipeline.run.deleted_records import DeletedRecords
from logboom.pipeline.run.outputs import bindings_of, place_streams
from logboom.pipeline.run.rate_limit import RateLimit
from logboom.pipeline.run.source_identity import SourceIdentity
from logboom.pipeline.run.ticks import TICK_SOURCE, Ticks
from logboom.pipeline.spark.kafka import kafka_reader, spark_name

QUERY_NAME: Final = "router"
_PREPARED_MAX: Final = 16


class StoppedError(Exception):
    """The pipeline is stopping; the batch will run again at the next start."""


OnBatch = Callable[[BatchRecord], None]


class Router:
    """The main query of a pipeline. A checkpoint has at most one at a time."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        admin: StreamAdmin,
        checkpoint: Path,
        load_keys: LoadKeys,
        stop: threading.Event,
        on_batch: OnBatch,
        notify: Callable[[str], None],
        pace: RateLimit,
        dials: BatchDials | None,
        save: Callable[[], None],
    ) -> None:
        """`dials`: None if all have the plan's values. `save`: makes the current checkpoint durable, wherever it is
        stored."""
        self._save = save
        self._spark = spark
        self._pace = pace
        self._plan = plan
        self._admin = admin
        self._checkpoint = checkpoint
        self._load_keys = load_keys
        self._stop = stop
        self._on_batch = on_batch
        base = resolved(plan, ".")
        self._tables = TableStore(checkpoint / "tables", base, notify, TableStreams(admin).newest)
        self._dials = dials
        self._planner = BatchPlanner(plan, admin, checkpoint, load_keys, notify, self._tables, self._dials)
        self.ledgers = BatchLedgers(checkpoint / "ledger")
        self._states = StateStore(checkpoint / "state")
        self.ticks = Ticks(plan, admin)
        self.fatal: PipelineError | None = None
        """Set if continuing would silently lose records, or a retry cannot help."""
        self._partitions = 1
        self._memory = BatchMemory(checkpoint / "starts.json")
        self._prepared_plans: dict[str, _PreparedPlan] = {}
        self._deleted = DeletedRecords(checkpoint / QUERY_NAME, admin, plan.sources, notify)
        self._identity = SourceIdentity(checkpoint, checkpoint / QUERY_NAME, admin, plan.sources)

    def prepare(self, partitions: int) -> Layout:
        """Create the streams that the plan writes, if they are missing, with this many partitions."""
        self._partitions = partitions
        if self._dials is not None:
            self._dials.declare()
        self.ticks.prepare()
        self.ticks.batch_done(self._states.last())
        return self._prepared(self._plan).layout

    def event_bytes(self) -> float:
        """Average size of the output events of the last batch; 0 if there were none."""
        last = self.ledgers.last()
        return bytes_of_event(None if last is None else last.ledger)

    def start(self, *, once: bool) -> StreamingQuery:
        """Start the query, after `prepare`. With `once` it ends after the records that exist now."""
        last = self.ledgers.last()
        unfinished = unfinished_batch(self._checkpoint / "router")
        poll_records = self._memory.started(unfinished, None if last is None else last.ledger)
        writer = self._trigger(self._source(poll_records).writeStream, once=once)
        return (
            writer.queryName(f"{self._plan.name}: {QUERY_NAME}")
            .option("checkpointLocation", str(self._checkpoint / "router"))
            .foreachBatch(self._batch)
            .start()
        )

    def start_last(self) -> StreamingQuery | None:
        """Starts the query once more, for the batch with which all that transforms hold leaves; None if they hold
        nothing. Nothing may come after it. LogUnreachableError if the log does not accept the record that starts it."""
        if not self.ticks.tick_now():
            return None
        self._planner.is_last = True
        return self.start(once=True)

    def _trigger(self, writer: DataStreamWriter, *, once: bool) -> DataStreamWriter:
        if once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{self._plan.trigger_interval_ms} milliseconds")

    def _source(self, poll_records: int) -> DataFrame:
        share = max(1, self._plan.max_records_per_batch // len(self._plan.sources))
        frames = [self._read(source, share, poll_records) for source in self._plan.sources]
        if self.ticks.needed:
            source = StreamSource(name=TICK_SOURCE, line=0, streams=(self.ticks.stream,), on_data_loss="continue")
            frames.append(self._read(source, share, poll_records))
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole

    def _read(self, source: StreamSource, records_max: int, poll_records: int) -> DataFrame:
        reader = kafka_reader(self._spark, self._admin.bootstrap, spark_name(source.name), poll_records)
        reader = (
            reader.option("subscribePattern", names.whole_names_pattern(source.pattern))
            if source.pattern is not None
            else reader.option("subscribe", ",".join(source.streams))
        )
        if source.from_ms is msgspec.UNSET:
            reader = reader.option("startingOffsets", source.start)
        else:
            # A partition without such a record begins at its end.
            reader = reader.option("startingTimestamp", str(source.from_ms)).option(
                "startingOffsetsByTimestampStrategy", "latest"
            )
        found = (
            reader.option("failOnDataLoss", str(source.on_data_loss == "fail").lower())
            .option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", records_max)
            .load()
        )
        if source.until_ms is not msgspec.UNSET:
            found = found.where(F.col("timestamp") < F.timestamp_millis(F.lit(source.until_ms)))
        found = found.withColumns({"source": F.lit(source.name), "stream": F.col("topic")})
        return found.select(*(name for name, _ in RAW_COLUMNS))

    def _batch(self, raw: DataFrame, batch: int) -> None:
        started_at, start = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()
        if self._stop.is_set():
            # Spark treats the batch as failed and runs it again at the next start: nothing of it has been written.
            raise StoppedError("stopping before the next batch")
        self._check_identity(batch)
        # The plan and the ends of all output streams are on disk before the first record can be written: so a later
        # start can tell whether the batch wrote anything.
        try:
            pinned = self._planner.choose(batch, self._prepared(self._plan).streams)
            self._save()
        except (KeyChangedError, TableError, DamagedError) as error:
            self.fatal = error
            raise
        deleted = self._deleted.before(batch)
        prepared = self._prepared(pinned.turned)
        emitter = LogTaskEmitter(prepared.encoder(batch, pinned.generation), self._admin.bootstrap)
        raw = self._memory.bounded(raw, batch)
        # One job: each task parses, masks and routes its part, writes the records directly to the log, waits for the
        # commit and returns one row of counts.
        try:
            keys = {**prepared.keys, **self._tables.paths(pinned.tables)}
            stateful = self._states.begin(prepared.layout, batch, pinned.wall_ms, ends=pinned.is_last)
            records = raw.where(F.col("source") != TICK_SOURCE) if self.ticks.needed else raw
            counts = Flow(raw.sparkSession, prepared.layout, keys, stateful).sent(records, emitter)
        except DamagedError as error:
            self.fatal = error
            raise
        except Exception:  # raised again after the clean-up
            # A stream may have been deleted or its `max.message.bytes` lowered: the next attempt reads all of that
            # again.
            self._prepared_plans.clear()
            raise
        # Stored before Spark commits the offsets: after a crash between the two, the batch runs again and replaces
        # this.
        try:
            add_counts(counts, {f"{NOTED}:{source}.deleted": records for source, records in deleted.items()})
            ledger = ledger_of(prepared.layout, counts)
            ledger.check()
            self._memory.ended(ledger)
            if stateful is not None:
                self._states.keep(stateful)
                self.ticks.batch_done(stateful.memory())
            entry = self.ledgers.record(
                batch=batch,
                plan=pinned.plan_hash,
                started_at=started_at,
                duration_ms=round((time.monotonic() - start) * 1_000),
                ledger=ledger,
                tables=pinned.tables,
                dials=pinned.dials,
            )
            self._save()
        except (BalanceError, DamagedError) as error:
            self.fatal = error
            raise
        self._on_batch(entry)
        self._pace.after(sum(entry.ledger.records_in.values()), time.monotonic() - start)

    def _check_identity(self, batch: int) -> None:
        """Raise PipelineError, which ends the run, if a stream that the batch reads was created again."""
        ids = self._identity.ids(batch)
        try:
            self._identity.check(ids)
        except PipelineError as error:
            self.fatal = error
            raise

    def _prepared(self, plan: Plan) -> "_PreparedPlan":
        """Collect what a plan needs to run. Creates missing streams."""
        name = plan.content_hash()
        if name not in self._prepared_plans:
            while len(self._prepared_plans) >= _PREPARED_MAX:  # each change of a dial makes a new plan
                self._prepared_plans.pop(next(iter(self._prepared_plans)))
            layout = Layout(plan)
            wanted = place_streams(layout)
            counts = {stream: 1 if dead else self._partitions for stream, dead in wanted.values()}
            edges = {wanted[place.code][0] for place in layout.finals() if place.kind == "edge"}
            existing = self._admin.ensure({stream: counts[stream] for stream in edges}, EDGE_CONFIGS)
            self._admin.widen(edges)
            dead = {stream for stream, is_dead in wanted.values() if is_dead}
            existing |= self._admin.ensure(dict.fromkeys(dead, 1), OWN_CONFIGS)
            existing |= self._admin.ensure({name: count for name, count in counts.items() if name not in edges | dead})
            keys = self._load_keys(plan.key_refs())
            self._prepared_plans[name] = _PreparedPlan(layout, existing, self._admin.limits(existing), keys)
        return self._prepared_plans[name]


@dataclass(frozen=True, slots=True)
class _PreparedPlan:
    """A plan with everything that it needs to run."""

    layout: Layout
    streams: Mapping[str, int]
    """The output streams and their partitions."""
    limits: Mapping[str, int]
    """The largest batch in bytes that each output stream accepts."""
    keys: Mapping[str, bytes]

    def encoder(self, batch: int, generation: int) -> RecordEncoder:
        """How the records of a batch are written."""
        key = names.repin_key(batch, generation) if generation else None
        return RecordEncoder(self.layout.plan.name, bindings_of(self.layout, self.streams, self.limits, key))
