"""The nodes of one machine and what is done to them. See the package."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from logboom.app.node import STOP_MAX_S
from logboom.app.supervisor.child import Child, NodeStartError, how_it_ended
from logboom.base.errors import LogboomError

_STOP_GRACE_S: Final = 5.0
"""How much longer than its own bound a node may take to stop, on a busy machine, before it is killed."""

_RESTART_FIRST_S: Final = 0.5
_RESTART_MAX_S: Final = 30.0
_STEADY_S: Final = 60.0
"""A node that ran for this long is started again without delay when it crashes."""


class NodeState(StrEnum):
    """What a node's process does."""

    DOWN = "down"
    STARTING = "starting"
    UP = "up"
    PAUSED = "paused"
    STOPPING = "stopping"


class SupervisorError(LogboomError):
    """What was asked for makes no sense now; the text says why."""


@dataclass(slots=True)
class Member:
    """A node as the supervisor knows it."""

    node_id: int
    child: Child | None = None
    state: NodeState = NodeState.DOWN
    wanted: bool = False
    """Whether it is to be started again after a crash: it was started, and neither stopped nor killed on purpose."""
    restart_delay_s: float = 0.0
    up_since_s: float = 0.0

    @property
    def pid(self) -> int | None:
        """Process id; None where there is no process."""
        return self.child.pid if self.child is not None and self.state is not NodeState.DOWN else None


@dataclass(frozen=True, slots=True)
class Reports:
    """Where the supervisor tells what happens: called on its loop, at once."""

    log_line: Callable[[int, str], None]
    """A node's log has a line more."""
    event: Callable[[int, str], None]
    """Something happened to a node that a person wants to know: words that follow its name."""
    changed: Callable[[], None]
    """The state or the process of a node is another one."""


