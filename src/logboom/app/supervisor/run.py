"""The nodes of one folder as one process, from the first start to the last stop.

The first node of a new cluster starts alone and founds it; from then on all start side by side, since a cluster that
is there needs most of its voters before any of them is ready. A signal stops them in order; a second one ends them at
once.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from logboom.app.notify import notify_systemd
from logboom.app.stop_signals import StopSignals
from logboom.app.supervisor.folder import Folder, Place
from logboom.app.supervisor.nats_server import EmbeddedNats
from logboom.app.supervisor.remote import answering
from logboom.app.supervisor.supervisor import Member, NodeState, Reports, Supervisor, SupervisorError
from logboom.base.errors import LogboomError

_FORMED_MAX_S: Final = 120.0
"""The longest time from the readiness of all nodes until they are one cluster."""
_FORMED_EVERY_S: Final = 0.2
_PROGRESS_FIRST_S: Final = 2.0
_PROGRESS_EVERY_S: Final = 5.0
"""A start that takes longer than the first time reports what it waits for, and again after each further interval."""


class ClusterStartError(LogboomError):
    """The nodes run but do not become one cluster; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What to run."""

    folder: Folder
    node_ids: Sequence[int]
    command: Callable[[Place, bool], Sequence[str]]
    """The command line of a node; whether there is a cluster already that it is to join."""
    joins: bool
    """Whether the first node joins a cluster elsewhere, in place of founding one."""
    restarts: bool
    """Whether a node that crashes is started again."""
    ready_max_s: float | None
    """How long a node may take to be ready; None: as long as it takes, since its cluster may be somewhere else and not
    there yet."""
    missing: Callable[[], Awaitable[str | None]]
    """What the nodes lack to be a cluster, in words; None once they are one."""
    controller: Callable[[], Awaitable[int | None]]
    """Which node leads the cluster: it stops last."""
    nats: EmbeddedNats | None = None
    """A nats-server that is kept up beside them: it starts first and stops last."""


class Show(Protocol):
    """Where a person or a program is told."""

    def log_line(self, node_id: int, line: str) -> None:
        """A line of a node's log."""

    def event(self, node_id: int, words: str) -> None:
        """Something happened to a node; the words follow its name."""

    def node_ready(self, node_id: int, seconds: float) -> None:
        """A node is ready, so long after its start."""

    def progress(self, what: str, seconds: float) -> None:
        """The start has taken so long; what it waits for."""

    def ready(self, processes: dict[int, int]) -> None:
        """All nodes are one cluster; their process ids."""

    def stopping(self, why: str) -> None:
        """A stop begins."""


def run_nodes(plan: ClusterPlan, show: Show) -> None:
    """Run until a signal or a command stops it. Raises LogboomError or OSError where it cannot start; the nodes that
    had started are stopped by then."""
    asyncio.run(_ClusterRun(plan, show).live())


def _named(node_ids: Sequence[int]) -> str:
    return f"{'node' if len(node_ids) == 1 else 'nodes'} {', '.join(map(str, node_ids))}"


