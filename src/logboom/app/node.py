"""One node: a broker and its doors, from start to stop.

Start: HTTP first, so that `/readyz` can say what the start waits for; then the broker, which recovers; then Kafka, so
that no client connects before it can be served. Stop goes the other way: no new connections, accepted requests are
answered, everything is flushed and closed. Knows processes and signals; nothing of protocols or logs on disk.
"""

import asyncio
import contextlib
import faulthandler
import gc
import importlib.metadata
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import uvloop
from prometheus_client.core import Metric
from structlog.typing import FilteringBoundLogger

from logboom.app.config import NodeConfig
from logboom.app.kafka_metrics import kafka_metrics
from logboom.app.limit_metrics import limit_metrics
from logboom.app.log import open_log, set_level
from logboom.app.notify import notify_systemd
from logboom.base.errors import LogboomError
from logboom.base.settings import join_address
from logboom.broker.broker import Broker
from logboom.broker.limits import broker_limit_hits, broker_limits
from logboom.broker.runtime import Runtime
from logboom.host import keep_buffers
from logboom.http.broker_metrics import broker_metrics
from logboom.http.door import HttpDoor, Source
from logboom.kafka.server.door import KafkaDoor

ANSWER_GRACE_S: Final = 2.5
"""How long accepted requests may take to be answered; with the flush that follows, a stop takes less than 5 s."""

STOP_MAX_S: Final = 20.0
"""The longest time for a stop, which a hanging disk could block. After it the process exits, as in a crash."""

START_CANCEL_MAX_S: Final = 1.0
"""How long an interrupted start may take to clean up. It has no requests to answer, so the process exits then."""

_SPARE_HANDLES: Final = 512
"""Files that a node opens beside connections and partitions, with a margin."""

_SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread that returns from the disk waits until a busy loop yields the interpreter. With Python's default of
5 ms an ack could wait ten times as long as the sync took."""


class StartError(LogboomError):
    """An address or the data directory cannot be used."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The addresses and the data directory of a node that is ready."""

    kafka: str
    http: str | None
    data: str
    pid: int


class Node:
    """The parts of one node. Life: `start`, then `stop`, once each, on one loop."""

    def __init__(self, config: NodeConfig, log: FilteringBoundLogger) -> None:
        self._config = config
        self._log = log
        self._sources: list[Source] = []
        self._http: HttpDoor | None = None
        self._broker: Broker | None = None
        self._kafka: KafkaDoor | None = None
        self._phase: str | None = "starting"

    async def start(self) -> Ready:
        """Start all parts. Raises LogboomError or OSError, after stopping the parts that were started."""
        try:
            self._start_http()
            self._broker = broker = await self._start_broker()
            self._follow_log_level(broker)
            version = importlib.metadata.version("logboom")
            self._sources.append(lambda: broker_metrics(broker, version, self._config.http.max_partition_series))
            kafka = await self._start_kafka(broker)
        except BaseException:  # a cancelled start too: what was begun is stopped before the error goes on
            await self.stop()
            raise
        self._phase = None
        return Ready(
            kafka=kafka,
            http=self._http.address if self._http else None,
            data=str(self._config.broker.data_dir.absolute()),
            pid=os.getpid(),
        )

    def _follow_log_level(self, broker: Broker) -> None:
        broker.dynamic_settings.add("http", self._config.http)
        settings = broker.dynamic_settings.add("log", self._config.log)
        settings.subscribe(lambda config: set_level(config.level))
        set_level(settings.now.level)

    def _start_http(self) -> None:
        if self._config.http.listen is None:
            return
        with _listening("HTTP", self._config.http.listen, "http.listen"):
            self._http = HttpDoor(self._config.http, self._sources, self._not_ready)
        self._http.start()

    async def _start_broker(self) -> Broker:
        config = self._config.broker
        try:
            return await Broker.start(config, runtime=Runtime(), log=self._log)
        except OSError as error:
            where = config.data_dir.absolute()
            reason = error.strerror or error
            raise StartError(f"cannot use the data directory {where}: {reason}; --data chooses another") from error

    async def _start_kafka(self, broker: Broker) -> str:
        door = KafkaDoor(broker, self._config.kafka, self._log)
        with _listening("Kafka", self._config.kafka.listen, "kafka.listen"):
            host, port = await door.start()
        self._kafka = door
        self._sources.append(lambda: kafka_metrics(door.metrics, broker.quotas))
        self._sources.append(lambda: self._limit_metrics(broker, door))
        return join_address(host, port)

    def _limit_metrics(self, broker: Broker, kafka: KafkaDoor) -> Iterable[Metric]:
        usages = [*broker_limits(broker), *kafka.limits()]
        hits = {**broker_limit_hits(broker), **kafka.limit_hits()}
        if self._http is not None:
            usages += self._http.limits()
            hits |= self._http.limit_hits()
        return limit_metrics(usages, hits)

    def _not_ready(self) -> str | None:
        if self._phase is not None or self._broker is None:
            return self._phase
        return self._broker.health.unready_reason()

    async def stop(self) -> None:
        """Accept no connections, answer accepted requests, flush, close."""
        self._phase = "stopping"
        if self._broker is not None:
            self._broker.groups.resign()
        if self._kafka is not None:
            await self._kafka.stop(ANSWER_GRACE_S)
        self._sources.clear()
        if self._broker is not None:
            await self._broker.stop()
        if self._http is not None:
            await self._http.stop()
        self._kafka = self._broker = self._http = None