class Supervisor:
    """Starts nodes and watches over them. Life: until `stop_all` or `kill_all` has returned. All on one loop."""

    def __init__(
        self,
        node_ids: Iterable[int],
        command: Callable[[int], Sequence[str]],
        reports: Reports,
        *,
        restarts: bool,
        ready_max_s: float | None,
    ) -> None:
        """`command` gives the command line of a node, anew for each start. With `restarts` a node that crashes is
        started again, sooner or later. A node that is not ready in `ready_max_s` is ended."""
        self.members = {node_id: Member(node_id) for node_id in node_ids}
        self._command = command
        self._reports = reports
        self._restarts = restarts
        self._ready_max_s = ready_max_s
        self._ending = False
        self._tasks: set[asyncio.Task[None]] = set()

    def member(self, node_id: int) -> Member:
        """A node by its id. Raises SupervisorError."""
        member = self.members.get(node_id)
        if member is None:
            known = ", ".join(map(str, self.members))
            raise SupervisorError(f"there is no node {node_id} here; there are {known}")
        return member

    async def start(self, node_id: int) -> dict[str, Any]:
        """Start a node that is down; what it says of itself once it is ready. Raises NodeStartError,
        SupervisorError."""
        member = self.member(node_id)
        if self._ending:
            raise SupervisorError("everything is being stopped")
        if member.state is not NodeState.DOWN:
            raise SupervisorError(f"node {node_id} is {member.state} already, as process {member.pid}")
        member.wanted = True
        member.restart_delay_s = 0.0
        try:
            return await self._start(member)
        except NodeStartError:
            member.wanted = False
            raise

    async def _start(self, member: Member) -> dict[str, Any]:
        node_id = member.node_id
        self._turn(member, NodeState.STARTING)
        try:
            child = Child.start(self._command(node_id), lambda line: self._reports.log_line(node_id, line))
        except OSError as error:
            self._turn(member, NodeState.DOWN)
            raise NodeStartError(f"node {node_id}: {error.strerror or error}") from error
        member.child = child
        self._spawn(self._watch(member, child))
        self._reports.changed()
        try:
            said = await child.ready(self._ready_max_s)
        except NodeStartError as error:
            child.signal(signal.SIGKILL)
            await child.ended
            raise NodeStartError(f"node {node_id}: {error}") from None
        member.up_since_s = asyncio.get_running_loop().time()
        if member.state is NodeState.STARTING:
            self._turn(member, NodeState.UP)
        return said

    async def _watch(self, member: Member, child: Child) -> None:
        code = await child.ended
        before = member.state
        self._turn(member, NodeState.DOWN)
        if before in (NodeState.STARTING, NodeState.STOPPING) or self._ending:
            return  # who starts or stops it tells
        self._reports.event(member.node_id, how_it_ended(code))
        if self._restarts and member.wanted:
            self._spawn(self._restart(member))

    async def _restart(self, member: Member) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - member.up_since_s >= _STEADY_S:
            member.restart_delay_s = 0.0
        while member.wanted and not self._ending:
            delay_s = member.restart_delay_s
            member.restart_delay_s = min(max(_RESTART_FIRST_S, 2 * delay_s), _RESTART_MAX_S)
            self._reports.event(member.node_id, f"is started again in {delay_s:g} s" if delay_s else "is started again")
            await asyncio.sleep(delay_s)
            if not member.wanted or self._ending or member.state is not NodeState.DOWN:
                return
            try:
                await self._start(member)
            except NodeStartError as error:
                self._reports.event(member.node_id, str(error).removeprefix(f"node {member.node_id}: "))
            else:
                self._reports.event(member.node_id, f"is up again, as process {member.pid}")
                return

    async def kill(self, node_id: int) -> None:
        """SIGKILL: nothing is flushed, nothing is said, as in a crash or a power failure of that process."""
        member, child = self._living(node_id)
        member.wanted = False
        member.state = NodeState.STOPPING
        child.signal(signal.SIGKILL)
        await child.ended
        self._turn(member, NodeState.DOWN)

    async def stop(self, node_id: int) -> int:
        """A stop in order; the exit code."""
        member, child = self._living(node_id)
        member.wanted = False
        return await self._stop(member, child)

    async def _stop(self, member: Member, child: Child) -> int:
        paused = member.state is NodeState.PAUSED
        self._turn(member, NodeState.STOPPING)
        child.signal(signal.SIGTERM)
        if paused:
            child.signal(signal.SIGCONT)
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(child.ended), STOP_MAX_S + _STOP_GRACE_S)
        self._reports.event(member.node_id, "does not stop and is killed")
        child.signal(signal.SIGKILL)
        return await child.ended

    def pause(self, node_id: int) -> None:
        """SIGSTOP: it holds its sockets and answers nothing, as a process on a machine that hangs.

        Raises SupervisorError where it does not run.
        """
        member, child = self._living(node_id)
        if member.state is not NodeState.UP:
            raise SupervisorError(f"node {node_id} is {member.state}")
        child.signal(signal.SIGSTOP)
        self._turn(member, NodeState.PAUSED)

    def resume(self, node_id: int) -> None:
        """SIGCONT after `pause`. Raises SupervisorError where it is not paused."""
        member, child = self._living(node_id)
        if member.state is not NodeState.PAUSED:
            raise SupervisorError(f"node {node_id} is not paused")
        child.signal(signal.SIGCONT)
        self._turn(member, NodeState.UP)

    async def stop_all(self, last: int | None = None) -> None:
        """Stop all nodes in order and side by side; `last`, where it is given, after all others."""
        self._ending = True
        living = [member for member in self.members.values() if member.child is not None and member.child.running]
        first, then = (
            [each for each in living if each.node_id != last],
            [each for each in living if each.node_id == last],
        )
        for group in (first, then):
            await asyncio.gather(*(self._stop(each, each.child) for each in group if each.child is not None))
        await self._end_tasks()

    async def kill_all(self) -> None:
        """End all nodes at once, which is as safe as a crash."""
        self._ending = True
        children = [member.child for member in self.members.values() if member.child is not None]
        for child in children:
            child.signal(signal.SIGKILL)
        await asyncio.gather(*(child.ended for child in children))
        await self._end_tasks()

    async def _end_tasks(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _living(self, node_id: int) -> tuple[Member, Child]:
        member = self.member(node_id)
        if member.child is None or not member.child.running:
            raise SupervisorError(f"node {node_id} is down")
        return member, member.child

    def _turn(self, member: Member, state: NodeState) -> None:
        member.state = state
        self._reports.changed()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
