"""Runs a pipeline: starts, monitors and stops its queries.

Knows the order of starts and stops, and when to retry. Must not know what a batch or a sink does.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from logboom.pipeline.checkpoint.batch_plans import BatchPlans
from logboom.pipeline.checkpoint.bucket.objects import StoreError
from logboom.pipeline.checkpoint.bucket.working_tree import ROUTER_AREA, area_of
from logboom.pipeline.checkpoint.files import NO_ROOM, check_unlocked, exclusive_lock, is_full, make_dir
from logboom.pipeline.checkpoint.keeping import LOCK, keeping_of
from logboom.pipeline.checkpoint.owner import check_owner, claim, owner_of
from logboom.pipeline.checkpoint.spark_log import check_query_is_whole
from logboom.pipeline.checkpoint.stream_identity import check_ids
from logboom.pipeline.edge.streams import OWN_CONFIGS, LogUnreachableError, StreamAdmin
from logboom.pipeline.edge.trimming import Trimmer
from logboom.pipeline.errors import JvmEndedError, PipelineError
from logboom.pipeline.mask.keys import load_keys
from logboom.pipeline.plan import names
from logboom.pipeline.plan.layout import Layout, is_direct
from logboom.pipeline.plan.nodes import KeyRef, Plan, Sink
from logboom.pipeline.plan.paths import checkpoint_of, resolved
from logboom.pipeline.plan.stateful import StatefulTransform
from logboom.pipeline.registry import read_plan
from logboom.pipeline.run.batch_dials import BatchDials
from logboom.pipeline.run.carry_over import check_state_carries_over, check_state_is_whole
from logboom.pipeline.run.dead_letters import LettersFromExecutors, write_dead_letters
from logboom.pipeline.run.delivery import Delivery
from logboom.pipeline.run.display import Display, MetricsPage
from logboom.pipeline.run.executor_watch import ExecutorWatch, executors_of
from logboom.pipeline.run.progress import RunProgress
from logboom.pipeline.run.rate_limit import RateLimit
from logboom.pipeline.run.reloading import Recompile, Reloading
from logboom.pipeline.run.renaming import check_nothing_left
from logboom.pipeline.run.restarts import Restarts, under_way_in
from logboom.pipeline.run.router import Router
from logboom.pipeline.sinks.base import SinkContext, SinkWriter
from logboom.pipeline.sinks.bulk.secrets import read_secret
from logboom.pipeline.sinks.registry import type_of
from logboom.pipeline.spark.causes import cause_of, is_out_of_memory
from logboom.pipeline.spark.jvm import check_java_version, find_java
from logboom.pipeline.spark.listening import lags_reported
from logboom.pipeline.spark.session import StartedJvm, application_end, jvm_end, start_session, warm_up
from logboom.pipeline.spark.settings import SessionOptions

_TICK_S: Final = 0.5
_END_POLL_S: Final = 0.1
_JVM_END_S: Final = 2.0
_STOP_MAX_S: Final = 20.0
_PAUSE_MIN_S: Final = 1.0
_PAUSE_MAX_S: Final = 30.0
_FAILURES_MAX: Final = 5
"""The run gives up after this many router failures in a row, without a batch in between and while the log is
reachable."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run, in addition to the pipeline's file."""

    bootstrap: str
    once: bool = False
    session: SessionOptions = field(default_factory=SessionOptions)
    http: tuple[str, int] | None = None
    jvm: StartedJvm | None = None
    """The session's JVM, if one was started before."""
    drop_state: tuple[str, ...] = ()
    """Transforms whose state is dropped if the plan cannot continue with it."""
    renamed_from: str | None = None
    """The previous name of the pipeline with this checkpoint."""
    records_per_s: int | None = None
    """Limit of records per second; None: no limit."""
    turns_dials: bool = True
    """False: dials keep the plan's values, changes are ignored."""
    before: Callable[[SparkSession, threading.Event], bool] | None = None
    """With `once`: called with the checkpoint's lock before the queries start, and again when they have processed
    everything, as long as it returns True. It must return soon after the event is set."""
    is_replay: bool = False
    """With `once`: nothing follows, so its last batch emits everything that transforms hold."""
    recompile: Recompile | None = None
    """Compiles the pipeline's file again, if the run may switch to another plan."""
    restarts: Restarts | None = None
    """For a run that was restarted because a JVM ended: how often."""


