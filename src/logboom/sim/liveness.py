"""Nothing stands still while nothing is wrong: looked up four times a second, from the start of a run to its end.

Promises about records alone hold of a cluster that takes none, and at the end of a run, once all is healed, whoever
had been in the way has long been taken out of the ISR or started anew. So, at any time at which all members of a
partition's ISR have been well and in touch with each other and with a controller that has a majority (`health`):

- for STALL_MAX_S: the partition has a leader that knows of it, and the high-water mark moves, where records wait above
  it;
- for ACK_MAX_S, and all other brokers too, which clients ask for the way: a batch that a producer sends again until it
  is acknowledged with acks=all is acknowledged. In one leadership: each may refuse a producer of which nothing is left
  in the log for its first 10 s, and leaders may just have gone back to where they are preferred.

Why so long. A connection that was cut is dialled again after up to 1 s, a direction that was blocked too; a lease that
has ended meanwhile takes 1 s, an election 1 to 2 s; a link of 0.2 s each way takes 1 s for what takes two round trips.
And why no longer: a follower that holds up its partition leaves the ISR after `broker.replica_lag_max_ms`, 30 s unless
it is set, so that a stall of that kind would end by itself. A client waits 5 s for an answer that does not come.

A partition that is on the move counts for nothing here, nor does one whose ISR is below its minimum: both may wait for
a broker that is not in the ISR.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from logboom.base.ids import NO_BROKER, Epoch, Offset, StreamId
from logboom.broker.partition.replica import Partition
from logboom.metadata.assignment import Assignment, Replicas
from logboom.sim.client import TopicPartition
from logboom.sim.coverage import LOOKS_AT_WELL
from logboom.sim.health import Health, health
from logboom.sim.history import History
from logboom.sim.node import SimNode
from logboom.sim.simulation import Simulation

STALL_MAX_S: Final = 6.0
ACK_MAX_S: Final = 15.0
_LOOK_EVERY_S: Final = 0.25

_Key = tuple[StreamId, int]


class _Well(NamedTuple):
    """A partition whose ISR is well."""

    where: TopicPartition
    assignment: Assignment
    leader: Partition | None
    """Where it is led, if so; None where that broker does not know of it."""

    def __str__(self) -> str:
        return f"{self.where.stream}-{self.where.partition}"

    @property
    def mark(self) -> Offset:
        """The high-water mark of whoever leads."""
        return Offset(-1) if self.leader is None else self.leader.role.leader.high_watermark

    @property
    def is_below(self) -> bool:
        """Whether its ISR is below the minimum."""
        return self.leader is not None and len(self.assignment.isr) < self.leader.config.min_insync_replicas

    @property
    def is_idle(self) -> bool:
        """Whether somebody leads it, and no record waits."""
        return self.leader is not None and self.leader.log.log_end_offset <= self.mark

    @property
    def state(self) -> str:
        """For people."""
        ends = "does not know of it" if self.leader is None else f"ends at {self.leader.log.log_end_offset}"
        one = self.assignment
        return f"{one.leader} leads in epoch {one.leader_epoch}, {ends}, is committed to {self.mark}; ISR {[*one.isr]}"


class _Stall(NamedTuple):
    """A partition that stands still while nothing is wrong."""

    since_s: float
    mark: Offset
    """The highest high-water mark until then."""


class Liveness:
    """The watch over one cluster. Life: from before its nodes start to the end of the run."""

    def __init__(
        self, simulation: Simulation, nodes: Sequence[SimNode], asked: Sequence[SimNode], history: History
    ) -> None:
        """`asked`: those of the nodes that clients ask for the way."""
        self.longest_s = self.longest_wait_s = 0.0
        """The longest time for which a partition stood still, and a batch waited, while nothing was wrong."""
        self._scheduler = simulation.scheduler
        self._met = simulation.trace.met
        self._network = simulation.network
        self._nodes = nodes
        self._asked = asked
        self._history = history
        self._stalls: dict[_Key, _Stall] = {}
        self._waits: dict[tuple[str, int], tuple[float, Epoch]] = {}
        """Since when batches wait while nothing is wrong, and the leader epoch."""
        self._told: set[object] = set()
        self._next_look_s = 0.0
        simulation.scheduler.after_jump = self._after_jump

    def _after_jump(self) -> None:
        if self._scheduler.now_s >= self._next_look_s:
            self._next_look_s = self._scheduler.now_s + _LOOK_EVERY_S
            now = health(self._nodes, self._network)
            well = {} if now is None else _well(now)
            self._met[LOOKS_AT_WELL] += len(well)
            self._look_for_stalls(well)
            asked = [node.broker_id for node in self._asked]
            self._look_for_acks(well if now is not None and now.all_well(asked) else {})

    def _look_for_stalls(self, well: Mapping[_Key, _Well]) -> None:
        before, self._stalls = self._stalls, {}
        for key, one in well.items():
            if one.is_below or one.is_idle:
                continue
            stall = before.get(key, _Stall(self._scheduler.now_s, one.mark))
            if one.mark > stall.mark:
                stall = _Stall(self._scheduler.now_s, one.mark)
            self._stalls[key] = stall
            lasts_s = self._scheduler.now_s - stall.since_s
            self.longest_s = max(self.longest_s, lasts_s)
            if lasts_s > STALL_MAX_S:
                self._tell(key, f"{one} stands still since {stall.since_s:.3f} s, for {lasts_s:.1f} s: {one.state}")

    def _look_for_acks(self, well: Mapping[_Key, _Well]) -> None:
        before, self._waits = self._waits, {}
        found = {one.where: one for one in well.values() if not one.is_below}
        for batch, where in self._history.waits.items():
            if (one := found.get(where)) is None:
                continue
            epoch = one.assignment.leader_epoch
            since_s, since_epoch = before.get(batch, (self._scheduler.now_s, epoch))
            if since_epoch != epoch:
                since_s = self._scheduler.now_s
            self._waits[batch] = since_s, epoch
            lasts_s = self._scheduler.now_s - since_s
            self.longest_wait_s = max(self.longest_wait_s, lasts_s)
            if lasts_s > ACK_MAX_S:
                told = f"batch {batch[1]} of {batch[0]} waits for its ack since {since_s:.3f} s, for {lasts_s:.1f} s"
                self._tell(batch, f"{told}, from {one}: {one.state}")

    def _tell(self, what: object, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._history.violated(f"{text}, all of them well and in touch")


def _needed(one: Assignment) -> Replicas:
    """Who has to be well for a partition to go on."""
    if one.in_doubt:
        return one.replicas  # all are waited for that may have more
    return one.relied_on if one.leader == NO_BROKER else one.isr


def _well(now: Health) -> dict[_Key, _Well]:
    """The partitions that should take records."""
    led = {
        (partition.stream.id, int(partition.index), number): partition
        for number, broker in now.brokers.items()
        for partition in broker.replicas
        if partition.role.leads
    }
    well: dict[_Key, _Well] = {}
    are_well = cache(now.all_well)
    for stream in now.image:
        for index, one in enumerate(stream.assignments):
            members = tuple(sorted(_needed(one)))
            if members and not one.reassigning and are_well(members):
                leader = led.get((stream.id, index, one.leader))
                leads = leader is not None and leader.role.epoch == one.leader_epoch
                well[stream.id, index] = _Well(TopicPartition(stream.name, index), one, leader if leads else None)
    return well
