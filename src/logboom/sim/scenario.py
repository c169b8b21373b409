"""One run from its seed to its verdict: a node, clients, faults, then peace, a power cut, and the last reading."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from logboom.base.ids import Offset
from logboom.base.units import KIB
from logboom.sim.client import RefusedError, SimClient, TopicPartition
from logboom.sim.device import DiskTiming
from logboom.sim.disk import SimDisk
from logboom.sim.faults import FAULTS, Trouble
from logboom.sim.history import History, shortened
from logboom.sim.members import SESSION_MS, GroupHistory, Member
from logboom.sim.node import SimNode
from logboom.sim.outcome import Outcome, place_of
from logboom.sim.probes import HTTP_CONFIG, Prober
from logboom.sim.schedule import Schedule, plan
from logboom.sim.session import ClientContext, Phase
from logboom.sim.simulation import Simulation
from logboom.sim.streams import StreamMaker
from logboom.sim.tables import TABLE_CONFIG, TableKeeper
from logboom.sim.trimming import Trimmer
from logboom.sim.workload import Consumer, Producer, read_all

_STREAM: Final = "work"
_TRIMMED: Final = "trimmed"
_AGED: Final = "aged"
_TABLE: Final = "table"
_AGED_CONFIG: Final = {"segment.bytes": "16384", "retention.bytes": "32768"}
_NO_LIMIT: Final = Offset(2**63 - 1)
_CALM_MAX_S: Final = 120.0
_RUN_MAX_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a run consists of; the seed decides all else."""

    troubled_s: float = 10.0
    """For how long, in simulated seconds, things go wrong."""
    partitions: int = 3
    """Of the stream whose records all must stay."""
    trimmed_partitions: int = 1
    """Of a stream of which clients delete records; 0 for none."""
    aged_partitions: int = 1
    """Of a stream of which the broker deletes what is above its retention; 0 for none."""
    idempotent_producers: int = 2
    plain_producers: int = 2
    """Producers that send each batch once; every other one of them asks for no acks (acks=0), the others for acks=1."""
    consumers: int = 2
    members: int = 3
    """Consumers that share the partitions of the first stream as one group."""
    made_streams: int = 3
    """Streams that are created, deleted and created again; 0 for none."""
    keeps_table: bool = True
    """Whether a client keeps a table in a compacted stream."""
    probers: int = 1
    """Clients of the HTTP server."""
    producer_pause_max_s: float = 0.05
    trouble_pause_max_s: float = 2.0
    faults: tuple[str, ...] = tuple(FAULTS)
    """Names of what may go wrong."""
    schedule: Schedule | None = None
    """What goes wrong and when; None for what the seed plans of `faults`."""
    stream_config: Mapping[str, str] = field(default_factory=dict)
    broker_config: Mapping[str, Any] = field(
        default_factory=lambda: {
            "stream_defaults": {"segment_bytes": 64 * KIB},
            "checkpoint_interval_s": 1.0,
            "retention_check_interval_s": 0.5,
            "cleaner": {"backoff_ms": 300},
            "groups": {
                "session_timeout_min_ms": SESSION_MS,
                "initial_rebalance_delay_ms": 100,
                "offsets_segment_bytes": 16 * KIB,
            },
        }
    )
    http_config: Mapping[str, Any] = field(default_factory=lambda: HTTP_CONFIG)
    make_disk: Callable[[], SimDisk] = SimDisk
    disk_timing: DiskTiming = field(default_factory=DiskTiming)


@dataclass(frozen=True, slots=True)
class NodeOutcome(Outcome):
    """How a run of one node ended."""

    records_deleted: int
    """Acknowledged records below the log start at the end."""
    streams_deleted: int
    generations: int
    """Of the consumer group."""
    flush_rounds: int
    inline_flush_rounds: int
    """Group commits that were made on the event loop, of all."""
    records_compacted: int
    """Acknowledged records that compaction had removed at the end."""
    scrapes: int
    """Of metrics, answered and checked."""