@dataclass(slots=True)
class _SupervisedQuery:
    """A query that is restarted when it fails."""

    name: str
    query: StreamingQuery
    begin: Callable[[], StreamingQuery] | None = None
    """Starts it again; None for a query that is started only once."""
    failures: int = 0
    """Failures in a row, with no batch of the router in between."""
    own_failures: int = 0
    """Those of them during which the log was reachable."""
    batch: int = -1
    restart_at: float | None = None

    def start_when_due(self, checkpoint: Path) -> None:
        """Start it again if its pause is over. If the disk of the checkpoint is full, another pause begins."""
        if self.begin is None or self.restart_at is None or time.monotonic() < self.restart_at:
            return
        self.restart_at = None
        try:
            self.query = self.begin()
        except OSError as error:
            if error.errno not in NO_ROOM and not is_full(checkpoint):
                raise


class Runner:
    """One run of one pipeline in this process."""

    def __init__(self, plan: Plan, options: RunOptions, display: Display) -> None:
        self._plan = plan
        self._options = options
        self._display = display
        restarts = 0 if options.restarts is None else options.restarts.count
        self.progress = RunProgress(
            plan.name, dials={dial.name: dial.value for dial in plan.dials()}, restarts=restarts
        )
        self.stopping = threading.Event()
        """Set when a stop is requested."""
        self._began_at: float | None = None
        """Time at which the session was ready."""
        self._metrics = MetricsPage(self.progress, options.http)
        self._halt = threading.Event()
        """Set to end the queries of the current plan, for a stop or another plan."""
        self._is_more = False
        """Whether `before` will bring more records after this round."""
        self._changed: Plan | None = None
        self._executors: ExecutorWatch | None = None
        """For a session on a cluster."""
        self._admin = StreamAdmin(options.bootstrap)
        self._checkpoint = checkpoint_of(plan)
        self._keeping = keeping_of(plan)
        recompile = None if options.once else options.recompile
        self._reloading = Reloading(self._checkpoint, recompile, display.notify)

    def stop(self) -> None:
        """Request a stop after the current batch. May be called from a signal handler."""
        self.stopping.set()
        self._halt.set()

    def reload(self) -> None:
        """Request a reload of the file between two batches. May be called from a signal handler."""
        self._reloading.ask()

    def run(self) -> None:
        """Run until stopped, or with `once` until everything was processed. PipelineError if the run cannot
        continue, JavaMissingError if it cannot start without a Java."""
        # Spark takes seconds to start, and the log may be waited for: what can be checked without them comes first.
        if self._options.jvm is None:
            check_java_version(find_java())
        self._load_keys(self._plan.key_refs())
        check_work_dir(self._plan, self._options.session)
        check_unlocked(self._checkpoint / LOCK, f"the checkpoint {self._checkpoint}")
        if self._plan.checkpoint_store is msgspec.UNSET:
            self._is_renamed()
        self._metrics.serve()
        counts = self._wait()
        if self.stopping.is_set():
            return
        self.progress.state("starting")
        self._display.show(self.progress.snapshot())  # meanwhile Spark is starting
        spark = self._session()
        self._began_at = time.monotonic()
        if self._options.session.is_local:
            warm_up(spark)  # meanwhile the broker is queried and the first query is planned
        has_ended = False
        try:
            self.run_in(spark, counts)
            has_ended = self._options.once and not self.stopping.is_set()
        except (Py4JError, PySparkException, PipelineError, OSError) as error:
            # If the JVM is gone, py4j reports a socket error or a failed call; if it is about to end, a query may
            # report any error.
            end = jvm_end(spark, _JVM_END_S)
            if end is None and is_full(self._checkpoint):
                raise PipelineError(f"{_disk_is_full(self._checkpoint)} and start it again; nothing is lost") from error
            end = end or application_end(spark)
            if end is None:
                raise
            raise JvmEndedError(end, "; nothing is lost: the next start continues with the same batch") from error
        finally:
            # Stopping Spark takes seconds. A local JVM stops by itself when this process ends, so if all queries have
            # ended, that is enough. Otherwise a task could continue to write after the checkpoint's lock is released.
            if not (has_ended and self._options.session.is_local) and jvm_end(spark) is None:
                spark.stop()

    def next_start(self, ended: JvmEndedError, *beside: Path) -> Restarts | None:
        """After a JVM end, wait for the next start and return the state for the next process; None if a stop is
        requested before. PipelineError if another start would not help. `beside`: checkpoints of other runs in the same
        JVM."""
        before = self._options.restarts
        never_began = self._began_at is None and before is None
        if self.stopping.is_set() or (never_began and not ended.from_outside):
            raise ended  # a first start that fails by itself does so with the same options again
        lasted_s = 0.0 if self._began_at is None else time.monotonic() - self._began_at
        dropped = tuple(dict.fromkeys((*self._options.drop_state, *self._reloading.dropped)))
        under_way = under_way_in(self._checkpoint, *beside)
        found = (before or Restarts()).after(under_way, lasted_s, self._plan.to_json(), dropped)
        if found.given_up_for is not None:
            raise PipelineError(f"{ended.end} {found.given_up_for}") from ended
        self._display.notify(
            f"{ended.end}; nothing is lost: the run restarts Spark in {found.pause_s:.0f} s, with the same batch"
        )
        return None if self.stopping.wait(found.pause_s) else found

    def run_in(self, spark: SparkSession, counts: Mapping[str, int] | None = None) -> None:
        """The same in an existing session. `counts`: partitions of the source streams, if known."""
        counts = self._wait() if counts is None else counts
        make_dir(self._checkpoint)
        with exclusive_lock(self._checkpoint / LOCK, f"the checkpoint {self._checkpoint}"):
            self._keeping.open(self.stopping)
            self._reloading.open()
            if not self._options.session.is_local:
                self._executors = ExecutorWatch(partial(executors_of, spark), self._display.notify)
            try:
                with lags_reported(spark, self._on_lag):
                    before, self._is_more = self._options.before, True
                    while self._is_more and not self.stopping.is_set():
                        self._is_more = before is not None and before(spark, self.stopping)
                        self._run_plans(spark, max(counts.values(), default=1))
                    self.progress.state("stopped")
                    self._keeping.close(ended=True)
            finally:
                self._keeping.close(ended=False)
                self._display.close(self.progress.snapshot())

    def _run_plans(self, spark: SparkSession, partitions: int) -> None:
        """Run the plan, and those that replace it."""
        prepared = self._prepare_or_wait(spark, partitions)
        while prepared is not None:
            self._run(*prepared)
            changed, self._changed = self._changed, None
            if changed is None or self.stopping.is_set():
                return
            prepared = self._prepare_changed(spark, partitions, changed)

    def _prepare_changed(
        self, spark: SparkSession, partitions: int, changed: Plan
    ) -> tuple[Router, list[Delivery], Trimmer] | None:
        """Prepare the changed plan, or the previous one if the changed one cannot run here."""
        before = self._plan
        try:
            self._use(changed)
            self._load_keys(changed.key_refs())
            wanted = [name for source in changed.sources for name in source.streams]
            patterns = [source.pattern for source in changed.sources if source.pattern is not None]
            found, missing = self._admin.look_for(wanted, patterns)
            if missing:
                raise PipelineError(_missing(missing, patterns))
            prepared = self._prepare(spark, max(partitions, *found.values()))
        except PipelineError as error:
            self._use(before)
            self._reloading.refuse(str(error))
            return self._prepare_or_wait(spark, partitions)
        self._reloading.accept(changed)
        return prepared

    def _use(self, plan: Plan) -> None:
        """Switch to a plan whose queries will be started."""
        self._plan = plan
        self.progress.edited({dial.name: dial.value for dial in plan.dials()})
        self._halt = threading.Event()
        if self.stopping.is_set():
            self._halt.set()

    def _wait(self) -> Mapping[str, int]:
        """Wait until every source stream exists. With `once`, raise PipelineError if one does not."""
        wanted = [name for source in self._plan.sources for name in source.streams]
        patterns = [source.pattern for source in self._plan.sources if source.pattern is not None]
        if self._options.once:
            found, missing = self._admin.look_for(wanted, patterns)
            if missing:
                raise PipelineError(_missing(missing, patterns))
            return found
        self.progress.state("waiting")
        self._display.show(self.progress.snapshot())
        return self._admin.wait_for(wanted, patterns, self.stopping, self._display.notify)

    def _session(self) -> SparkSession:
        deliveries = sum(not is_direct(sink) for sink in self._plan.sinks)
        options = self._options.session
        return start_session(
            f"logboom pipeline {self._plan.name}",
            replace(options, extra_slots=options.extra_slots + deliveries),
            self._options.jvm,
        )

    def _is_renamed(self) -> bool:
        """Whether the checkpoint belongs to this pipeline under a previous name; PipelineError if it belongs to
        another."""
        pins = self._checkpoint / "pins"
        last_name = BatchPlans(pins, read_plan).last_name() if pins.exists() else None
        owner = owner_of(self._checkpoint, last_name)
        return check_owner(self._checkpoint, owner, self._plan.name, self._options.renamed_from)

    def _prepare_or_wait(self, spark: SparkSession, partitions: int) -> tuple[Router, list[Delivery], Trimmer] | None:
        """Prepare everything to run; None if a stop came first.

        If a broker or bucket is unreachable meanwhile, wait for it, unless the run has to end.
        """
        pause_s, has_notified = _PAUSE_MIN_S, False
        while not self.stopping.is_set():
            try:
                return self._prepare(spark, partitions)
            except (LogUnreachableError, StoreError) as error:
                if self._options.once:
                    raise
                if not has_notified:
                    broker = f"a broker at {self._admin.bootstrap}"
                    what = "the bucket of the checkpoint" if isinstance(error, StoreError) else broker
                    self._display.notify(f"waiting for {what}: {error}")
                has_notified = True
                self.stopping.wait(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        return None

    def _prepare(self, spark: SparkSession, partitions: int) -> tuple[Router, list[Delivery], Trimmer]:
        if self._is_renamed():
            check_nothing_left(self._admin, self._checkpoint, str(self._options.renamed_from))
        for query in (self._checkpoint / "router", *self._checkpoint.glob("deliveries/*/query")):
            check_query_is_whole(query)
        dropped = (*self._options.drop_state, *self._reloading.dropped)
        check_state_is_whole(self._checkpoint, dropped)
        check_state_carries_over(self._checkpoint, self._plan, dropped)
        claim(self._checkpoint, self._plan.name)
        dials = None
        if self._options.turns_dials:
            dials = BatchDials(self._plan, self._admin, self._checkpoint, self._display.notify)
        router = Router(
            spark,
            self._plan,
            self._admin,
            self._checkpoint,
            self._load_keys,
            self._halt,
            self.progress.batch,
            self._display.notify,
            RateLimit(self._options.records_per_s, self._halt),
            dials,
            partial(self._keeping.save, ROUTER_AREA),
        )
        layout = router.prepare(partitions)
        wanted = [name for source in self._plan.sources for name in source.streams]
        check_ids(self._checkpoint / "streams.json", self._admin.ids(wanted))
        self.progress.resume(router.ledgers.last())
        deliveries = self._deliveries(spark, layout)
        for delivery in deliveries:
            # Must be before the router's first write: a sink that was added to the file starts with what is routed to
            # it from now on, not with what its edge already contains.
            delivery.remember_start()
            delivery.event_bytes = router.event_bytes
            self.progress.sink(delivery.sink.name)
        readers = {delivery.sink.name: delivery.edges for delivery in deliveries}
        self._keeping.save(None)
        notify, committed = self._display.notify, self._keeping.committed
        trimmer = Trimmer(self._admin, self._checkpoint / "deliveries", readers, notify, committed=committed)
        return router, deliveries, trimmer

    def _run(self, router: Router, deliveries: list[Delivery], trimmer: Trimmer) -> None:
        self.progress.state("running")
        if self._options.once:
            self._run_once(router, deliveries)
        else:
            self._run_continuously(router, deliveries, trimmer)
        self._save_end()
        trimmer.finish()

    def _save_end(self) -> None:
        """Make the commits of the last batches durable, after all queries have ended."""
        try:
            self._keeping.save(None)
        except StoreError as error:
            self._display.notify(f"the last batches will run again at the next start: {error}")

    def _run_once(self, router: Router, deliveries: list[Delivery]) -> None:
        if not self._options.is_replay:
            router.ticks.tick_now()  # what became due since the last run is emitted, even if no record has come
        query = router.start(once=True)
        # If the router has a rate limit, deliveries keep up with it; otherwise they wait until it is done.
        beside = [] if self._options.records_per_s is None else [each.start(once=False) for each in deliveries]
        try:
            _read_all(router, query, self._await, self._display.notify)
            if self._options.is_replay and not self._is_more and not self.stopping.is_set():
                last = router.start_last()
                if last is not None:
                    _read_all(router, last, self._await, self._display.notify)
        finally:
            _stop_queries(beside)
        if not self.stopping.is_set():
            self.progress.state("delivering")
            # Spark determines what an `availableNow` query reads when it starts: that is complete only after the
            # router's end.
            self._await([_SupervisedQuery(each.sink.name, each.start(once=True)) for each in deliveries], router)
        if not self.stopping.is_set():
            for delivery in deliveries:
                delivery.writer.finish()

    def _await(self, queries: list[_SupervisedQuery], router: Router) -> None:
        """Wait until all queries have ended; PipelineError if one failed. A stop request ends them early."""
        while any(each.query.isActive for each in queries) and not self.stopping.wait(_END_POLL_S):
            self._display.show(self.progress.snapshot())
            self._check([each.query for each in queries])
        self._display.show(self.progress.snapshot())
        if self.stopping.is_set():
            _stop_queries([each.query for each in queries])
        for each in queries:
            error = each.query.exception()
            if error is not None and not self.stopping.is_set():
                fatal = router.fatal or self._keeping.fatal
                raise fatal or PipelineError(f"{each.name} failed: {cause_of(error)}")

    def _check(self, queries: list[StreamingQuery]) -> None:
        """PipelineError if this run may not continue. Its queries are stopped in the middle of their batches."""
        if self._executors is not None:
            self._executors.look()
        if self._keeping.fatal is not None:
            self._halt.set()
            for query in queries:
                query.stop()
            raise self._keeping.fatal

    def _run_continuously(self, router: Router, deliveries: list[Delivery], trimmer: Trimmer) -> None:
        start = {"router": partial(router.start, once=False)}
        start.update({delivery.sink.name: partial(delivery.start, once=False) for delivery in deliveries})
        queries = [_SupervisedQuery(name, begin(), begin) for name, begin in start.items()]
        try:
            while not self._halt.wait(_TICK_S):
                self._display.show(self.progress.snapshot())
                self._check([each.query for each in queries])
                trimmer.tick()
                router.ticks.tick()
                self._changed = self._reloading.changed_plan(self._plan)
                if self._changed is not None:
                    return
                for each in queries:
                    if not each.query.isActive:
                        self._schedule_restart(each, router)
                        each.start_when_due(self._checkpoint)
        finally:
            self.progress.state("stopping" if self._changed is None else "reloading")
            self._halt.set()
            _stop_queries([each.query for each in queries])

    def _schedule_restart(self, ended: _SupervisedQuery, router: Router) -> None:
        """Schedule the next start of a query that failed; PipelineError if a restart cannot help."""
        if ended.restart_at is not None:
            return
        if (fatal := router.fatal or self._keeping.fatal) is not None:
            raise fatal
        batch = self.progress.snapshot().batch
        if batch > ended.batch:
            ended.failures = ended.own_failures = 0
        ended.batch = batch
        ended.failures += 1
        # A failure counts only if the log and the checkpoint's storage were reachable: both may be unreachable, and a
        # disk full, for any time.
        has_no_room = is_full(self._checkpoint)
        ended.own_failures += not (has_no_room or self._keeping.is_away) and self._admin.answers()
        error = ended.query.exception()
        cause = "it ended" if error is None else cause_of(error)
        if has_no_room:
            cause = f"{_disk_is_full(self._checkpoint)} and it continues"
        if ended.name == "router" and ended.own_failures >= _FAILURES_MAX:
            raise PipelineError(f"the router failed {ended.own_failures} times in a row: {cause}")
        pause_s = min(_PAUSE_MIN_S * 2 ** (ended.failures - 1), _PAUSE_MAX_S)
        self._display.notify(f"{ended.name} restarts in {pause_s:.0f} s: {cause}")
        ended.restart_at = time.monotonic() + pause_s

    def _on_lag(self, query: str, records: int) -> None:
        name = query.removeprefix(f"{self._plan.name}: ")
        self.progress.lag(None if name == "router" else name, records)

    def _load_keys(self, refs: tuple[KeyRef, ...]) -> Mapping[str, bytes]:
        return load_keys(refs, os.environ, Path(self._plan.file).parent)

    def _deliveries(self, spark: SparkSession, layout: Layout) -> list[Delivery]:
        admin = self._admin
        existing = admin.partitions()
        sinks = [sink for sink in self._plan.sinks if not is_direct(sink)]
        edges_of = {sink.name: [names.edge_stream(self._plan.name, edge) for edge in sink.inputs] for sink in sinks}
        ids = admin.ids({name for edges in edges_of.values() for name in edges}) if edges_of else {}
        deliveries = []
        for sink in sinks:
            checkpoint, edges = self._checkpoint / "deliveries" / sink.name, edges_of[sink.name]
            streams = {name: ids[name] for name in edges if name in ids}
            deliveries.append(
                Delivery(
                    spark=spark,
                    pipeline=self._plan.name,
                    sink=sink,
                    edges={name: existing[name] for name in edges},
                    admin=admin,
                    checkpoint=checkpoint,
                    writer=self._open(sink, checkpoint, streams),
                    stop=self._halt,
                    on_delivered=self.progress.delivered,
                    keeping=self._keeping,
                )
            )
        dead = {names.dead_stream(self._plan.name, delivery.sink.name): 1 for delivery in deliveries}
        admin.ensure(dead, OWN_CONFIGS)
        return deliveries

    def _open(self, sink: Sink, checkpoint: Path, streams: Mapping[str, str]) -> SinkWriter:
        context = SinkContext(
            resolve=partial(resolved, self._plan),
            checkpoint=checkpoint,
            notify=self._display.notify,
            write_dead_letters=partial(write_dead_letters, self._admin, self._plan.name, sink.name),
            letters=LettersFromExecutors(self._admin.bootstrap, self._plan.name, sink.name),
            save=partial(self._keeping.save, area_of(sink.name)),
            secret=partial(read_secret, environ=os.environ, directory=Path(self._plan.file).parent),
            streams=streams,
        )
        try:
            writer: SinkWriter = type_of(sink).open(sink, context)
        except OSError as error:
            at = f"{sink.in_file or self._plan.file}:{sink.line}"
            raise PipelineError(f"{at}: the sink {sink.name} cannot be opened: {cause_of(error)}") from error
        return writer


def check_work_dir(plan: Plan, session: SessionOptions) -> None:
    """PipelineError if executors on other machines would search for files in a local directory of the driver."""
    if session.is_local or plan.checkpoint_store is msgspec.UNSET or plan.work_dir is not msgspec.UNSET:
        return
    using = [node.name for node in plan.transforms if node.table_refs or isinstance(node, StatefulTransform)]
    using += [sink.name for sink in plan.sinks if sink.output_file is not None]
    if using:
        raise PipelineError(
            f"{using[0]} has files in the checkpoint that executors read or write, and with --master {session.master} "
            f"these may run on other machines: set checkpoint.work_dir in {plan.file} to a directory that all see"
        )


def _disk_is_full(checkpoint: Path) -> str:
    return f"the disk of the checkpoint {checkpoint} is full: free some space there,"


def _read_all(
    router: Router,
    query: StreamingQuery,
    await_end: Callable[[list[_SupervisedQuery], Router], None],
    notify: Callable[[str], None],
) -> None:
    """Wait until the router has processed everything that its query reads. A batch that needs more memory than there is
    is repeated."""
    for is_last in (False, False, True):
        try:
            await_end([_SupervisedQuery("router", query)], router)
            return
        except PipelineError:
            error = query.exception()
            if is_last or error is None or not is_out_of_memory(error):
                raise
            notify("a batch is repeated in smaller pieces: it needed more memory than there is")
            query = router.start(once=True)


def _stop_queries(queries: list[StreamingQuery]) -> None:
    """Let running batches finish, within a time limit, then stop."""
    deadline = time.monotonic() + _STOP_MAX_S
    for query in queries:
        # `query.stop()` interrupts a batch, whose work would be repeated at the next start.
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(0.05)
        query.stop()


def _missing(missing: list[str], patterns: list[str]) -> str:
    """One sentence about missing streams: what to create before retrying."""
    named = [name for name in missing if name not in patterns]
    if named:
        make = " && ".join(f"logboom streams create {name}" for name in named)
        what = f"the stream {named[0]} does" if len(named) == 1 else f"the streams {', '.join(named)} do"
        return f"{what} not exist; make {'it' if len(named) == 1 else 'them'} with: {make}"
    return f"no stream matches the pattern {missing[0]}; make one with: logboom streams create NAME"
