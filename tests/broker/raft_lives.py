"""Lives of a whole group in simulated time: the real driver, files and group commit of each member as a process.

The network delays, loses, repeats and overtakes; members are killed and lose their power; disks fill up and fail;
leadership is handed over and members come and go, all under one seed. It is checked that

- what is applied at an index is the same everywhere, also through snapshots, and at most one member serves in a term;
- a proposal that was answered is applied, and stays so; one that was rejected or lost never is;
- a member that serves has applied what was answered in earlier terms, and one that was confirmed to lead what was
  answered before it was asked;
- once everything is mended, all members come to the same end.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable
from typing import Final, TypeVar

import msgspec

from logboom.base.errors import LogboomError, NotControllerError, OutcomeUnknownError, StorageError
from logboom.broker.disk.flusher import Flusher
from logboom.broker.metrics import Counters
from logboom.broker.raft import Leadership, OpenedGroup, RaftGroup, RaftSettings, RaftTiming
from logboom.raft import ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, Index, NodeId, Term
from logboom.sim.device import Device, DiskTiming
from logboom.sim.disk import SimDisk
from logboom.sim.process import Process, ProcessEndedError
from logboom.sim.simulation import Simulation

DIRECTORY: Final = "raft"
SETTINGS: Final = RaftSettings(
    timing=RaftTiming(tick_ms=50), snapshot_entries=lambda: 30, snapshot_log_bytes=20_000, catch_up_entries=10
)
DELAY_S: Final = (0.0002, 0.02)
LOSS: Final = 0.02
REPEATS: Final = 0.02
ANSWER_S: Final = 3.0
SETTLE_S: Final = 120.0
MEMBERS_MAX: Final = 5

Result = TypeVar("Result")


class ViolationError(AssertionError):
    """Something that was promised does not hold."""


class Book:
    """All that ever happened in a life."""

    def __init__(self) -> None:
        self.applied: dict[Index, bytes] = {}
        self.digests: dict[Index, str] = {}
        self.acked_in: dict[Term, Index] = {}
        """The last entry that was answered by a leader of each term; its own term is not above that."""
        self.never: set[bytes] = set()
        self.values: set[bytes] = set()
        self.serving: dict[Term, NodeId] = {}
        self.happened: Counter[str] = Counter()
        self.violations: list[ViolationError] = []

    def violated(self, what: str) -> ViolationError:
        """The error to raise. It is kept: what is raised in a process only ends that process."""
        self.violations.append(ViolationError(what))
        return self.violations[-1]

    def apply(self, index: Index, data: bytes, digest: str) -> None:
        if self.applied.setdefault(index, data) != data:
            raise self.violated(f"at {index} {self.applied[index]!r} and {data!r} were applied")
        if self.digests.setdefault(index, digest) != digest:
            raise self.violated(f"at {index} two states")
        if data in self.never:
            raise self.violated(f"{data!r} is applied, which was told never to be")
        self.values.add(data)

    def ack(self, index: Index, data: bytes, term: Term) -> None:
        self.happened["acked"] += 1
        if self.applied.get(index) != data:
            raise self.violated(f"{data!r} was answered as {index}, where {self.applied.get(index)!r} is")
        self.acked_in[term] = max(index, self.acked_in.get(term, index))

    def refuse(self, data: bytes) -> None:
        self.happened["refused"] += 1
        if data in self.values:
            raise self.violated(f"{data!r} was refused and is applied")
        self.never.add(data)

    def serve(self, term: Term, node_id: NodeId, applied: Index) -> None:
        self.happened["served"] += 1
        if self.serving.setdefault(term, node_id) != node_id:
            raise self.violated(f"{node_id} and {self.serving[term]} both serve in term {term}")
        answered = max((index for earlier, index in self.acked_in.items() if earlier < term), default=Index(0))
        if answered > applied:
            raise self.violated(f"{node_id} serves in term {term} from {applied}, {answered} was answered before")

    @property
    def acked_end(self) -> Index:
        return max(self.acked_in.values(), default=Index(0))


class DigestMachine:
    """A state machine whose state is a digest of all that was applied."""

    def __init__(self, book: Book, host: "Host") -> None:
        self.index, self.digest = Index(0), ""
        self._book = book
        self._host = host
        self._pause = host.life.chance

    async def apply(self, index: Index, data: bytes) -> None:
        assert index > self.index
        if self._pause.random() < 0.1:
            await asyncio.sleep(self._pause.uniform(0, 0.02))
        self.digest = hashlib.sha256(self.digest.encode() + data).hexdigest()
        self.index = index
        self._book.apply(index, data, self.digest)

    async def restore(self, index: Index, data: bytes) -> None:
        assert index > self.index
        applied, self.digest = msgspec.msgpack.decode(data, type=tuple[int, str])
        await asyncio.sleep(0)
        self.index = index
        self._book.happened["restored"] += 1
        if self._book.digests.get(Index(applied), "") != self.digest:
            raise self._book.violated(f"a snapshot of {applied} with another state")

    def snapshot(self) -> bytes:
        self._book.happened["snapshots"] += 1
        return msgspec.msgpack.encode((self.index, self.digest))

    def leadership_changed(self, leadership: Leadership) -> None:
        self._host.leadership = leadership
        if leadership.serving:
            self._book.serve(leadership.term, self._host.node_id, self.index)


class Host:
    """One member with its disk, which outlives its processes."""

    def __init__(self, life: "Life", node_id: int, *, joins: bool) -> None:
        self.life = life
        self.node_id = NodeId(node_id)
        self.name = f"n{node_id}"
        self.disk = SimDisk()
        self.device = Device(
            life.simulation.scheduler,
            self.name,
            life.simulation.fork(f"{self.name}/disk"),
            DiskTiming(sync_s=(50e-6, 10e-3)),
        )
        self.process: Process | None = None
        self.group: RaftGroup | None = None
        self.machine: DigestMachine | None = None
        self.leadership = Leadership()
        self.failures: list[LogboomError] = []
        self._joins = joins

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.loop.life.alive

    async def start(self) -> None:
        """A new process; it ends at once where it cannot start."""
        process = self.process = self.life.simulation.process(self.name)
        self.device.serve(self.disk, process.loop)
        self.group, self.leadership = None, Leadership()
        self.life.book.happened["starts"] += 1
        try:
            await process.run(self._begin(process))
        except StorageError as error:
            if "damaged" in str(error):
                raise self.life.book.violated(str(error)) from error
            process.kill()
        except ProcessEndedError:
            pass

    async def _begin(self, process: Process) -> None:
        opened = await asyncio.to_thread(
            OpenedGroup.open, self.disk, DIRECTORY, self.node_id, joins=self._joins, report=lambda found: None
        )
        flusher = Flusher(
            runtime=process.runtime,
            threads=1,
            counters=Counters(),
            log=process.log,
            on_failure=lambda error: None,
            inline=self.disk.start_async_syncs(),
            staged_bytes_max=1 << 20,
        )
        self.machine = DigestMachine(self.life.book, self)
        group = RaftGroup(
            opened,
            flusher=flusher,
            transport=self,
            runtime=process.runtime,
            settings=SETTINGS,
            log=process.log,
            on_failure=self._failed,
        )
        self.group = group
        await group.start(self.machine)

    def _failed(self, error: LogboomError) -> None:
        self.life.book.happened["failed"] += 1
        self.failures.append(error)
        if "simulated disk" not in str(error):
            self.life.book.violated(f"{self.name} ended: {error}")

    def send(self, to: NodeId, message: bytes, *, is_snapshot: bool) -> bool:
        """`RaftTransport`."""
        return self.life.send(self.node_id, to, message, is_snapshot=is_snapshot)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.disk = self.disk.after_kill()
        self.device.mend()

    def cut_power(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.disk = self.disk.power_cut(self.life.chance)
        self.device.mend()


class Life:
    """One life under a seed."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.chance = self.simulation.fork("life")
        self.network = self.simulation.fork("messages")
        self.book = Book()
        self.hosts: dict[NodeId, Host] = {}
        self.gone: set[NodeId] = set()
        self.cut: set[NodeId] = set()
        self._number = 0

    def run(self, seconds: float) -> Counter[str]:
        """Live so long, mend everything, and see that all come to the same end; what happened."""
        try:
            self.simulation.run(self._live(seconds), max_s=seconds + SETTLE_S + 600)
        finally:
            if self.book.violations:
                raise self.book.violations[0]
        return self.book.happened

    async def _live(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        await self._add(joins=False)
        trouble = asyncio.ensure_future(self._trouble(loop.time() + seconds))
        work = [asyncio.ensure_future(self._work(loop.time() + seconds)) for _ in range(3)]
        await asyncio.gather(trouble, *work)
        await self._settle()

    async def _add(self, *, joins: bool) -> Host:
        host = Host(self, len(self.hosts) + 1, joins=joins)
        self.hosts[host.node_id] = host
        await host.start()
        return host

    # --- messages -----------------------------------------------------------------------------------------------

    def send(self, sender: NodeId, to: NodeId, message: bytes, *, is_snapshot: bool) -> bool:
        host = self.hosts.get(to)
        if host is None or not host.running or host.process is None:
            return self.network.random() < 0.5  # it takes a while until a dead connection is noticed
        self.book.happened["snapshots sent"] += is_snapshot
        if {sender, to} & self.cut or self.network.random() < LOSS:
            return self.network.random() < 0.5
        for _ in range(2 if self.network.random() < REPEATS else 1):
            host.process.loop.call_later(self.network.uniform(*DELAY_S), self._deliver, host, sender, message)
        return True

    def _deliver(self, host: Host, sender: NodeId, message: bytes) -> None:
        if host.group is not None:
            host.group.received(memoryview(message), sender)

    # --- work ---------------------------------------------------------------------------------------------------

    async def _work(self, until_s: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until_s:
            await asyncio.sleep(self.chance.uniform(0, 0.2))
            running = [host for host in self.hosts.values() if host.running and host.group is not None]
            serving = [host for host in running if host.leadership.serving]
            if not running:
                continue
            host = self.chance.choice(serving if serving and self.chance.random() < 0.9 else running)
            if self.chance.random() < 0.2:
                await self._read(host)
            else:
                await self._propose(host, self.chance.choice((1, 1, 1, 20)))

    async def _propose(self, host: Host, count: int) -> None:
        await asyncio.gather(*(self._propose_one(host) for _ in range(count)))

    async def _propose_one(self, host: Host) -> None:
        self._number += 1
        data = b"%d " % self._number + b"x" * self.chance.choice((10, 100, 2_000))
        assert host.process is not None
        assert host.group is not None
        try:
            index = await host.process.run(_within(host.group.propose(data)))
        except NotControllerError:
            self.book.refuse(data)
        except (OutcomeUnknownError, StorageError, ProcessEndedError, TimeoutError):
            self.book.happened["unknown"] += 1
        else:
            self.book.ack(index, data, host.leadership.term)

    async def _read(self, host: Host) -> None:
        floor = self.book.acked_end
        assert host.process is not None
        assert host.group is not None
        try:
            asked = host.group.confirm_leadership(urgent=self._number % 2 == 0)
            index = await host.process.run(_within(asked))
        except (LogboomError, ProcessEndedError, TimeoutError):
            return
        self.book.happened["reads"] += 1
        machine = host.machine
        if index < floor or machine is None or machine.index < floor:
            raise ViolationError(f"{host.name} was confirmed at {index} and has not all that was answered: {floor}")

    # --- trouble ------------------------------------------------------------------------------------------------

    async def _trouble(self, until_s: float) -> None:
        loop = asyncio.get_running_loop()
        kinds = {
            self._kill: 3,
            self._isolate: 3,
            self._fill_disk: 2,
            self._fail_disk: 1,
            self._slow_disk: 1,
            self._hang_disk: 1,
            self._hand_over: 2,
            self._change_members: 8,
            self._restart_dead: 6,
            self._stand_still: 1,
        }
        while loop.time() < until_s:
            await asyncio.sleep(self.chance.uniform(0, 1.0))
            kind = self.chance.choices(list(kinds), list(kinds.values()))[0]
            self.book.happened[kind.__name__.strip("_")] += 1
            await kind()

    def _some(self) -> Host | None:
        running = [host for host in self.hosts.values() if host.running and host.node_id not in self.gone]
        return self.chance.choice(running) if running else None

    async def _kill(self) -> None:
        if (host := self._some()) is not None:
            if self.chance.random() < 0.5:
                host.kill()
            else:
                host.cut_power()

    async def _restart_dead(self) -> None:
        for host in self.hosts.values():
            if host.running and host.failures:  # its disk failed: the process ends, as a broker's would be ended
                host.failures.clear()
                host.cut_power() if self.chance.random() < 0.5 else host.kill()
            if not host.running and host.node_id not in self.gone:
                host.disk.capacity_bytes = 1 << 40
                await host.start()

    async def _isolate(self) -> None:
        self.cut = set(self.chance.sample(sorted(self.hosts), self.chance.randint(1, max(1, len(self.hosts) // 2))))
        await asyncio.sleep(self.chance.uniform(0, 3))
        self.cut = set()

    async def _fill_disk(self) -> None:
        if (host := self._some()) is not None:
            used = sum(len(node.data) for node in host.disk.nodes.values())
            host.disk.capacity_bytes = used + self.chance.choice((0, 1_000, 100_000))
            await asyncio.sleep(self.chance.uniform(0, 4))
            host.disk.capacity_bytes = 1 << 40

    async def _fail_disk(self) -> None:
        if (host := self._some()) is not None:
            host.device.failing = frozenset({self.chance.choice(("sync", "write", "sync_dir"))})
            await asyncio.sleep(self.chance.uniform(0, 1))
            host.device.mend()

    async def _slow_disk(self) -> None:
        if (host := self._some()) is not None:
            host.device.slow = True
            await asyncio.sleep(self.chance.uniform(0, 3))
            host.device.mend()

    async def _hang_disk(self) -> None:
        if (host := self._some()) is not None:
            host.device.hanging = frozenset({"sync"})
            await asyncio.sleep(self.chance.uniform(0, 8))
            host.device.mend()

    async def _stand_still(self) -> None:
        """The machine does nothing for a while, so that all are late."""
        self.simulation.scheduler.pass_time(self.chance.uniform(0, 3))

    async def _hand_over(self) -> None:
        leader = self._leader()
        if leader is not None and leader.group is not None and leader.process is not None:
            to = self.chance.choice(sorted(self.hosts))
            leader.process.loop.call_soon(leader.group.transfer_leadership, to)

    def _leader(self) -> Host | None:
        serving = [host for host in self.hosts.values() if host.running and host.leadership.serving]
        return max(serving, key=lambda host: host.leadership.term, default=None)

    async def _change_members(self) -> None:
        leader = self._leader()
        if leader is None or leader.group is None or leader.process is None:
            return
        voters, learners = leader.group.members.voters, leader.group.members.learners
        if learners and self.chance.random() < 0.7:
            change = _single(ConfChangeType.ADD_NODE, self.chance.choice(learners))
        elif len(voters) + len(learners) < 3 or (len(voters) < MEMBERS_MAX and self.chance.random() < 0.5):
            change = _single(ConfChangeType.ADD_LEARNER_NODE, (await self._add(joins=True)).node_id)
        elif len(voters) > 3 and self.chance.random() < 0.3:
            gone = self.chance.sample([voter for voter in voters if voter != leader.node_id], 2)
            singles = tuple(ConfChangeSingle(ConfChangeType.REMOVE_NODE, voter) for voter in gone)
            change = ConfChangeV2(singles, ConfChangeTransition.JOINT_IMPLICIT)
        elif len(voters) > 1:
            change = _single(ConfChangeType.REMOVE_NODE, self.chance.choice(voters))
        else:
            return
        try:
            await leader.process.run(_within(leader.group.change_members(change)))
        except (LogboomError, ProcessEndedError, TimeoutError):
            return
        self.book.happened["members changed"] += 1

    # --- the end ------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Everything is mended; the members of the group must come to the same end, with all that was answered."""
        self.cut = set()
        for host in self.hosts.values():
            host.device.mend()
            host.disk.capacity_bytes = 1 << 40
        async with asyncio.timeout(SETTLE_S):
            while not self.book.violations and not await self._is_settled():
                await self._restart_dead()
                await asyncio.sleep(1)
        leader = self._leader()
        if leader is None or leader.machine is None:
            return
        if leader.machine.index < self.book.acked_end:
            raise ViolationError(f"{self.book.acked_end} was answered, the end is {leader.machine.index}")

    async def _is_settled(self) -> bool:
        leader = self._leader()
        if leader is None or leader.group is None or leader.machine is None:
            return False
        await self._propose_one(leader)
        await asyncio.sleep(1)
        members = leader.group.members
        ids = {*members.voters, *members.learners, *members.voters_outgoing}
        machines = [self.hosts[node_id].machine for node_id in ids]
        return len({None if machine is None else machine.digest for machine in machines}) == 1


def _single(kind: ConfChangeType, node_id: NodeId) -> ConfChangeV2:
    return ConfChangeV2((ConfChangeSingle(kind, node_id),))


async def _within(awaitable: Awaitable[Result]) -> Result:
    async with asyncio.timeout(ANSWER_S):
        return await awaitable
