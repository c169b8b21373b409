"""Three brokers with a copy each of the one partition of `__consumer_offsets`, under a controller that the test plays.

The copies are lists in memory with the rules of replication: who leads appends, others copy and truncate, and the
high-water mark is the smallest end among the in-sync replicas, moved under a lease alone. Brokers hear late of what the
controller has decided. The groups' services are the real ones.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

import structlog
from tests.support.simulated import machine

from logboom.base.dynamic import Current
from logboom.base.errors import NotLeaderError, RetriableStorageError, StorageError, UnknownStreamError
from logboom.base.ids import NO_BROKER, NO_EPOCH, BrokerId, Epoch, Offset, StreamId, StreamName
from logboom.broker.config import BrokerConfig
from logboom.broker.groups.offsets_stream import OFFSETS_STREAM
from logboom.broker.groups.service import GroupService
from logboom.broker.internal_streams import InternalStreams
from logboom.broker.partition.replica import AppendResult, Partition
from logboom.broker.partition.waiters import Done
from logboom.metadata import Image, ImageDelta, Stream
from logboom.metadata.assignment import Assignment
from logboom.records import patch_batch, read_header

BROKERS = tuple(map(BrokerId, range(3)))
CLICKS = StreamName("clicks")
_START = Offset(0)
QUICK: dict[str, Any] = {"initial_rebalance_delay_ms": 0, "session_timeout_min_ms": 1}


@dataclass
class Replica:
    """One broker's copy. What the room of groups uses of a `Partition`."""

    batches: list[bytes] = field(default_factory=list)
    high_watermark: Offset = _START
    epoch: Epoch = NO_EPOCH
    leads: bool = False
    start_offset: int = 0
    """Where its leadership began."""
    waiting: list[tuple[int, Done]] = field(default_factory=list)
    watchers: dict[int, Callable[[], None]] = field(default_factory=dict)
    handles: int = 0
    log_start_offset: Offset = _START
    log: Any = None
    config: Any = None
    damaged: set[int] = field(default_factory=set)
    """Offsets whose batches cannot be read."""
    cut_reads: int = 0
    """So many reads from now on find that the log is being cut back."""

    @property
    def reads(self) -> "Replica":
        return self

    @property
    def role(self) -> "Replica":
        return self

    @property
    def log_end_offset(self) -> Offset:
        return _end(self.batches[-1]) if self.batches else _START

    async def read(self, offset: Offset, max_bytes: int) -> bytes:
        await asyncio.sleep(0.001)
        if self.cut_reads:
            self.cut_reads -= 1
            raise RetriableStorageError("the log is being cut back")
        if offset in self.damaged:
            raise StorageError(f"the batch at offset {offset} is damaged")
        first = bisect_right(self.batches, offset, key=_end)
        return b"".join(one for one in self.batches[first : first + 1] if _end(one) <= self.high_watermark)

    def append(self, records: bytearray, *, acks: int, done: Done) -> None:
        assert acks == -1, "what is not committed is not told to anybody"
        if not self.leads:
            asyncio.get_running_loop().call_soon(done, NotLeaderError("not here"))
            return
        patch_batch(records, 0, self.log_end_offset, self.epoch)
        self.batches.append(bytes(records))
        self.waiting.append((self.log_end_offset, done))

    def watch(self, callback: Callable[[], None]) -> int:
        self.handles += 1
        self.watchers[self.handles] = callback
        return self.handles

    def unwatch(self, handle: int) -> None:
        self.watchers.pop(handle, None)

    def take_role(self, *, leads: bool, epoch: Epoch) -> None:
        if epoch == self.epoch:
            return
        waiting, self.waiting = self.waiting, []
        for _, done in waiting:
            done(NotLeaderError("another broker leads now"))
        self.leads, self.epoch, self.start_offset = leads, epoch, self.log_end_offset
        self.news()

    def committed(self, offset: int) -> None:
        if offset <= self.high_watermark:
            return
        self.high_watermark = Offset(offset)
        while self.waiting and self.waiting[0][0] <= offset:
            end, done = self.waiting.pop(0)
            done(AppendResult(Offset(end - 1), -1, _START))
        self.news()

    def news(self) -> None:
        for callback in list(self.watchers.values()):
            callback()

    def copy(self, leader: "Replica", batches: int) -> None:
        """Truncate what the leader does not have, then copy some of its batches. Where two logs have the same batch
        (its offset and epoch are in it) they are the same up to there."""
        same = min(len(self.batches), len(leader.batches))
        while same and self.batches[same - 1] != leader.batches[same - 1]:
            same -= 1
        self.batches[same:] = leader.batches[same : same + batches]
        self.high_watermark = Offset(max(self.high_watermark, min(leader.high_watermark, self.log_end_offset)))


def _end(batch: bytes) -> Offset:
    return read_header(batch, 0).next_offset


class Node:
    """One broker."""

    def __init__(self, cluster: "Cluster", broker_id: BrokerId) -> None:
        self.id = broker_id
        self.replica = Replica()
        self.image = Image()
        self.holds_lease = True
        self.behind_s = 0.0
        self.damage_found = False
        self.log = structlog.testing.CapturingLogger()
        log = structlog.wrap_logger(self.log)
        self.groups = GroupService(
            Current(BrokerConfig(data_dir=Path("unused"), groups=cluster.settings)),
            InternalStreams(
                broker_id,
                metadata=self,
                ensure=_no_stream,
                find_partition=self._find,
                found_damage=self._found_damage,
            ),
            self,
            runtime=machine()[0],
            log=log,
        )

    def _find(self, name: str, index: int) -> Partition:
        assert (name, index) == (OFFSETS_STREAM, 0)
        return cast("Partition", self.replica)

    def _found_damage(self, name: str, index: int) -> bool:
        self.damage_found = True
        return len(self.image.by_name[OFFSETS_STREAM].assignments[0].isr) > 1

    def apply(self, image: Image) -> None:
        """As `Broker.apply` does it."""
        delta = ImageDelta(self.image, image, (), (), (), (), quotas_changed=False, broker_configs_changed=False)
        self.image = image
        one = image.by_name[OFFSETS_STREAM].assignments[0]
        self.groups.let_go(delta)
        self.replica.take_role(leads=one.leader == self.id, epoch=one.leader_epoch)
        self.groups.follow(delta)

    def set_lease(self, *, held: bool) -> None:
        if held != self.holds_lease:
            self.holds_lease = held
            self.groups.lease_changed(held=held)