@contextlib.contextmanager
def _listening(door: str, address: str, setting: str) -> Any:
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StartError(f"cannot listen on {address} for {door}: {reason}; choose another with {setting}") from error


class _Signals:
    """The first SIGTERM or SIGINT requests a stop; a second one ends the process at once."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self.stop_requested = asyncio.Event()
        self._log = log
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._take, number)

    def _take(self, number: signal.Signals) -> None:
        if self.stop_requested.is_set():
            self._log.warning("stopped at once by a second signal", signal=number.name)
            os._exit(128 + number)
        self._log.info("stopping", signal=number.name)
        self.stop_requested.set()


async def _start_or_stop(work: Coroutine[Any, Any, Ready], stop_requested: asyncio.Event) -> Ready | None:
    """The result of a start, or None where a stop was requested before it was done."""
    task, waiting = asyncio.create_task(work), asyncio.create_task(stop_requested.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.wait([task], timeout=START_CANCEL_MAX_S)
    return None


async def _live(config: NodeConfig, log: FilteringBoundLogger, announce: Callable[[Ready], None]) -> None:
    signals = _Signals(log)
    node = Node(config, log)
    ready = await _start_or_stop(node.start(), signals.stop_requested)
    if ready is None:
        log.info("stopped before it was ready")
        _end_now(0)
    # The objects made by the start live as long as the process, so garbage collections need not visit them.
    gc.collect()
    gc.freeze()
    announce(ready)
    notify_systemd("READY=1")
    await signals.stop_requested.wait()
    notify_systemd("STOPPING=1")
    try:
        await asyncio.wait_for(node.stop(), STOP_MAX_S)
    except TimeoutError:
        log.critical("the stop did not end in time; the next start recovers", seconds=STOP_MAX_S)
        _end_now(1)


def _end_now(code: int) -> NoReturn:
    """Exit without waiting for threads that use the disk: recovery handles it like a crash."""
    os._exit(code)


def _check_file_limit(config: NodeConfig, most_files: int, log: FilteringBoundLogger) -> None:
    """Warn where the system's limit on open files is lower than the sum of this program's own limits."""
    needed = config.kafka.max_connections + config.broker.max_open_log_files + _SPARE_HANDLES
    if most_files != resource.RLIM_INFINITY and most_files < needed:
        log.warning(
            "the system allows fewer open files than the limits add up to",
            allowed=most_files,
            needed=needed,
            settings="kafka.max_connections, broker.max_open_log_files",
        )


def run_node(config: NodeConfig, announce: Callable[[Ready], None]) -> None:
    """Run a node until a signal stops it. Raises LogboomError or OSError where it cannot start."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    log = open_log(config.log)
    _check_file_limit(config, most_files, log)
    keep_buffers()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_live(config, log, announce))