class _ClusterRun:
    """One life of the nodes."""

    def __init__(self, plan: ClusterPlan, show: Show) -> None:
        self._plan = plan
        self._show = show
        self._supervisor = Supervisor(
            plan.node_ids,
            self._command,
            Reports(show.log_line, show.event, self._write),
            restarts=plan.restarts,
            ready_max_s=plan.ready_max_s,
        )
        self._waits_for = "starting the nodes"
        """For progress messages."""
        self._stop_requested = asyncio.Event()
        self._stopped = asyncio.Event()

    async def live(self) -> None:
        StopSignals(
            (signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
            self._stop_requested,
            on_request=lambda number: self._show.stopping(number.name),
            end_at_once=self._end_at_once,
        )
        async with answering(self._plan.folder.path, self._asked):
            try:
                if await self._unless_stopped(self._start_with_progress()):
                    notify_systemd("READY=1")
                    self._show.ready({each.node_id: each.pid for each in self._members() if each.pid is not None})
                    await self._stop_requested.wait()
            finally:
                notify_systemd("STOPPING=1")
                await self._supervisor.stop_all(await self._last())
                if self._plan.nats is not None:
                    await self._plan.nats.stop()
                self._stopped.set()

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """True once the work is done; False where a stop was requested before."""
        task, waiting = asyncio.create_task(work), asyncio.create_task(self._stop_requested.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            task.result()
            return True
        task.cancel()
        await asyncio.wait([task])
        return False

    async def _start_with_progress(self) -> None:
        progress = asyncio.create_task(self._report_progress())
        try:
            await self._start()
        finally:
            progress.cancel()

    async def _report_progress(self) -> None:
        began, pause_s = time.monotonic(), _PROGRESS_FIRST_S
        while True:
            await asyncio.sleep(pause_s)
            self._show.progress(self._waits_for, time.monotonic() - began)
            pause_s = _PROGRESS_EVERY_S

    async def _start(self) -> None:
        if self._plan.nats is not None:
            self._waits_for = "waiting for nats-server"
            await self._plan.nats.start()
        first, *others = self._plan.node_ids
        if not self._plan.folder.founded:
            self._waits_for = f"waiting for node {first}, which founds the cluster"
            await self._start_node(first)
            self._plan.folder.founded = True
            self._write()
            self._waits_for = f"waiting for {_named(others)}"
            await asyncio.gather(*map(self._start_node, others))
        else:
            self._waits_for = f"waiting for {_named(self._plan.node_ids)}"
            await asyncio.gather(*map(self._start_node, self._plan.node_ids))
        missing = await self._plan.missing()
        deadline = time.monotonic() + _FORMED_MAX_S
        while missing is not None:
            self._waits_for = f"waiting until the nodes form a cluster: {missing}"
            if time.monotonic() > deadline:
                raise ClusterStartError(f"the nodes run but are no cluster after {_FORMED_MAX_S:.0f} s: {missing}")
            await asyncio.sleep(_FORMED_EVERY_S)
            missing = await self._plan.missing()

    async def _start_node(self, node_id: int) -> None:
        begun = time.monotonic()
        await self._supervisor.start(node_id)
        self._show.node_ready(node_id, time.monotonic() - begun)

    def _command(self, node_id: int) -> Sequence[str]:
        folder = self._plan.folder
        return self._plan.command(folder.place(node_id), self._plan.joins or folder.founded)

    def _members(self) -> list[Member]:
        return list(self._supervisor.members.values())

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # a full disk stops nobody from being stopped
            self._plan.folder.write({each.node_id: (each.pid, each.state) for each in self._members()})

    async def _last(self) -> int | None:
        """The controller stops last; where it cannot be found out, the order is of no matter."""
        if sum(each.state is NodeState.UP for each in self._members()) < 2:
            return None
        try:
            return await self._plan.controller()
        except (LogboomError, OSError):
            return None

    # --- what is asked of it ----------------------------------------------------------------------------------------

    def _end_at_once(self, number: signal.Signals) -> None:
        for member in self._members():
            if member.child is not None:
                member.child.signal(signal.SIGKILL)
        os._exit(128 + number)

    async def _asked(self, what: str, node_id: int | None) -> dict[str, Any]:
        if what == "down":
            if not self._stop_requested.is_set():
                self._show.stopping("logboom cluster down")
            self._stop_requested.set()
            await self._stopped.wait()
            return {}
        if not isinstance(node_id, int):
            raise SupervisorError("say which node")
        await self._do(what, node_id)
        member = self._supervisor.member(node_id)
        return {"node": {"id": node_id, "state": member.state, "pid": member.pid}}

    async def _do(self, what: str, node_id: int) -> None:
        supervisor = self._supervisor
        match what:
            case "start":
                await supervisor.start(node_id)
                self._show.event(node_id, f"is up, as process {supervisor.member(node_id).pid}")
            case "stop":
                self._show.event(node_id, "stops")
                await supervisor.stop(node_id)
                self._show.event(node_id, "is down")
            case "kill":
                await supervisor.kill(node_id)
                self._show.event(node_id, "was killed")
            case "pause":
                supervisor.pause(node_id)
                self._show.event(node_id, "is paused")
            case "resume":
                supervisor.resume(node_id)
                self._show.event(node_id, "goes on")
            case _:
                raise SupervisorError(f"a supervisor cannot {what}")