def run_seed(seed: int, scenario: Scenario | None = None, watch: Callable[[str], None] | None = None) -> NodeOutcome:
    """Run one seed. Errors of the simulated code are violations like any other; `watch` is told the whole trace."""
    chosen = scenario or Scenario()
    simulation = Simulation(seed, watch=watch)
    run = _ScenarioRun(simulation, chosen)
    began_s = simulation.scheduler.now_s
    violations: list[str] = []
    try:
        violations = simulation.run(run.main(), max_s=_RUN_MAX_S)
    except Exception as error:  # noqa: BLE001 - the outermost frame of a run: whatever ended it is its verdict
        violations = shortened([*run.history.violations, f"{type(error).__name__}: {error} ({place_of(error)})"])
    return NodeOutcome(
        seed=seed,
        digest=simulation.trace.digest,
        events=simulation.trace.events,
        nodes=1,
        simulated_s=simulation.scheduler.now_s - began_s,
        violations=tuple(violations),
        schedule=run.schedule,
        faults=run.trouble.counts,
        met=dict(simulation.trace.met),
        records_acked=len(run.history.acked),
        records_final=run.records_final,
        records_deleted=run.history.deleted,
        streams_deleted=run.maker.deletions,
        generations=run.group.generations,
        polls=run.history.polls,
        commits=run.history.commits,
        flush_rounds=run.node.flush_rounds,
        inline_flush_rounds=run.node.inline_flush_rounds,
        records_compacted=run.keeper.compacted,
        scrapes=sum(prober.scrapes for prober in run.probers),
        last_lines=simulation.trace.last_lines if violations else (),
    )


