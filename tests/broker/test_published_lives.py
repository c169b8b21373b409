"""Lives of a replicated cluster whose publishers send each message until it is acked, to whoever leads.

Brokers crash and stop, links break, leaders change, and publishers lose patience and send again what may be stored. At
the end each message is in the log exactly once, at the offset that every ack of it has told, in the order of its
publisher; and what was to be stored at one place alone is there.
"""

import asyncio
from pathlib import Path
from random import Random

import pytest
from tests.broker.messages import Message, publish_soon, records_of
from tests.broker.replicated import DIRECTOR, Cluster
from tests.support.simulated import run

from logboom.base.errors import LogboomError

BROKERS = (1, 2, 3)
PUBLISHERS = 4
MESSAGES = 25
STEPS = 25


class Life:
    """One life."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(path, inline_flush=seed % 2 == 0, replica_fetch_wait_ms=200)
        self.acked: dict[bytes, set[int]] = {}
        """The offsets that were told, by the id of the message."""
        self.retries = 0

    @property
    def alive(self) -> list[int]:
        return [number for number in self.cluster.brokers if number != DIRECTOR]

    async def publish(self, publisher: int) -> None:
        """One message after the other; every third has to be stored where the log ends, as far as is known."""
        for number in range(MESSAGES):
            name = b"%d-%d" % (publisher, number)
            end = None
            while not await self._tried(Message(b"v" + name, id=name, end=end)):
                self.retries += 1
                if number % 3 == 0:
                    end = self._known_end()
                await asyncio.sleep(0.05 + 0.3 * self.random.random())
            await asyncio.sleep(2 * self.random.random())

    def _known_end(self) -> int:
        return max((offset + 1 for told in self.acked.values() for offset in told), default=0)

    async def _tried(self, message: Message) -> bool:
        """Whether it was acked."""
        leader = self.cluster.assignment("orders").leader
        broker = self.cluster.brokers.get(leader)
        if broker is None:
            return False
        try:
            sent = publish_soon(broker, broker.replicas.find("orders", 0), message)
            async with asyncio.timeout(0.3 + 2 * self.random.random()):
                published = await asyncio.shield(sent)
        except (TimeoutError, LogboomError):
            return False
        (outcome,) = published.outcomes
        if isinstance(outcome, LogboomError):
            return False
        assert message.id is not None
        assert message.end in (None, outcome) or published.duplicates, "stored where it was not to be"
        self.acked.setdefault(message.id, set()).add(outcome)
        return True

    # --- what may happen ----------------------------------------------------------------------------------------

    async def disturb(self) -> None:
        what = self.random.choice(["crash", "stop", "restart", "cut", "heal", "elect"])
        if what in ("crash", "stop") and len(self.alive) > 2:
            broker = self.random.choice(self.alive)
            await (self.cluster.crash(broker, self.random) if what == "crash" else self.cluster.stop(broker))
        elif what == "restart":
            await self._restart()
        elif what == "cut":
            self.cluster.network.cut(*self.random.sample((*BROKERS, DIRECTOR), 2))
        elif what == "elect":
            candidates = [one for one in self.cluster.assignment("orders").isr if one in self.alive]
            if candidates:
                await self.cluster.elect("orders", 0, self.random.choice(candidates))
        else:
            self.cluster.network.heal()
        await asyncio.sleep(2 * self.random.random())

    async def _restart(self) -> None:
        self.cluster.network.heal()  # a broker starts once it has found the controller
        for broker in BROKERS:
            if broker not in self.alive:
                await self.cluster.start(broker)

    async def live(self) -> None:
        for broker in (DIRECTOR, *BROKERS):
            await self.cluster.start(broker)
        try:
            await self.cluster.create("orders", BROKERS, segment_bytes="16384")
            publishers = [asyncio.create_task(self.publish(number)) for number in range(PUBLISHERS)]
            for _ in range(STEPS):
                await self.disturb()
            await self._restart()
            await asyncio.wait_for(asyncio.gather(*publishers), 120)
            await self.cluster.in_sync("orders")
            await self.check()
        finally:
            for running in reversed(self.cluster.brokers.values()):
                await running.stop()

    async def check(self) -> None:
        records = await records_of(self.cluster.leader("orders"))
        names = [dict(one.headers)["Nats-Msg-Id"] for one in records]
        assert len(set(names)) == len(names), "stored twice"
        assert set(names) == {b"%d-%d" % (one, number) for one in range(PUBLISHERS) for number in range(MESSAGES)}
        for offset, name in enumerate(names):
            assert name is not None
            assert self.acked[name] == {offset}
        for publisher in range(PUBLISHERS):
            own = [name for name in names if name is not None and name.startswith(b"%d-" % publisher)]
            assert own == [b"%d-%d" % (publisher, number) for number in range(MESSAGES)]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_each_message_is_stored_once_whoever_leads(tmp_path: Path, seed: int) -> None:
    """Lives in which publishers have to try again: not each has a leader that goes without a word."""
    life = Life(tmp_path, seed)
    run(life.live, seed=seed)
    assert life.retries > 0
