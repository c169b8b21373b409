"""A whole cluster from its seed to its verdict: brokers, clients, faults, then peace, then the power fails everywhere.

What must hold is what holds for one node (`history`), for records that were acknowledged with acks=all; and at the end,
in bounded time, all replicas of a partition are in sync, and they and its observers hold the same bytes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

from logboom.base.errors import NotLeaderError
from logboom.base.ids import Offset
from logboom.client.messages import Api
from logboom.metadata.observers import OBSERVERS
from logboom.sim.administration import OPERATOR_LANE, TASKS, Operator
from logboom.sim.client import AskError, RefusedError, SimClient, TopicPartition
from logboom.sim.cluster_faults import DISK_LOSSES, NETWORK_FAULTS, NETWORK_LANE, NODE_FAULTS, NetworkTrouble
from logboom.sim.cluster_scenario import (
    AGED,
    BESIDE,
    BESIDE_CONFIG,
    COUNTS,
    FAR_CLOCKS_CONFIG,
    TABLE,
    TRIMMED,
    ClusterScenario,
)
from logboom.sim.counting import Counter, Counts
from logboom.sim.coverage import NATS_RETRIED_TWICE, NATS_TWICE
from logboom.sim.faults import Trouble
from logboom.sim.history import History, shortened
from logboom.sim.invariants import GivenUpError, Invariants
from logboom.sim.late_requests import LATE_FAULTS, LATE_LANE, LateTrouble
from logboom.sim.lease_flaps import LEASE_FAULTS, LEASES_LANE, LeaseTrouble
from logboom.sim.liveness import Liveness
from logboom.sim.machine import SimClock
from logboom.sim.members import GroupHistory, Member
from logboom.sim.nats_attached import AttachedStreams
from logboom.sim.nats_cluster import SimNats
from logboom.sim.nats_faults import NATS_CLUSTER_FAULTS, NATS_FAULTS, NATS_LANE, NatsTrouble
from logboom.sim.nats_members import MEMBERS_FAULTS, MEMBERS_LANE, MembersTrouble
from logboom.sim.nats_publishing import NatsPublisher, values_of
from logboom.sim.node import SimNode
from logboom.sim.observing import ObserverReader
from logboom.sim.older_copies import OLDER_COPY_FAULTS, OLDER_COPY_LANE, TRIES_WITHIN_S, OlderCopy
from logboom.sim.outcome import Outcome, place_of
from logboom.sim.pipelining import PipelinedProducer, Rules
from logboom.sim.schedule import FaultKind, PlannedFault, Schedule, plan
from logboom.sim.session import ClientContext, Phase, connect
from logboom.sim.simulation import Simulation
from logboom.sim.tables import TableKeeper
from logboom.sim.trimming import Trimmer
from logboom.sim.workload import Consumer, Producer, read_all

_METADATA: Final[Api] = (3, 8)
_STREAM: Final = "work"
_NATS: Final[Mapping[str, Any]] = {"ping_interval_s": 1.0, "reconnect_pause_max_s": 1.0}
_BESIDE_CHANCE: Final = 0.3
_COUNTERS: Final = 2
_REST_LONGER: Final = 4
"""By so much pauses between faults are longer in a run that rests."""
_REST_S: Final = 10.0
_SUBSCRIBED_S: Final = 1.0
"""Until brokers have subscribed to a new stream, and nats-servers have told each other of it."""
_NO_LIMIT: Final = Offset(2**63 - 1)
_REPLICAS: Final = 3
_DRIFT_MAX: Final = 100e-6
"""By how much the clock of a machine runs fast or slow; leases allow for far more."""
_START_MAX_S: Final = 60.0
_CALM_MAX_S: Final = 180.0
_TASKS_MAX_S: Final = 600.0
"""Until the operator has done what was begun: over slow links each partition of a lost disk takes more than a second,
and where leases flap there are more than a hundred."""
_NEVER_STRETCHED: Final = (LEASES_LANE, LATE_LANE)
"""Lanes of faults that are made of many short ones."""
_RUN_MAX_S: Final = 3_600.0
"""Of simulated time, beside that in which things go wrong."""
_LONGEST_FAULT_S: Final = 15.0
_ASK_AGAIN_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class ClusterOutcome(Outcome):
    """How a run of a cluster ended."""

    elections: int
    """Times at which a partition of the work got another leader: the sum of leader epochs at the end."""


def run_cluster_seed(
    seed: int, scenario: ClusterScenario | None = None, watch: Callable[[str], None] | None = None
) -> ClusterOutcome:
    """Run one seed. Errors of the simulated code are violations like any other; `watch` is told the whole trace."""
    simulation = Simulation(seed, watch=watch)
    run = _Run(simulation, scenario or ClusterScenario())
    began_s = simulation.scheduler.now_s
    violations: list[str] = []
    try:
        violations = simulation.run(run.main(), max_s=run.scenario.troubled_s + _RUN_MAX_S)
    except GivenUpError:
        violations = shortened(run.history.violations)
    except Exception as error:  # noqa: BLE001 - the outermost frame of a run: whatever ended it is its verdict
        told = f"{run.step}: {type(error).__name__}: {error} ({place_of(error)})"
        violations = shortened([*run.history.violations, told])
    return ClusterOutcome(
        seed=seed,
        digest=simulation.trace.digest,
        events=simulation.trace.events,
        nodes=len(run.nodes) + len(run.observers),
        simulated_s=simulation.scheduler.now_s - began_s,
        violations=tuple(violations),
        schedule=run.schedule,
        faults=run.fault_counts(),
        met=dict(simulation.trace.met),
        records_acked=run.history.acknowledged,
        records_final=run.records_final,
        elections=run.elections,
        polls=run.history.polls,
        commits=run.history.commits,
        last_lines=simulation.trace.last_lines if violations else (),
    )


class _Run:
    def __init__(self, simulation: Simulation, scenario: ClusterScenario) -> None:
        self.history = History()
        lag_ms = simulation.fork("lag").choice(scenario.replica_lags_ms)
        self._broker_config = {"replica_lag_max_ms": lag_ms, **scenario.broker_config}
        self._in_flight_max = simulation.fork("in flight").choice(scenario.in_flight_max)
        self._rests = simulation.fork("rest").random() < scenario.rest_chance
        self.records_final = self.elections = 0
        self.step = "the start"
        """What the run is at, for people."""
        self._simulation = simulation
        self.scenario = scenario
        self._phase = Phase()
        chance = simulation.fork("beside")
        chosen = tuple(name for name in BESIDE if chance.random() < _BESIDE_CHANCE)
        self._beside = chosen if scenario.beside is None else scenario.beside
        self._attached = AttachedStreams(self._beside)
        may_be_far = simulation.fork("far clocks").random() < scenario.far_clocks_chance
        self._has_far_clocks = may_be_far and not self._attached.partitions
        self._nats = SimNats(simulation, simulation.fork("nats").choice(scenario.nats_servers))
        self.nodes = [self._node(number) for number in range(1, scenario.nodes + 1)]
        self._operator = Operator(simulation, self.nodes, self._node(scenario.nodes + 1), _STREAM)
        observers = max(scenario.observers, "observer" in self._beside)
        self.observers = [self._node(self._operator.next_id + n, observer=True) for n in range(observers)]
        self._operator.next_id += observers
        self._operator.members.update({one.broker_id: one for one in self.observers})
        self._operator.observing.update(one.broker_id for one in self.observers)
        watched = [*self.nodes, self._operator.spare, *self.observers]
        Invariants(simulation, watched, self.history, self._operator.asked_uncleanly)
        self.liveness = Liveness(simulation, watched, self.nodes, self.history)
        self._addresses = [node.address for node in self.nodes]
        self._kept = [TopicPartition(_STREAM, n) for n in range(scenario.partitions)]
        trimmed = [one for one in (TRIMMED, AGED) if one.stream in self._beside]
        self._partitions = [*self._kept, *trimmed, *self._attached.partitions]
        self.history.starts_go_back = True
        self.history.starts_max = dict.fromkeys((AGED,), _NO_LIMIT)
        self._keeper = TableKeeper(self._context("keeper", [TABLE]))
        self._counts = Counts(self.history, COUNTS)
        self._group = GroupHistory(self.history)
        self._chance = simulation.fork("director")
        machines = [*self.nodes, *self.observers]
        self.troubles = [Trouble(simulation, node) for node in machines]
        for trouble in self.troubles:
            trouble.replace = self._operator.replace
            trouble.is_whole = self._is_whole
            trouble.has_far_clock = self._has_far_clocks
        self.network = NetworkTrouble(simulation, machines)
        self.nats_trouble = NatsTrouble(simulation, self._nats, machines)
        self._members = MembersTrouble(simulation, self._addresses)
        self._leases = LeaseTrouble(simulation, self._operator, scenario.stream_config)
        self._late = LateTrouble(simulation, self._operator, self.history)
        self._older_copy = OlderCopy(simulation, self._operator.members, self._operator.observing, self._is_whole)
        self.schedule = self._planned() if scenario.schedule is None else scenario.schedule

    def _node(self, number: int, *, observer: bool = False) -> SimNode:
        simulation = self._simulation
        drift = simulation.fork(f"clock/{number}").uniform(-_DRIFT_MAX, _DRIFT_MAX)
        join = () if number == 1 else ("n1:9192",)
        return SimNode(
            simulation,
            f"n{number}",
            broker={"broker_id": number, "join": join, "observer": observer, **self._broker_config},
            peer={},
            nats={"servers": self._nats.urls(number), **_NATS} if self._attached.partitions else None,
            clock=SimClock(simulation.scheduler, rate=1 + drift),
        )

    def _planned(self) -> Schedule:
        scenario = self.scenario
        unlucky = self._simulation.fork("plan").choice(self.nodes)
        have_leases_flap = self._simulation.fork("leases").random() < scenario.lease_chance
        are_late = self._simulation.fork("late").random() < scenario.late_chance
        lanes: dict[str, dict[str, FaultKind[Any]]] = {
            **{one.node.name: {name: NODE_FAULTS[name] for name in scenario.node_faults} for one in self.troubles},
            NETWORK_LANE: {name: NETWORK_FAULTS[name] for name in scenario.network_faults},
            NATS_LANE: {name: NATS_FAULTS[name] for name in scenario.nats_faults if self._may_come(name)},
            MEMBERS_LANE: {name: MEMBERS_FAULTS[name] for name in scenario.members_faults if self._attached.shared},
            OPERATOR_LANE: {name: TASKS[name] for name in scenario.tasks},
            LEASES_LANE: {name: LEASE_FAULTS[name] for name in scenario.lease_faults if have_leases_flap},
            LATE_LANE: {name: LATE_FAULTS[name] for name in scenario.late_faults if are_late},
        }
        lanes[unlucky.name] |= {name: DISK_LOSSES[name] for name in scenario.disk_losses}
        planned: list[PlannedFault] = []
        for lane, kinds in lanes.items():
            chance = self._simulation.fork(f"plan/{lane}")
            pause_max_s = scenario.trouble_pause_max_s * (_REST_LONGER if self._rests else 1)
            stretch = 1.0 if lane in _NEVER_STRETCHED else scenario.stretch
            planned += plan(chance, lane, kinds, scenario.troubled_s, pause_max_s, stretch)
        if self._simulation.fork("older copy").random() < scenario.older_copy_chance:
            copies = {name: OLDER_COPY_FAULTS[name] for name in scenario.older_copy_faults}
            chance = self._simulation.fork(f"plan/{OLDER_COPY_LANE}")
            planned += plan(chance, OLDER_COPY_LANE, copies, TRIES_WITHIN_S, TRIES_WITHIN_S)[:1]
        return tuple(sorted(planned, key=lambda one: one.at_s))

    def _may_come(self, nats_fault: str) -> bool:
        return bool(self._attached.partitions) and (self._nats.is_cluster or nats_fault not in NATS_CLUSTER_FAULTS)

    def fault_counts(self) -> dict[str, int]:
        """How often each fault came."""
        counts: dict[str, int] = {}
        lanes = (
            self.network,
            self.nats_trouble,
            self._members,
            self._operator,
            self._leases,
            self._late,
            self._older_copy,
        )
        for lane in (*self.troubles, *lanes):
            for name, times in lane.counts.items():
                counts[name] = counts.get(name, 0) + times
        return counts

    async def main(self) -> list[str]:
        """The run; what was wrong with it."""
        self.nodes[0].found_cluster()
        async with asyncio.timeout(_START_MAX_S):
            await self._nats.start()
            await asyncio.gather(*(node.start() for node in (*self.nodes, *self.observers)))
            await self._as_client(self._create)
        if self.scenario.keeps_all:
            await asyncio.sleep(_SUBSCRIBED_S)
        self.step = "the trouble"
        writers, readers = self._start_writers(), self._start_readers()
        await self._go_through_trouble()
        self.step = "the last acknowledgements"
        self._phase.producing = False
        async with asyncio.timeout(_CALM_MAX_S):
            await asyncio.gather(*writers)
        self._phase.consuming = False
        async with asyncio.timeout(_CALM_MAX_S * self.scenario.stretch):
            await asyncio.gather(*readers)
        self.step = "the replicas in sync"
        async with asyncio.timeout(_CALM_MAX_S):
            await self._all_in_sync()
        await self._compare_replicas()
        if not self._leases.made.is_checked:
            self.step = "records for the streams that were made while leases flapped"
            async with asyncio.timeout(_CALM_MAX_S):
                await self._as_client(lambda client: self._leases.made.check_there(client, self.history))
        self.step = "a power failure of all brokers"
        for node in self._operator.members.values():
            node.cut_power()
        async with asyncio.timeout(_CALM_MAX_S):
            await asyncio.gather(*(node.start() for node in self._operator.members.values()))
            await self._all_in_sync()
        self.step = "the last reading"
        final = await self._compare_replicas()
        self.records_final = sum(map(len, final.values()))
        late = set(values_of(self._nats.unsettled.late))
        self.history.may_repeat |= late
        self.history.may_stray.update(values_of(self._nats.unsettled.astray))
        if self.scenario.keeps_all:
            self.history.check_all_kept(final)
        violations = self.history.check(final)
        self._simulation.trace.met[NATS_TWICE] += len(self.history.repeated & late)
        self._simulation.trace.met[NATS_RETRIED_TWICE] += len(self.history.repeated - late)
        return violations

    async def _go_through_trouble(self) -> None:
        loop, troubled_s = asyncio.get_running_loop(), self.scenario.troubled_s
        over_s = loop.time() + troubled_s
        async with asyncio.timeout(troubled_s + _TASKS_MAX_S + _LONGEST_FAULT_S * self.scenario.stretch):
            await asyncio.gather(
                *(trouble.run(self.schedule, {**NODE_FAULTS, **DISK_LOSSES}, troubled_s) for trouble in self.troubles),
                self.network.run(self.schedule, NETWORK_FAULTS, troubled_s),
                self.nats_trouble.run(self.schedule, NATS_FAULTS, troubled_s),
                self._members.run(self.schedule, MEMBERS_FAULTS, troubled_s),
                self._operator.run(self.schedule, TASKS, troubled_s),
                self._leases.run(self.schedule, LEASE_FAULTS, troubled_s),
                self._late.run(self.schedule, LATE_FAULTS, troubled_s),
            )
        await asyncio.sleep(over_s - loop.time())
        self.step = "the healing"
        async with asyncio.timeout(_CALM_MAX_S):
            await asyncio.gather(*(trouble.heal() for trouble in self.troubles))
            await self._operator.settle()
            if self._attached.shared:
                await self._members.settle()
        self.step = "an older copy of a disk"
        async with asyncio.timeout(_CALM_MAX_S):
            await self._older_copy.run(self.schedule, OLDER_COPY_FAULTS, TRIES_WITHIN_S)
        if self._rests:
            self.step = "the rest"
            await asyncio.sleep(_REST_S)

    def _is_whole(self) -> bool:
        """Whether the controller knows all brokers as they run now, and has all replicas in sync and all voters."""
        members = self._operator.members
        leading = [one.broker for one in members.values() if one.broker is not None and one.broker.cluster.view.serving]
        if len(leading) != 1:
            return False
        image, status = leading[0].cluster.state.image, leading[0].cluster.status
        for broker_id, node in members.items():
            known = image.brokers.get(broker_id)
            if node.broker is None or known is None or not known.active:
                return False
            if known.epoch != node.broker.cluster.registration.epoch:
                return False
        voters = [one for one in status.members if one.is_voter]
        if len(voters) < min(len(self.nodes), _REPLICAS):
            return False
        if any(not one.recently_active or one.match_index < status.commit for one in voters):
            return False
        held = [one for stream in image for one in stream.assignments]
        return all(len(one.isr) > 1 and set(one.isr) == set(one.replicas) and not one.reassigning for one in held)

    # --- clients ---------------------------------------------------------------------------------------------------

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Future[None]":
        return self._simulation.process(name).run(work)

    def _context(self, name: str, partitions: Sequence[TopicPartition] | None = None) -> ClientContext:
        chance = self._simulation.fork(name)
        where = self._partitions if partitions is None else partitions
        return ClientContext(name, self._addresses, where, self.history, self._phase, chance, self.scenario.stretch)

    def _start_writers(self) -> list["asyncio.Future[None]"]:
        started = []
        plain = [(1, 0)[number % 2] for number in range(self.scenario.plain_producers)]
        acks = [-1] * self.scenario.producers + plain
        publishers = list(self._attached.destinations(self.scenario.publishers, self.scenario.shared_publishers))
        writers = len(acks) + len(publishers)
        pause_max_s = self.scenario.producer_pause_max_s
        for number, one_acks in enumerate(acks):
            context, values = self._context(f"producer-{number}"), count(number, writers)
            producer: Producer | PipelinedProducer
            if one_acks == -1 and self._in_flight_max > 1:
                rules = tuple(Rules)[number % len(Rules)]
                producer = PipelinedProducer(context, values=values, rules=rules, pause_max_s=pause_max_s)
            else:
                producer = Producer(
                    context, values=values, acks=one_acks, pause_max_s=pause_max_s, leader_acks_count=False
                )
            started.append(self._start(f"producer-{number}", producer.run()))
        for number, (role, kind, to) in enumerate(publishers, len(acks)):
            name = f"{role}-{number}-{kind}"
            context = replace(self._context(name, to.partitions), addresses=self._nats.addresses)
            publisher = NatsPublisher(
                context,
                to,
                count(number, writers),
                kind,
                self._simulation.trace.met,
                is_cluster=self._nats.is_cluster,
            )
            started.append(self._start(name, publisher.run()))
        if TRIMMED.stream in self._beside:
            started.append(self._start("trimmer", Trimmer(self._context("trimmer", [TRIMMED])).run()))
        if TABLE.stream in self._beside:
            started.append(self._start("keeper", self._keeper.run()))
        if COUNTS.stream in self._beside:
            names = [f"counter-{number}" for number in range(_COUNTERS)]
            started += [self._start(name, Counter(self._context(name), self._counts).run()) for name in names]
        return started

    def _start_readers(self) -> list["asyncio.Future[None]"]:
        started = []
        for number in range(self.scenario.consumers):
            name = f"consumer-{number}"
            started.append(self._start(name, Consumer(self._context(name)).run()))
        for number in range(self.scenario.members):
            name = f"member-{number}"
            started.append(self._start(name, Member(self._context(name, self._kept), self._group).run()))
        for node in self.observers:
            name = f"reader-of-{node.name}"
            reader = ObserverReader(self._context(name, self._kept), node.address)
            started.append(self._start(name, reader.run()))
        return started

    async def _as_client(self, work: Callable[[SimClient], Awaitable[Any]], node: SimNode | None = None) -> Any:
        """Do some work as a client of the cluster, or of one broker alone, again until it is done; the caller bounds
        it."""
        addresses = self._addresses if node is None else [node.address]
        while True:
            try:
                client = await connect(addresses, "director", self._chance)
                try:
                    return await work(client)
                finally:
                    client.close()
            except (AskError, RefusedError):
                await asyncio.sleep(_ASK_AGAIN_S)

    async def _create(self, client: SimClient) -> None:
        replicas = min(_REPLICAS, self.scenario.nodes)
        config = dict(self.scenario.stream_config)
        if self._has_far_clocks:
            config |= FAR_CLOCKS_CONFIG
        if self.observers:
            config[OBSERVERS] = str(len(self.observers))
        await client.create_stream(_STREAM, self.scenario.partitions, config, replicas)
        for where, own in BESIDE_CONFIG.items():
            if where.stream in self._beside:
                await client.create_stream(where.stream, 1, {**config, **own}, replicas)
        await self._attached.create(client, config, replicas)

    # --- the end ---------------------------------------------------------------------------------------------------

    async def _all_in_sync(self) -> None:
        """Return once every replica of every partition is in sync and has a leader."""
        while not await self._as_client(self._is_in_sync):
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _is_in_sync(self, client: SimClient) -> bool:
        found = (await self._described(client)).values()
        self.elections = sum(one.leader_epoch for one in found)
        observers = {one.broker_id for one in self.observers}
        return all(one.leader_id > 0 and set(one.isr_nodes) == set(one.replica_nodes) - observers for one in found)

    @property
    def _streams(self) -> list[str]:
        beside = [one.stream for one in BESIDE_CONFIG if one.stream in self._beside]
        return list(dict.fromkeys([_STREAM, *beside, *(one.stream for one in self._attached.partitions)]))

    async def _described(self, client: SimClient) -> Mapping[TopicPartition, Any]:
        answer = await client.ask(
            _METADATA,
            topics=[{"name": name} for name in self._streams],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        return {
            TopicPartition(topic.name, one.partition_index): one for topic in answer.topics for one in topic.partitions
        }

    async def _compare_replicas(self) -> dict[TopicPartition, list[tuple[Offset, int]]]:
        """All records, as the leaders have them; it is a violation where a replica has not the same bytes."""
        final = {}
        async with asyncio.timeout(_CALM_MAX_S):
            found = await self._as_client(self._described)
            for where in self._partitions:
                final[where] = await self._compare_copies(where)
            await self._check_compacted(found)
        return final

    async def _compare_copies(self, where: TopicPartition) -> list[tuple[Offset, int]]:
        """All records of one partition, of which no replica may have other bytes."""

        async def read(client: SimClient) -> list[tuple[Offset, int]]:
            return await read_all(client, where, self.history)

        while True:
            final: list[tuple[Offset, int]] = await self._as_client(read)
            end = Offset(final[-1][0] + 1) if final else Offset(0)
            replicas = (await self._as_client(self._described))[where].replica_nodes
            try:
                held = await self._held_bytes([self._operator.members[broker] for broker in replicas], where, end)
            except NotLeaderError:
                # A move has ended meanwhile, or whoever was asked knew an earlier one.
                await asyncio.sleep(_ASK_AGAIN_S)
                continue
            if all(data == held[0] for data in held):
                return final
            if await self._as_client(read) == final:
                self.history.violated(
                    f"replicas of {where} are not alike: {dict(zip(replicas, map(len, held), strict=True))}"
                )
                return final
            # A message came meanwhile, which a slow link to NATS may bring long after its publisher has ended.

    async def _check_compacted(self, found: Mapping[TopicPartition, Any]) -> None:
        """Each replica is compacted by itself: they are alike in the latest record of each key."""
        if TABLE in found:
            end = await self._as_client(lambda client: client.end_offset(TABLE))
            for broker in found[TABLE].replica_nodes:
                await self._as_client(
                    lambda client: self._keeper.check_copy(client, end), self._operator.members[broker]
                )
        if COUNTS in found:
            await self._as_client(self._counts.check)

    @staticmethod
    def _log_start(node: SimNode, where: TopicPartition) -> Offset:
        assert node.broker is not None
        return node.broker.replicas.find(where.stream, where.partition).log_start_offset

    def _last_start(self, holders: Sequence[SimNode], where: TopicPartition) -> Offset:
        return max((self._log_start(node, where) for node in holders), default=Offset(0))

    async def _held_bytes(self, holders: Sequence[SimNode], where: TopicPartition, end: Offset) -> list[bytes]:
        """What each replica has up to an offset, from where the one begins that begins last: retention may move that
        meanwhile."""
        while True:
            begin = self._last_start(holders, where)
            held = [await self._replica_bytes(node, where, begin, end) for node in holders]
            if self._last_start(holders, where) == begin:
                return held

    async def _replica_bytes(self, node: SimNode, where: TopicPartition, begin: Offset, end: Offset) -> bytes:
        """What one broker itself gives out of a partition, up to an offset; a follower has soon heard that it may. Less
        where it deletes what is read."""
        held, position = bytearray(), begin
        client = await SimClient.connect(node.address, "director")
        try:
            while position < end:
                try:
                    data, next_offset = await client.fetch_bytes(where, position)
                except RefusedError:
                    if self._log_start(node, where) > position:
                        break
                    await asyncio.sleep(_ASK_AGAIN_S)
                else:
                    if not data:
                        await asyncio.sleep(_ASK_AGAIN_S)
                    held += data
                    position = next_offset
        finally:
            client.close()
        return bytes(held)
