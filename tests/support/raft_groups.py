"""Members of a consensus group for tests: the real driver, files and group commit, on a network in memory.

They run on whatever loop and disk the test gives them, real or simulated.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog
from structlog.typing import EventDict
from tests.support import simulated
from tests.support.waiting import WAIT_S

from logboom.base.errors import LogboomError
from logboom.base.ports import Disk
from logboom.broker.disk.flusher import Flusher
from logboom.broker.metrics import Counters
from logboom.broker.raft import Leadership, OpenedGroup, RaftGroup, RaftSettings, RaftTiming
from logboom.broker.runtime import Runtime
from logboom.raft import Index, NodeId

FAST: Final = RaftSettings(timing=RaftTiming(tick_ms=10))
DIRECTORY: Final = "raft"
_STATES: Final = msgspec.msgpack.Decoder(list[bytes])


class ListMachine:
    """A state machine that remembers all it was given."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.index = Index(0)
        self.leaderships: list[Leadership] = []
        self.restored = 0
        self.changed = asyncio.Event()

    async def apply(self, index: Index, data: bytes) -> None:
        assert index > self.index
        await asyncio.sleep(0)
        self.data.append(data)
        self.index = index
        self._wake()

    async def restore(self, index: Index, data: bytes) -> None:
        self.data = _STATES.decode(data)
        self.index = index
        self.restored += 1
        self._wake()

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.data)

    def leadership_changed(self, leadership: Leadership) -> None:
        self.leaderships.append(leadership)
        self._wake()

    def _wake(self) -> None:
        self.changed.set()

    @property
    def leadership(self) -> Leadership:
        return self.leaderships[-1] if self.leaderships else Leadership()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds that only changes with this machine."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@dataclass
class GroupNetwork:
    """What is sent arrives in a later turn, if no link is cut."""

    members: dict[NodeId, "Member"] = field(default_factory=dict)
    cuts: set[frozenset[NodeId]] = field(default_factory=set)
    snapshots: int = 0

    def send(self, sender: NodeId, to: NodeId, message: bytes, *, is_snapshot: bool) -> bool:
        if to not in self.members:
            return False
        self.snapshots += is_snapshot
        asyncio.get_running_loop().call_soon(self._deliver, sender, to, message)
        return True

    def _deliver(self, sender: NodeId, to: NodeId, message: bytes) -> None:
        if to in self.members and frozenset((sender, to)) not in self.cuts:
            self.members[to].group.received(memoryview(message), sender)

    def isolate(self, node_id: NodeId) -> None:
        self.cuts |= {frozenset((node_id, other)) for other in self.members if other != node_id}


@dataclass
class Transport:
    """`RaftTransport` of one member."""

    network: GroupNetwork
    node_id: NodeId

    def send(self, to: NodeId, message: bytes, *, is_snapshot: bool) -> bool:
        return self.network.send(self.node_id, to, message, is_snapshot=is_snapshot)


class Member:
    """One member of a group. Life: `start`, then `stop` or `kill`."""

    def __init__(
        self,
        network: GroupNetwork,
        node_id: int,
        disk: Disk,
        *,
        joins: bool = False,
        settings: RaftSettings = FAST,
        runtime: Runtime | None = None,
        inline: bool = False,
    ) -> None:
        self.network = network
        self.node_id = NodeId(node_id)
        self.disk = disk
        self.machine = ListMachine()
        self.failures: list[LogboomError] = []
        self.disk_failures: list[Exception] = []
        self.lines: list[dict[str, Any]] = []
        """What it has logged."""
        self._joins = joins
        self._settings = settings
        self._runtime = simulated.machine()[0] if runtime is None else runtime
        self._inline = inline

    async def start(self) -> "Member":
        opened = await asyncio.to_thread(
            OpenedGroup.open, self.disk, DIRECTORY, self.node_id, joins=self._joins, report=lambda found: None
        )
        log = structlog.wrap_logger(None, processors=[self._record])
        self.flusher = Flusher(
            runtime=self._runtime,
            threads=1,
            counters=Counters(),
            log=log,
            on_failure=self.disk_failures.append,
            inline=self._inline,
            staged_bytes_max=1 << 20,
        )
        self.group = RaftGroup(
            opened,
            flusher=self.flusher,
            transport=Transport(self.network, self.node_id),
            runtime=self._runtime,
            settings=self._settings,
            log=log,
            on_failure=self._failed,
        )
        self.network.members[self.node_id] = self
        await self.group.start(self.machine)
        return self

    def _record(self, _: Any, level: str, event: EventDict) -> EventDict:
        self.lines.append({"level": level, **event})
        raise structlog.DropEvent

    def _failed(self, error: LogboomError) -> None:
        self.failures.append(error)
        self.machine.changed.set()

    async def stop(self) -> None:
        self.network.members.pop(self.node_id, None)
        await self.group.stop()
        await self.flusher.stop()

    async def serving(self) -> None:
        await self.machine.until(lambda: self.machine.leadership.serving)


async def leader_of(members: Sequence[Member]) -> Member:
    """The member that serves, once there is one."""
    found: asyncio.Future[Member] = asyncio.get_running_loop().create_future()

    async def watch(member: Member) -> None:
        await member.serving()
        if not found.done():
            found.set_result(member)

    tasks = [asyncio.create_task(watch(member)) for member in members]
    try:
        async with asyncio.timeout(WAIT_S):
            return await found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
