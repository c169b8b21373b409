"""Groups whose coordinator moves between brokers, at any moment and as often as chance likes."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeAlias

import pytest
from tests.groups.cluster import Cluster, Node
from tests.groups.harness import subscription
from tests.support import simulated

from logboom.base.errors import LogboomError
from logboom.groups import Commit, Heartbeat, Join, JoinReply, Leave, Leaver, OffsetToCommit, Protocol, Sync
from logboom.groups.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    IllegalGenerationError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberError,
)

ELSEWHERE = (NotCoordinatorError, CoordinatorNotAvailableError, CoordinatorLoadInProgressError)
SHARES = 4
"""Partitions of a stream that the members of a group share."""


class Ledger:
    """What clients were told, against which every later answer is held."""

    def __init__(self) -> None:
        self.asked: dict[tuple[str, int], int] = {}
        self.acked: dict[tuple[str, int], int] = {}
        self.owners: dict[tuple[int, int], str] = {}
        """Who was told to own a partition in a generation."""
        self.generation = 0

    def fetch(self, node: Node, group_id: str, partition: int) -> int | None:
        """What a broker says is committed, if it says anything: never less than what was acknowledged before."""
        try:
            values = node.groups.committed(group_id)
        except ELSEWHERE:
            return None
        value = values.get(("clicks", partition))
        found = 0 if value is None else value.offset
        place = group_id, partition
        assert self.acked.get(place, 0) <= found <= self.asked.get(place, 0), f"{place} went from {self.acked}"
        return found

    async def commit(
        self, node: Node, group_id: str, partition: int, offset: int, member_id: str = "", generation: int = -1
    ) -> LogboomError | None:
        place = group_id, partition
        self.asked[place] = max(offset, self.asked.get(place, 0))
        known = self.generation
        taken = (OffsetToCommit("clicks", partition, offset, -1, ""),)
        commit = Commit(group_id=group_id, offsets=taken, member_id=member_id, generation=generation)
        reply = await node.groups.commit(commit)
        if reply.results[0] is None:
            assert not member_id or generation >= known, f"a member of generation {generation} committed in {known}"
            self.acked[place] = max(offset, self.acked.get(place, 0))
        return reply.results[0]

    def told(self, generation: int, member_id: str, assignment: bytes) -> None:
        """A member was given its partitions."""
        for partition in assignment:
            owner = self.owners.setdefault((generation, partition), member_id)
            assert owner == member_id, f"two own partition {partition} in generation {generation}"
        self.generation = max(self.generation, generation)


class Client:
    """Knows the brokers and asks another one when it is told to."""

    def __init__(self, cluster: Cluster, ledger: Ledger, random: Random) -> None:
        self.cluster, self.ledger, self.random = cluster, ledger, random
        self.node = cluster.nodes[0]

    async def move_on(self) -> None:
        self.node = self.random.choice(self.cluster.nodes)
        await asyncio.sleep(0.05)


class Committer(Client):
    """A consumer that assigns its partitions itself."""

    async def live(self, group_id: str) -> None:
        offset = 0
        while True:
            self.ledger.fetch(self.random.choice(self.cluster.nodes), group_id, 0)
            offset += 1
            error = await self.ledger.commit(self.node, group_id, 0, offset)
            if error is not None:
                assert isinstance(error, ELSEWHERE)
                await self.move_on()
            await asyncio.sleep(self.random.choice((0, 0.01)))


class Member(Client):
    """A consumer of a group."""

    async def live(self) -> None:
        self.member_id, self.generation = "", -1
        while True:
            owned = await self.join()
            if owned is not None:
                await self.work(owned)

    async def join(self) -> bytes | None:
        """Its partitions, once it is a member of a generation."""
        joined = await self.node.groups.join(
            Join(
                group_id="g",
                member_id=self.member_id,
                client_id="c",
                client_host="h",
                session_timeout_ms=2_000,
                rebalance_timeout_ms=3_000,
                protocol_type="consumer",
                protocols=(Protocol("range", subscription("clicks")),),
                member_id_required=False,
                can_skip_assignment=False,
            )
        )
        if joined.error is not None:
            await self.goes_on(joined.error)
            return None
        self.member_id, self.generation = joined.member_id, joined.generation
        if self.random.random() < 0.2:
            await self.move_on()
        synced = await self.node.groups.sync(
            Sync(group_id="g", generation=self.generation, member_id=self.member_id, assignments=_shared(joined))
        )
        if synced.error is not None:
            await self.goes_on(synced.error)
            return None
        self.ledger.told(self.generation, self.member_id, synced.assignment)
        return synced.assignment

    async def work(self, owned: bytes) -> None:
        """Read and commit until the group is rebalanced, or it leaves."""
        while self.random.random() > 0.03:
            await asyncio.sleep(self.random.choice((0.01, 0.1, 0.3)))
            for partition in owned:
                self.ledger.fetch(self.random.choice(self.cluster.nodes), "g", partition)
                read = self.ledger.fetch(self.node, "g", partition)
                if read is None:
                    continue
                error = await self.ledger.commit(self.node, "g", partition, read + 1, self.member_id, self.generation)
                if not await self.goes_on(error):
                    return
            beat = Heartbeat(group_id="g", generation=self.generation, member_id=self.member_id)
            if not await self.goes_on((await self.node.groups.heartbeat(beat)).error):
                return
        await self.node.groups.leave(Leave(group_id="g", leavers=(Leaver(self.member_id),)))
        self.member_id = ""

    async def goes_on(self, error: LogboomError | None) -> bool:
        """Whether it may keep its partitions after this answer; perhaps it has to ask another broker."""
        if error is None:
            return True
        if isinstance(error, ELSEWHERE):
            await self.move_on()
            return True
        assert isinstance(error, RebalanceInProgressError | UnknownMemberError | IllegalGenerationError), error
        if not isinstance(error, RebalanceInProgressError):
            self.member_id = ""
        return False


def _shared(joined: JoinReply) -> tuple[tuple[str, bytes], ...]:
    if joined.leader != joined.member_id:
        return ()
    names = [member.member_id for member in joined.members]
    return tuple((name, bytes(range(index, SHARES, len(names)))) for index, name in enumerate(names))


Lives: TypeAlias = Callable[[Cluster, Ledger, Random], list[Coroutine[Any, Any, None]]]


async def play(seed: int, live: Lives, run_s: float) -> Ledger:
    """Let clients live on a cluster to which everything happens. Then all goes well, and what they know is true."""
    random, cluster, ledger = Random(seed), Cluster(), Ledger()
    cluster.settle()
    lives = [asyncio.ensure_future(one) for one in live(cluster, ledger, random)]
    end = asyncio.ensure_future(asyncio.sleep(run_s))
    await cluster.run(random, until=end)
    for one in lives:
        one.cancel()
    for outcome in await asyncio.gather(*lives, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError), outcome
    cluster.elect(random.choice(sorted(cluster.isr)))
    for _ in range(3):
        cluster.settle()
        await asyncio.sleep(0.1)
    groups = cluster.nodes[cluster.leader].groups
    await groups.loaded()
    for group_id, partition in ledger.acked:
        assert ledger.fetch(cluster.nodes[cluster.leader], group_id, partition) is not None
    await cluster.stop()
    return ledger


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seed", range(8))
def test_committed_offsets_never_go_back(seed: int) -> None:
    def committers(cluster: Cluster, ledger: Ledger, random: Random) -> list[Coroutine[Any, Any, None]]:
        return [Committer(cluster, ledger, random).live(f"g{number}") for number in range(4)]

    ledger = simulated.run(lambda: play(seed, committers, 30.0))
    assert min(ledger.acked.values()) > 20


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seed", range(8))
def test_no_two_members_own_a_partition_in_one_generation(seed: int) -> None:
    def members(cluster: Cluster, ledger: Ledger, random: Random) -> list[Coroutine[Any, Any, None]]:
        return [Member(cluster, ledger, random).live() for _ in range(3)]

    ledger = simulated.run(lambda: play(seed, members, 120.0))
    assert ledger.generation > 5
    assert min(ledger.acked.values()) > 5
