"""One run from its seed to its verdict: a node, clients, faults, then peace, a power cut, and the last reading."""

import asyncio
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from logboom.sim.client import RefusedError, SimClient, Where
from logboom.sim.device import DiskTiming
from logboom.sim.disk import SimDisk
from logboom.sim.faults import FAULTS, Trouble
from logboom.sim.history import History, shortened
from logboom.sim.node import SimNode
from logboom.sim.simulation import Simulation
from logboom.sim.workload import Consumer, Phase, Producer, read_all

_STREAM: Final = "work"
_CALM_MAX_S: Final = 120.0
_RUN_MAX_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a run consists of; the seed decides all else."""

    troubled_s: float = 10.0
    """For how long, in simulated seconds, things go wrong."""
    partitions: int = 3
    idempotent_producers: int = 2
    plain_producers: int = 1
    consumers: int = 2
    producer_pause_max_s: float = 0.05
    trouble_pause_max_s: float = 2.0
    faults: tuple[str, ...] = tuple(FAULTS)
    """Names of what may go wrong."""
    stream_config: Mapping[str, str] = field(default_factory=dict)
    broker_config: Mapping[str, Any] = field(
        default_factory=lambda: {"stream_defaults": {"segment_bytes": 64 * 1024}, "checkpoint_interval_s": 1.0}
    )
    make_disk: Callable[[], SimDisk] = SimDisk
    disk_timing: DiskTiming = field(default_factory=DiskTiming)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    seed: int
    digest: str
    """Equal for equal runs."""
    events: int
    simulated_s: float
    violations: tuple[str, ...]
    faults: Mapping[str, int]
    records_acked: int
    records_final: int
    polls: int
    commits: int
    flush_rounds: int
    inline_flush_rounds: int
    """Group commits that were made on the event loop, of all."""
    last_lines: tuple[str, ...]
    """The end of the trace, where something was violated."""


def run_seed(seed: int, scenario: Scenario | None = None, watch: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed. Errors of the simulated code are violations like any other; `watch` is told the whole trace."""
    chosen = scenario or Scenario()
    simulation = Simulation(seed, watch=watch)
    run = _Run(simulation, chosen)
    began_s = simulation.scheduler.now_s
    violations: list[str] = []
    try:
        violations = simulation.run(run.main(), max_s=_RUN_MAX_S)
    except Exception as error:  # noqa: BLE001 - the outermost frame of a run: whatever ended it is its verdict
        violations = shortened([*run.history.violations, f"{type(error).__name__}: {error} ({_where(error)})"])
    return Outcome(
        seed=seed,
        digest=simulation.trace.digest,
        events=simulation.trace.events,
        simulated_s=simulation.scheduler.now_s - began_s,
        violations=tuple(violations),
        faults=run.trouble.counts,
        records_acked=len(run.history.acked),
        records_final=run.records_final,
        polls=run.history.polls,
        commits=run.history.commits,
        flush_rounds=run.node.flush_rounds,
        inline_flush_rounds=run.node.inline_flush_rounds,
        last_lines=simulation.trace.last_lines if violations else (),
    )


def _where(error: BaseException) -> str:
    """The last line of Logboom's own on the way to an error."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "logboom" in frame.filename]
    return f"{frames[-1].filename.rpartition('logboom/')[2]}:{frames[-1].lineno}" if frames else "elsewhere"


class _Run:
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
            disk=scenario.make_disk(),
            timing=scenario.disk_timing,
        )
        self._partitions = [Where(_STREAM, n) for n in range(scenario.partitions)]
        self.trouble = Trouble(simulation, self.node, simulation.fork("trouble"))

    async def main(self) -> list[str]:
        """The run; what was wrong with it."""
        await self.node.start()
        await self._as_client(self._create)
        producers, consumers = self._start_clients()
        loop, scenario = asyncio.get_running_loop(), self._scenario
        kinds = {name: FAULTS[name] for name in scenario.faults}
        await self.trouble.run(loop.time() + scenario.troubled_s, kinds, scenario.trouble_pause_max_s)
        await self.trouble.heal()
        self._phase.producing = False
        async with asyncio.timeout(_CALM_MAX_S):
            await asyncio.gather(*producers)
        self._phase.consuming = False
        async with asyncio.timeout(_CALM_MAX_S):
            await asyncio.gather(*consumers)
        # What was acknowledged must also survive a power failure now.
        self.node.cut_power()
        await self.node.start()
        final = await self._as_client(self._read)
        self.records_final = sum(map(len, final.values()))
        return self.history.check(final)

    def _start_clients(self) -> tuple[list["asyncio.Future[None]"], list["asyncio.Future[None]"]]:
        scenario, address = self._scenario, self.node.address
        common = (address, self._partitions, self.history, self._phase)
        total = scenario.idempotent_producers + scenario.plain_producers
        producers = []
        for number in range(total):
            name = f"producer-{number}"
            producer = Producer(
                name,
                *common,
                self._simulation.fork(name),
                values=count(number, total),
                idempotent=number < scenario.idempotent_producers,
                pause_max_s=scenario.producer_pause_max_s,
            )
            producers.append(self._simulation.process(name).run(producer.run()))
        consumers = []
        for number in range(scenario.consumers):
            name = f"consumer-{number}"
            consumer = Consumer(name, *common, self._simulation.fork(name))
            consumers.append(self._simulation.process(name).run(consumer.run()))
        return producers, consumers

    async def _as_client(self, work: Callable[[SimClient], Any]) -> Any:
        client = await SimClient.connect(self.node.address, "director")
        try:
            return await work(client)
        finally:
            client.close()

    async def _create(self, client: SimClient) -> None:
        await client.create_stream(_STREAM, self._scenario.partitions, self._scenario.stream_config)

    async def _read(self, client: SimClient) -> dict[Where, Any]:
        final: dict[Where, Any] = {}
        for where in self._partitions:
            try:
                final[where] = await read_all(client, where)
            except RefusedError as error:
                self.history.violated(f"{where.stream}-{where.partition} cannot be read at the end: {error.code.name}")
                final[where] = []
        return final
