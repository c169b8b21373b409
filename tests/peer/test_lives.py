"""Brokers that speak to each other through any faults of the network and of each other, seed by seed.

Whatever happens, a request is carried out at most once, an answer is that to its request, and posts of one connection
come in their order; and once the faults are over, everybody reaches everybody within seconds.
"""

import asyncio
from collections import Counter
from random import Random

import pytest
from tests.peer.test_links import Machine, answered, simulate

from logboom.broker.peers import FrameKind, PeerIdentity, PeerUnavailableError
from logboom.sim.process import ProcessEndedError
from logboom.sim.simulation import Simulation

BROKERS = 3
CALLS = 150


class Life:
    """One run."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.chance = simulation.fork("life")
        self.machines = [Machine(simulation, number) for number in range(1, BROKERS + 1)]
        self.executed: Counter[bytes] = Counter()
        self.outcomes: Counter[str] = Counter()

    async def start(self, machine: Machine) -> None:
        await machine.start(9_000)
        machine.server.serve(FrameKind.CONTROL, self.execute)
        for one in self.machines:
            if hasattr(one, "server"):
                one.knows(machine)
                machine.knows(one)

    async def execute(self, who: PeerIdentity, body: memoryview) -> list[bytes]:
        request = bytes(body)
        self.executed[request] += 1
        if (delay_s := int(request.split()[1])) > 0:
            await asyncio.sleep(delay_s / 1_000)
        return [b"done: ", request, bytes(int(request.split()[2]))]

    async def call(self, number: int) -> None:
        one, two = self.chance.sample(self.machines, 2)
        size = self.chance.choice([0, 100, 200_000])
        request = b"%d %d %d " % (number, self.chance.choice([0, 0, 30, 3_000]), size)
        try:
            answer = await one.call(two, request, timeout_s=self.chance.choice([0.05, 1, 10]))
        except (PeerUnavailableError, ProcessEndedError) as error:
            self.outcomes[type(error).__name__] += 1
        else:
            self.outcomes["answered"] += 1
            assert answer == b"done: " + request + bytes(size)

    async def fault(self) -> None:
        network = self.simulation.network
        machines = [machine.name for machine in self.machines]
        match self.chance.randrange(6):
            case 0 if network.links:
                self.chance.choice(network.links).cut()
            case 1:
                network.split(*self.chance.sample(machines, 2))
            case 2:
                network.block(*self.chance.sample(machines, 2))
            case 3:
                network.heal()
            case 4:
                machine = self.chance.choice(self.machines)
                machine.process.kill()
                await asyncio.sleep(self.chance.uniform(0, 3))
                await self.start(machine)
            case _:
                pass

    async def run(self) -> None:
        for machine in self.machines:
            await self.start(machine)
        calls = []
        for number in range(CALLS):
            calls.append(asyncio.ensure_future(self.call(number)))
            await asyncio.sleep(self.chance.expovariate(10))
            if self.chance.random() < 0.2:
                await self.fault()
        await asyncio.gather(*calls)
        self.simulation.network.heal()
        for one in self.machines:
            one.server.serve(FrameKind.CONTROL, echo_once)
        for one in self.machines:
            for two in self.machines:
                if one is not two:
                    await answered(one, two, 10)


async def echo_once(who: PeerIdentity, body: memoryview) -> list[memoryview]:
    """Faults are over: requests are no longer counted."""
    return [body]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seed", [Random(n).getrandbits(32) for n in range(12)])
def test_requests_through_any_faults_are_carried_out_once_at_most(seed: int) -> None:
    lives: list[Life] = []

    async def body(simulation: Simulation) -> None:
        lives.append(Life(simulation))
        await lives[0].run()

    simulate(body, seed)
    (life,) = lives
    assert set(life.executed.values()) <= {1}
    assert life.outcomes["answered"] > CALLS // 10
    assert sum(life.outcomes.values()) == CALLS