async def _no_stream(name: str, **_: object) -> Stream:
    raise UnknownStreamError(name)


class Cluster:
    """All of them, and what the controller has decided."""

    def __init__(self, **settings: Any) -> None:
        self.settings = cast("Any", {**QUICK, **settings})
        self.isr = set(BROKERS)
        self.leader = BROKERS[0]
        self.epoch = Epoch(0)
        self.nodes = [Node(self, one) for one in BROKERS]
        self.images: list[Image] = []
        self.heard = dict.fromkeys(BROKERS, 0)
        """How many of the images each broker has applied."""
        self.decide()

    # --- the controller -----------------------------------------------------------------------------------------

    def decide(self) -> None:
        """Commit an image of the present state; brokers hear of it by `hear`."""
        one = Assignment(replicas=BROKERS, isr=tuple(sorted(self.isr)), leader=self.leader, leader_epoch=self.epoch)
        streams = [
            Stream(OFFSETS_STREAM, StreamId(UUID(int=1)), 1, {}, internal=True, assignments=(one,)),
            Stream(CLICKS, StreamId(UUID(int=2)), 8, {}, internal=False),
        ]
        self.images.append(Image(by_name=MappingProxyType({stream.name: stream for stream in streams})))

    def hear(self, broker: BrokerId) -> None:
        """A broker applies the next image that it has not heard of; under a lease again if it led before."""
        if self.heard[broker] < len(self.images):
            self.nodes[broker].apply(self.images[self.heard[broker]])
            self.heard[broker] += 1
        if self.knows_all(broker):
            self.nodes[broker].set_lease(held=True)

    def knows_all(self, broker: BrokerId) -> bool:
        return self.heard[broker] == len(self.images)

    def elect(self, leader: BrokerId, *, drop: Iterable[BrokerId] = ()) -> None:
        """Another leader of the ISR, or the same one anew. The one before has no lease any more; some leave the ISR."""
        assert leader in self.isr
        if leader != self.leader and self.leader != NO_BROKER:
            self.nodes[self.leader].holds_lease = False  # its clock says so at once, whoever tells it later
        self.leader, self.epoch = leader, Epoch(self.epoch + 1)
        self.isr -= set(drop) - {leader}
        self.decide()

    # --- replication --------------------------------------------------------------------------------------------

    def leading(self) -> Replica | None:
        """The copy of the leader that knows that it leads."""
        replica = self.nodes[self.leader].replica
        return replica if replica.leads and replica.epoch == self.epoch else None

    def replicate(self, follower: BrokerId, batches: int) -> None:
        """A follower copies some batches; the high-water mark moves; it joins the ISR when it has all."""
        leader, replica = self.leading(), self.nodes[follower].replica
        if leader is None or follower == self.leader or not self.knows_all(follower) or replica.epoch != self.epoch:
            return
        replica.copy(leader, batches)
        if follower not in self.isr and replica.log_end_offset >= max(leader.high_watermark, leader.start_offset):
            self.isr.add(follower)
            self.decide()
        self.commit()

    def commit(self) -> None:
        """The leader moves the high-water mark, under its lease."""
        leader = self.leading()
        if leader is not None and self.nodes[self.leader].holds_lease and all(self._copies(one) for one in self.isr):
            leader.committed(min(self.nodes[one].replica.log_end_offset for one in self.isr))

    def _copies(self, broker: BrokerId) -> bool:
        """Whether a replica's log is known to be the leader's as far as it goes, in this epoch."""
        replica, leader = self.nodes[broker].replica, self.nodes[self.leader].replica
        count = len(replica.batches)
        return replica.epoch == self.epoch and replica.batches[-1:] == leader.batches[:count][-1:]

    async def run(self, random: Random, *, until: "asyncio.Future[Any]") -> None:
        """Chance plays the controller, the network and the clocks, until a future is done; then all goes well."""
        while not until.done():
            self._step(random)
            await asyncio.sleep(random.choice((0.001, 0.01, 0.1)))

    def _step(self, random: Random) -> None:
        one = random.choice(BROKERS)
        match random.randrange(100):
            case 0:
                chosen = random.choice(sorted(self.isr))
                self.elect(chosen, drop=random.choice(((), (self.leader,), BROKERS)))
            case 1:
                self.nodes[one].set_lease(held=False)
            case number if 10 < number < 25:
                self.hear(one)
            case 2 if one != self.leader and one in self.isr:
                self.isr.discard(one)
                self.decide()
            case _:
                self.replicate(one, random.randrange(1, 6))
                self.commit()

    def settle(self) -> None:
        """All brokers hear of all, and copy all."""
        for broker in BROKERS:
            while not self.knows_all(broker):
                self.hear(broker)
            self.hear(broker)
        for broker in BROKERS:
            self.replicate(broker, 1 << 30)

    async def stop(self) -> None:
        for node in self.nodes:
            await node.groups.stop()