class _ScenarioRun:
    def __init__(self, simulation: Simulation, scenario: Scenario) -> None:
        self.history = History()
        self.records_final = 0
        self._simulation = simulation
        self._scenario = scenario
        self._phase = Phase()
        self.node = SimNode(
            simulation,
            "n1",
            broker=dict(scenario.broker_config),
            http=dict(scenario.http_config),
            disk=scenario.make_disk(),
            timing=scenario.disk_timing,
        )
        self._kept = [TopicPartition(_STREAM, n) for n in range(scenario.partitions)]
        self._trimmed = [TopicPartition(_TRIMMED, n) for n in range(scenario.trimmed_partitions)]
        self._aged = [TopicPartition(_AGED, n) for n in range(scenario.aged_partitions)]
        self._partitions = [*self._kept, *self._trimmed, *self._aged]
        self.history.starts_max = dict.fromkeys(self._aged, _NO_LIMIT)
        self.group = GroupHistory(self.history)
        self.maker = StreamMaker(
            "maker",
            (self.node.address,),
            scenario.made_streams,
            self.history,
            self._phase,
            simulation.fork("maker"),
        )
        self.keeper = TableKeeper(self._context("keeper", [TopicPartition(_TABLE, 0)]))
        self.probers = [
            Prober(self.node.http_address, self.history, self._phase, simulation.fork(f"prober-{number}"))
            for number in range(scenario.probers)
        ]
        self.trouble = Trouble(simulation, self.node)
        self.schedule = self._planned() if scenario.schedule is None else scenario.schedule

    def _planned(self) -> Schedule:
        scenario, chance = self._scenario, self._simulation.fork("plan")
        kinds = {name: FAULTS[name] for name in scenario.faults}
        return plan(chance, self.node.name, kinds, scenario.troubled_s, scenario.trouble_pause_max_s)

    async def main(self) -> list[str]:
        """The run; what was wrong with it."""
        await self.node.start()
        await self._as_client(self._create)
        writers, readers = self._start_writers(), self._start_readers()
        await self._go_through_trouble()
        self._phase.producing = False
        async with asyncio.timeout(_CALM_MAX_S):
            await asyncio.gather(*writers)
        self._phase.consuming = False
        async with asyncio.timeout(_CALM_MAX_S):
            await asyncio.gather(*readers)
        # What was acknowledged must also survive a power failure now.
        self.node.cut_power()
        await self.node.start()
        final = await self._as_client(self._read)
        await self._as_client(self.maker.check_all)
        if self._scenario.keeps_table:
            await self._as_client(self.keeper.check)
        for prober in self.probers[:1]:
            await prober.check_at_peace(await self._as_client(self._ends))
        self.records_final = sum(map(len, final.values()))
        return self.history.check(final)

    async def _go_through_trouble(self) -> None:
        over_s = asyncio.get_running_loop().time() + self._scenario.troubled_s
        await self.trouble.run(self.schedule, FAULTS, self._scenario.troubled_s)
        await asyncio.sleep(over_s - asyncio.get_running_loop().time())
        await self.trouble.heal()

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Future[None]":
        return self._simulation.process(name).run(work)

    def _context(self, name: str, partitions: Sequence[TopicPartition]) -> ClientContext:
        chance = self._simulation.fork(name)
        return ClientContext(name, (self.node.address,), partitions, self.history, self._phase, chance)

    def _start_writers(self) -> list["asyncio.Future[None]"]:
        """Producers, and clients that delete: each a process of its own."""
        scenario, started = self._scenario, []
        acks = [-1] * scenario.idempotent_producers + [(1, 0)[n % 2] for n in range(scenario.plain_producers)]
        for number, one_acks in enumerate(acks):
            name = f"producer-{number}"
            producer = Producer(
                self._context(name, self._partitions),
                values=count(number, len(acks)),
                acks=one_acks,
                pause_max_s=scenario.producer_pause_max_s,
            )
            started.append(self._start(name, producer.run()))
        if self._trimmed:
            started.append(self._start("trimmer", Trimmer(self._context("trimmer", self._trimmed)).run()))
        if scenario.made_streams:
            started.append(self._start("maker", self.maker.run()))
        if scenario.keeps_table:
            started.append(self._start("keeper", self.keeper.run()))
        return started

    def _start_readers(self) -> list["asyncio.Future[None]"]:
        """Consumers by themselves, members of a group, and clients of the HTTP server."""
        started = []
        for number in range(self._scenario.consumers):
            name = f"consumer-{number}"
            started.append(self._start(name, Consumer(self._context(name, self._partitions)).run()))
        for number in range(self._scenario.members):
            name = f"member-{number}"
            started.append(self._start(name, Member(self._context(name, self._kept), self.group).run()))
        for number, prober in enumerate(self.probers):
            started.append(self._start(f"prober-{number}", prober.run()))
        return started

    async def _as_client(self, work: Callable[[SimClient], Any]) -> Any:
        client = await SimClient.connect(self.node.address, "director")
        try:
            return await work(client)
        finally:
            client.close()

    async def _create(self, client: SimClient) -> None:
        scenario = self._scenario
        await client.create_stream(_STREAM, scenario.partitions, scenario.stream_config)
        if self._trimmed:
            await client.create_stream(_TRIMMED, len(self._trimmed), {"segment.bytes": "16384"})
        if self._aged:
            await client.create_stream(_AGED, len(self._aged), _AGED_CONFIG)
        if scenario.keeps_table:
            await client.create_stream(_TABLE, 1, TABLE_CONFIG)

    async def _ends(self, client: SimClient) -> dict[TopicPartition, Offset]:
        return {where: await client.end_offset(where) for where in self._partitions}

    async def _read(self, client: SimClient) -> dict[TopicPartition, Any]:
        final: dict[TopicPartition, Any] = {}
        for where in self._partitions:
            try:
                final[where] = await read_all(client, where, self.history)
            except RefusedError as error:
                self.history.violated(f"{where.stream}-{where.partition} cannot be read at the end: {error.code.name}")
                final[where] = []
        return final
