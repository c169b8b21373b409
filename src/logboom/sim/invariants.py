"""What must be true of a cluster at every step, whatever its clients see: looked up in the brokers after each callback.

- one controller: no two nodes lead the consensus group in one term;
- committed entries never change: every broker that has applied the log up to an index has the same image there;
- leaders are in the ISR, the ISR is among the replicas, ISR and ELR have nobody in common, and a leader's epoch rises
  with every change of the leader;
- one leader: no two brokers lead a partition in one leader epoch;
- the high-water mark never goes back in a leadership, is not above the log's end, and when it moves every member of the
  committed ISR has been durable up to there (design, rule 3);
- a partition in service soon knows of the lease that its broker has;
- nobody leads who was neither in the ISR nor eligible, unless the operator has asked for that; or unless all of those
  were killed, and then it has everything that anybody was told of;
- nothing is acknowledged to a client that asked for acks=all before some leader's high-water mark is above it.

An operator who has somebody lead that need not have everything may lose records by it; then nobody promises anything
of records, offsets and sequences any more. So the run ends there, and what was found wrong until then counts. Where the
chosen copy has all that anybody was told of, the run goes on as if nothing had been.

Watching changes nothing: nothing is called that acts, and no chance is drawn.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, TypeAlias

from logboom.base.ids import NO_BROKER, BrokerId, Epoch, Offset, StreamId
from logboom.broker.broker import Broker
from logboom.broker.disk.ownership import directory_of
from logboom.broker.partition.leader import Leader
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.role import Role
from logboom.metadata import Flush, Image, ImageDelta, Stream
from logboom.metadata.assignment import Assignment
from logboom.sim.client import TopicPartition
from logboom.sim.copies import flipped_on, records_on
from logboom.sim.coverage import (
    BACK,
    BELOW_MINIMUM,
    COMPARED,
    CONTROLLERS,
    ELECTIONS,
    ISR_EXPANSIONS,
    ISR_SHRINKS,
    LEADERLESS,
    REASSIGNED,
    UNCLEAN,
    UNCLEAN_LOSSES,
)
from logboom.sim.history import History
from logboom.sim.node import SimNode
from logboom.sim.scheduler import Loop, SimulationError
from logboom.sim.simulation import Simulation
from logboom.storage import PartitionLog

_Key = tuple[StreamId, int]
_Seen: TypeAlias = Offset | tuple[Offset, Epoch, Offset]
"""How far a copy is durable; of one that leads its epoch and its high-water mark too."""
_IMAGES_MAX: Final = 10_000
_LOOK_EVERY_S: Final = 0.3
_LOOKS_WITHOUT_LEASE_MAX: Final = 3


class GivenUpError(SimulationError):
    """The operator has had a copy lead that lacks records which somebody was told of: the run ends, and held."""


class _Copies:
    """The partitions that a broker holds, and what its last step has left of them: most steps change nothing of it.

    Looked at after each step, so the parts of a partition that are asked are kept beside it.
    """

    __slots__ = ("broker", "held", "parts", "seen")

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.held: tuple[Partition, ...] = ()
        self.parts: list[tuple[PartitionLog, Role, Leader]] = []
        self.seen: list[_Seen | None] = []

    def look(self) -> Sequence[Partition]:
        """Those of which something is another than after the last step."""
        if self.held != (now_held := tuple(self.broker.replicas)):
            before = dict(zip(self.held, self.seen, strict=True))
            self.held, self.seen = now_held, [before.get(one) for one in now_held]
            self.parts = [(one.log, one.role, one.role.leader) for one in now_held]
        changed: list[Partition] = []
        seen = self.seen
        for place, (log, role, leader) in enumerate(self.parts):
            durable = log.durable_end
            now: _Seen = (durable, role.epoch, leader.high_watermark) if role.leads else durable
            if seen[place] != now:
                seen[place] = now
                changed.append(self.held[place])
        return changed


class Invariants:
    """The watch over one cluster. Life: from before its nodes start to the end of the run."""

    def __init__(
        self,
        simulation: Simulation,
        nodes: Sequence[SimNode],
        history: History,
        asked_uncleanly: Collection[tuple[str, int]] = (),
    ) -> None:
        """`asked_uncleanly`: partitions for which the operator has said so far that whoever has most shall lead."""
        self._scheduler = simulation.scheduler
        self._asked_uncleanly = asked_uncleanly
        self._met = simulation.trace.met
        self._history = history
        self._nodes = {node.name: node for node in nodes}
        self._copies: dict[str, _Copies] = {}
        """Of each node."""
        self._next_looks_s: defaultdict[str, float] = defaultdict(float)
        self._without_lease: dict[str, Counter[Partition]] = {}
        """Of each node's partitions, at how many looks in a row they had no lease, and their broker had one."""
        self._controllers: dict[int, int] = {}
        """Of each term of the group, its leader."""
        self._images: dict[int, Image] = {}
        """After each entry of the group's log, of the last ones."""
        self._leaders: dict[tuple[_Key, Epoch], BrokerId] = {}
        self._marks: dict[tuple[_Key, Epoch], Offset] = {}
        """High-water marks of leaderships."""
        self._durable: defaultdict[tuple[_Key, BrokerId], int] = defaultdict(int)
        """How far a replica has ever been durable."""
        self._committed: defaultdict[TopicPartition, int] = defaultdict(int)
        """The highest high-water mark of any leader."""
        self._unclean: set[tuple[_Key, Epoch]] = set()
        """Leaderships of copies that need not have everything, until they begin."""
        self._told: set[str] = set()
        simulation.scheduler.after_step = self._after_step
        history.on_committed = self._acknowledged

    def _violated(self, text: str) -> None:
        if text not in self._told:  # what is wrong once is wrong after each step
            self._told.add(text)
            self._history.violated(text)

    def _after_step(self, loop: Loop) -> None:
        node = self._nodes.get(loop.life.host)
        if node is None or node.process is None or node.process.loop is not loop:
            return
        broker = node.broker
        if broker is None:
            return
        copies = self._copies.get(node.name)
        if copies is None or copies.broker is not broker:
            copies = self._copies[node.name] = _Copies(broker)
            self._attach(broker)
        leadership = broker.cluster.view.leadership
        if leadership.leader is not None and self._controllers.get(leadership.term) != leadership.leader:
            self._controller(leadership.term, leadership.leader)
        if self._scheduler.now_s >= self._next_looks_s[node.name]:
            self._next_looks_s[node.name] = self._scheduler.now_s + _LOOK_EVERY_S
            self._look_for_leases(node, broker)
        for partition in copies.look():
            self._check_partition(node.broker_id, partition)

    def _look_for_leases(self, node: SimNode, broker: Broker) -> None:
        before, without = self._without_lease.get(node.name, Counter()), Counter[Partition]()
        if broker.cluster.registration.holds_lease:
            for partition in broker.replicas:
                if not partition.role.leader.has_lease:
                    without[partition] = before[partition] + 1
                    if without[partition] == _LOOKS_WITHOUT_LEASE_MAX:
                        self._violated(f"{partition} on {node.name} does not know of the lease of its broker")
        self._without_lease[node.name] = without

    # --- the metadata ----------------------------------------------------------------------------------------------

    def _controller(self, term: int, leader: int) -> None:
        known = self._controllers.setdefault(term, leader)
        if known != leader:
            self._violated(f"nodes {known} and {leader} lead the group in term {term}")
        else:
            self._met[CONTROLLERS] += 1

    def _attach(self, broker: Broker) -> None:
        """A broker has come up: it tells of each change from now on.

        What it has until then may be ahead of the entry that it says it has applied: the image is there first, and what
        it asks for is prepared meanwhile.
        """
        broker.cluster.state.watch(partial(self._changed, broker))

    def _changed(self, broker: Broker, delta: ImageDelta) -> None:
        if self._image(broker.cluster.state.applied_index, delta.after):
            self._count(delta)

    def _image(self, index: int, image: Image) -> bool:
        """A broker has this image after an entry; whether it is the first that has applied that entry."""
        known = self._images.setdefault(index, image)
        if known is not image:
            if known != image:
                self._violated(f"brokers have different metadata after entry {index} of the group's log")
            return False
        if len(self._images) > _IMAGES_MAX:
            del self._images[next(iter(self._images))]
        for stream in image:
            for number, one in enumerate(stream.assignments):
                self._check_assignment(f"{stream.name}-{number}", one)
        return True

    def _check_assignment(self, name: str, one: Assignment) -> None:
        isr, elr = set(one.isr), set(one.elr)
        if one.leader != NO_BROKER and one.leader not in isr:
            self._violated(f"{one.leader} leads {name} outside the ISR {sorted(isr)}")
        if not isr <= set(one.replicas) or not elr <= set(one.replicas):
            self._violated(f"{name} has {sorted(isr | elr)} in ISR and ELR, and the replicas {sorted(one.replicas)}")
        if isr & elr:
            self._violated(f"{sorted(isr & elr)} are in the ISR and the ELR of {name}")

    def _count(self, delta: ImageDelta) -> None:
        """A change that was just committed."""
        before = delta.before
        for broker_id, broker in delta.after.brokers.items():
            old = before.brokers.get(broker_id)
            self._met[BACK] += old is not None and old.epoch != broker.epoch
        for stream in delta.reassigned:
            for number, (old_one, new_one) in enumerate(_both(before.by_id[stream.id], stream)):
                self._count_one(f"{stream.name}-{number}", old_one, new_one)
                if _is_unclean(old_one, new_one):
                    self._elected_uncleanly(stream, number, old_one, new_one)

    def _elected_uncleanly(self, stream: Stream, number: int, old: Assignment, now: Assignment) -> None:
        self._met[COMPARED if old.in_doubt else UNCLEAN] += 1
        self._unclean.add(((stream.id, number), now.leader_epoch))
        if not old.in_doubt and (stream.name, number) not in self._asked_uncleanly:
            self._violated(f"{now.leader} leads {stream.name}-{number}, was not eligible, and nobody has asked for it")

    def _count_one(self, name: str, old: Assignment, new: Assignment) -> None:
        met = self._met
        if new.leader != old.leader:
            met[ELECTIONS if new.leader != NO_BROKER else LEADERLESS] += 1
            if new.leader_epoch <= old.leader_epoch:
                self._violated(f"{name} has the leader {new.leader} in the old epoch {new.leader_epoch}")
        met[ISR_SHRINKS] += bool(set(old.isr) - set(new.isr))
        met[ISR_EXPANSIONS] += bool(set(new.isr) - set(old.isr))
        met[BELOW_MINIMUM] += bool(set(new.elr) - set(old.elr))
        met[REASSIGNED] += bool(set(old.replicas) - set(new.replicas))

    # --- partitions ------------------------------------------------------------------------------------------------

    def _check_partition(self, broker_id: BrokerId, partition: Partition) -> None:
        key = (partition.stream.id, partition.index)
        durable = partition.log.durable_end
        if durable > self._durable[key, broker_id]:
            self._durable[key, broker_id] = durable
        role = partition.role
        if not role.leads:
            return
        leadership = (key, role.epoch)
        leader = self._leaders.setdefault(leadership, broker_id)
        if leader != broker_id:
            self._violated(f"{leader} and {broker_id} lead {partition} in epoch {role.epoch}")
        if leadership in self._unclean:
            self._unclean.discard(leadership)
            self._check_chosen(broker_id, partition)
        mark, known = role.leader.high_watermark, self._marks.get(leadership)
        if mark != known:
            self._marks[leadership] = mark
            self._check_mark(partition, mark, known)

    def _check_mark(self, partition: Partition, mark: Offset, known: Offset | None) -> None:
        if known is not None and mark < known:
            self._violated(f"the high-water mark of {partition} went back from {known} to {mark}")
        if mark > partition.log.log_end_offset:
            self._violated(f"the high-water mark {mark} of {partition} is above its end")
        where = TopicPartition(partition.stream.name, partition.index)
        self._committed[where] = max(self._committed[where], mark)
        key = (partition.stream.id, partition.index)
        if known is None or partition.config.flush is not Flush.COMMIT:
            return
        starting = {node.broker_id for node in self._nodes.values() if node.broker is None}
        for member in partition.role.leader.isr - starting:  # one that starts follows before it can be looked into
            if self._durable[key, member] < mark:
                durable = self._durable[key, member]
                self._violated(f"{partition} is committed to {mark}, and {member} of its ISR durable to {durable}")

    def _check_chosen(self, broker_id: BrokerId, partition: Partition) -> None:
        """A copy begins to lead that need not have everything: whether anything is lost by that."""
        where = TopicPartition(partition.stream.name, partition.index)
        node = next(node for node in self._nodes.values() if node.broker_id == broker_id)
        disk = node.disk
        held = {record.offset: record.value for record in records_on(disk, where)}
        start, flipped = partition.log.log_start_offset, flipped_on(disk, where)
        known = self._history.seen[where].items()
        # Damage is found when it is read, and another copy has what it hides: whether it does is seen at the end. So is
        # a segment that is missing between others.
        may_lack = directory_of(where.stream, where.partition) in node.lost_files_of
        lacks = [
            offset
            for offset, value in known
            if offset >= start and not any(offset in one for one in flipped) and int(held.get(offset) or -1) != value
            if not may_lack or offset in held
        ]
        if lacks or partition.log.log_end_offset < self._committed[where]:
            lost = f"{where} is led by {broker_id}, which lacks {len(lacks)} known records"
            if (partition.stream.name, partition.index) not in self._asked_uncleanly:
                self._violated(f"{lost}, and nobody has asked for it")
                return
            self._met[UNCLEAN_LOSSES] += 1
            self._scheduler.fail(GivenUpError(lost))

    def _acknowledged(self, where: TopicPartition, end: Offset) -> None:
        if end > self._committed[where]:
            committed = self._committed[where]
            self._violated(f"{where} was acknowledged up to {end}, and no leader had more than {committed} committed")


def _is_unclean(old: Assignment, new: Assignment) -> bool:
    """Whether a leader was elected that need not have everything.

    One that has just joined the ISR, and leads since a move waited for that alone, is not alone in it.
    """
    return new.leader not in (NO_BROKER, *old.isr, *old.elr) and new.isr == (new.leader,)


def _both(old: Stream, new: Stream) -> Sequence[tuple[Assignment, Assignment]]:
    return list(zip(old.assignments, new.assignments, strict=False))
