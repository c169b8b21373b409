"""One node as a process of the operating system: signals, limits, memory, and a bounded stop.

`node` knows what a node consists of. This knows processes and signals; nothing of protocols or logs on disk.
"""

import asyncio
import faulthandler
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn

import uvloop
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from logboom.app.config import NodeConfig
from logboom.app.garbage import keep_collections_short, no_collections_at_start
from logboom.app.log import open_log, set_level
from logboom.app.nats_server_metrics import EmbeddedNatsCollector
from logboom.app.node import STOP_MAX_S, Node, Ready
from logboom.app.notify import notify_systemd
from logboom.app.stop_signals import StopSignals
from logboom.app.supervisor.nats_server import EmbeddedNats
from logboom.base.errors import LogboomError
from logboom.broker.disk.data_dir import NATS_SERVER_FILE
from logboom.broker.runtime import Runtime
from logboom.host import IdlePoll, keep_buffers, shorten_time_slices
from logboom.nats.config import EMBEDDED

START_CANCEL_MAX_S: Final = 1.0
"""How long an interrupted start may take to clean up. It has no requests to answer, so the process exits then."""

_SPARE_HANDLES: Final = 512
"""Files that a node opens besides connections and partitions, with a margin."""

_SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread that returns from the disk waits until a busy loop yields the interpreter. With Python's default of
5 ms an ack could wait ten times as long as the sync took."""


def _stop_requested_by_signals(log: FilteringBoundLogger) -> asyncio.Event:
    """Is set by the first SIGTERM or SIGINT; a second one ends the process at once."""

    def end_at_once(number: signal.Signals) -> None:
        log.warning("stopped at once by a second signal", signal=number.name)
        os._exit(128 + number)

    stop_requested = asyncio.Event()
    StopSignals(
        (signal.SIGTERM, signal.SIGINT),
        stop_requested,
        on_request=lambda number: log.info("stopping", signal=number.name),
        end_at_once=end_at_once,
    )
    return stop_requested


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
    stop_requested = _stop_requested_by_signals(log)
    collectors: list[Collector] = [ProcessCollector(registry=None), GCCollector(registry=CollectorRegistry())]
    nats = None
    if config.nats.servers == [EMBEDDED]:
        nats = EmbeddedNats(config.nats.embedded_listen, config.broker.data_dir / NATS_SERVER_FILE, log)
        await nats.start()
        collectors.append(EmbeddedNatsCollector(nats))
        config = config.model_copy(update={"nats": config.nats.model_copy(update={"servers": [nats.url]})})
    try:
        node = Node(config, log, runtime=_runtime(config), process_metrics=collectors, set_log_level=set_level)
        if nats is not None:
            nats.on_slow_consumer = node.note_slow_consumer
        await _live_node(node, log, announce, stop_requested)
    finally:
        if nats is not None:
            await nats.stop()


def _runtime(config: NodeConfig) -> Runtime:
    """The real machine, under a loop that polls for a while before it sleeps."""
    poll_us = config.broker.idle_poll_us
    return Runtime(worked=IdlePoll(asyncio.get_running_loop(), poll_us).worked) if poll_us else Runtime()


async def _live_node(
    node: Node, log: FilteringBoundLogger, announce: Callable[[Ready], None], stop_requested: asyncio.Event
) -> None:
    with no_collections_at_start():
        ready = await _start_or_stop(node.start(), stop_requested)
    if ready is None:
        log.info("stopped before it was ready")
        _end_now(0)
    announce(ready)
    notify_systemd("READY=1")
    expulsion = await _expelled_or_stopped(node, stop_requested)
    notify_systemd("STOPPING=1")
    try:
        await asyncio.wait_for(node.stop(), STOP_MAX_S)
    except TimeoutError:
        log.critical("the stop did not end in time; the next start recovers", seconds=STOP_MAX_S)
        _end_now(1)
    if expulsion is not None:
        raise expulsion


async def _expelled_or_stopped(node: Node, stop_requested: asyncio.Event) -> LogboomError | None:
    """Why the cluster has expelled the node; None where a stop was requested before."""
    expelled, waiting = asyncio.create_task(node.expelled()), asyncio.create_task(stop_requested.wait())
    await asyncio.wait([expelled, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    expelled.cancel()
    return expelled.result() if expelled.done() else None


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
    """Run a node until a signal stops it. Raises LogboomError or OSError where it cannot start, LogboomError once it
    has stopped since its cluster takes no part of it any more."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    log = open_log(config.log)
    _check_file_limit(config, most_files, log)
    keep_buffers()
    keep_collections_short()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    if config.broker.time_slice_us:
        shorten_time_slices(config.broker.time_slice_us)  # before any thread is started, since threads inherit it
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_live(config, log, announce))
        except (LogboomError, OSError):  # the caller prints them as a sentence
            raise
        except Exception as error:  # a bug: logged, and raised again
            # Its traceback is nowhere else, and what a broker meets in production can seldom be reproduced.
            log.critical("this node ends on an internal error", exc_info=error)
            raise
