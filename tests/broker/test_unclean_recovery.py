"""Nobody who is eligible is left: a partition waits, or the longest log is chosen where all were killed, or somebody
says so (KIP-966)."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random

import pytest
from tests.broker.node import append, values_of
from tests.broker.replicated import DIRECTOR, Cluster, cluster_of, refusal_of, stays, until
from tests.support.simulated import replace_disk, run

from logboom.base.errors import ElectionNotNeededError, EligibleLeadersNotAvailableError, UnknownStreamError
from logboom.base.ids import NO_BROKER, BrokerId
from logboom.broker.control.unclean_recovery import Ends, Key
from logboom.broker.partition.replica import Partition


async def left_behind(cluster: Cluster, *, unclean: bool = False) -> None:
    """Broker 1 was in sync last and is away. Of the others 3 has more than 2, and neither has all."""
    await cluster.create("orders", [1, 2, 3], unclean_leader_election_enable=str(unclean).lower())
    await append(cluster.leader("orders"), b"all have it")
    await cluster.in_sync("orders")
    await cluster.stop(2)
    await append(cluster.leader("orders"), b"2 lacks it")
    await cluster.stop(3)
    await append(cluster.leader("orders"), b"1 alone has it")
    await cluster.crash(1, Random(1))
    await cluster.start(2)
    await cluster.start(3)
    assert cluster.assignment("orders").elr == (1,)
    assert cluster.assignment("orders").leader == NO_BROKER


async def kill_all(cluster: Cluster) -> None:
    await asyncio.gather(*(cluster.crash(one, Random(one)) for one in (1, 2, 3)))


async def killed_in_sync(cluster: Cluster) -> None:
    """All three were in sync, with one record, when they were killed at once."""
    await cluster.create("orders", [1, 2, 3])
    await append(cluster.leader("orders"), b"all have it")
    await cluster.in_sync("orders")
    await kill_all(cluster)


def has_shown(copy: Partition, records: int) -> bool:
    return copy.high_watermark == records


async def check_all_show(cluster: Cluster, values: Sequence[bytes]) -> None:
    """Wait until all three are in sync and show as many records, which are to have these values."""
    await cluster.in_sync("orders")
    for broker in (1, 2, 3):
        copy = cluster.partition(broker, "orders")
        await until(partial(has_shown, copy, len(values)), "all of it is shown")
        assert await values_of(copy) == values


def test_without_a_word_the_partition_waits_and_is_whole_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3, minimum=1) as cluster:
            await left_behind(cluster)
            await stays(lambda: cluster.assignment("orders").leader == NO_BROKER, 30.0)
            await cluster.start(1)
            await cluster.in_sync("orders")
            assert cluster.assignment("orders").leader == 1
            await until(lambda: cluster.partition(2, "orders").high_watermark == 3, "what only one had is everywhere")

    run(body)


def test_what_is_asked_for_at_once_is_one_change(tmp_path: Path) -> None:
    """Over slow links a hundred changes one after the other take minutes."""

    async def body() -> None:
        async with cluster_of(tmp_path, 3, minimum=1) as cluster:
            await cluster.create("orders", [1, 2, 3], partitions=30)
            await cluster.in_sync("orders")
            for broker in (2, 3, 1):
                await cluster.stop(broker)
            await cluster.start(2)
            admin, state = cluster[2].cluster_admin, cluster[DIRECTOR].cluster.state
            before = state.applied_index
            elections = [admin.elect("orders", index, unclean=True) for index in (*range(30), 7, 30)]
            *_, again, unknown = await asyncio.gather(*map(refusal_of, elections))
            assert isinstance(again, ElectionNotNeededError)
            assert isinstance(unknown, UnknownStreamError)
            assert all(cluster.assignment("orders", index).leader == 2 for index in range(30))
            assert state.applied_index - before <= 4

    run(body)


@pytest.mark.parametrize("asked_at", [2, DIRECTOR])
def test_who_asks_for_anybody_gets_the_longest_log(tmp_path: Path, asked_at: int) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3, minimum=1) as cluster:
            await left_behind(cluster)
            await cluster[asked_at].cluster_admin.elect("orders", 0, unclean=True)
            assert cluster.assignment("orders").leader == 3
            await append(cluster.partition(3, "orders"), b"on we go")
            again = await refusal_of(cluster[asked_at].cluster_admin.elect("orders", 0, unclean=True))
            assert isinstance(again, ElectionNotNeededError)
            await cluster.start(1)
            await check_all_show(cluster, [b"all have it", b"2 lacks it", b"on we go"])

    run(body)


def test_a_stream_may_choose_to_lose_rather_than_to_wait(tmp_path: Path) -> None:
    """`stays` and `until` fail if a broker leads too early, or none with the longest log."""

    async def body() -> None:
        async with cluster_of(tmp_path, 3, minimum=1) as cluster:
            await left_behind(cluster, unclean=True)
            await stays(lambda: cluster.assignment("orders").leader == NO_BROKER, 8.0)
            await until(lambda: cluster.assignment("orders").leader == 3, "the longest log leads")

    run(body)


def test_an_election_does_not_wait_for_those_that_do_not_answer(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3, minimum=1) as cluster:
            await left_behind(cluster)
            cluster.network.cuts.add((BrokerId(DIRECTOR), BrokerId(3)))
            await cluster[DIRECTOR].cluster_admin.elect("orders", 0, unclean=True)
            assert cluster.assignment("orders").leader == 2, (
                "of 3 nothing is known, which does not mean that it has more"
            )

    run(body)


async def put_back_older(cluster: Cluster, broker: int) -> None:
    """All are killed at once, and one finds a copy of its disk that was made before the last records were acked."""
    await cluster.create("orders", [1, 2, 3])
    await append(cluster.leader("orders"), b"in the copy")
    await cluster.in_sync("orders")
    await until(partial(has_shown, cluster.partition(broker, "orders"), 1), "the copy has a record")
    older = cluster.disk(broker).copy()
    for value in (b"acked", b"acked too"):
        await append(cluster.leader("orders"), value)
    await kill_all(cluster)
    replace_disk(str(cluster.path / str(broker)), older)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 3, 1)])
@pytest.mark.parametrize("broker", [1, 3])
def test_an_older_copy_never_leads_where_another_one_has_what_was_acked(
    tmp_path: Path, broker: int, order: tuple[int, ...]
) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3, minimum=2) as cluster:
            await put_back_older(cluster, broker)
            for one in order:
                await cluster.start(one)
            await check_all_show(cluster, [b"in the copy", b"acked", b"acked too"])

    run(body)


def test_the_others_are_waited_for_but_not_for_ever(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3, minimum=2) as cluster:
            await killed_in_sync(cluster)
            for one in (1, 2, 3):
                await cluster.start(one)
                if one < 3:
                    await cluster.crash(one, Random(one))
            assert cluster.assignment("orders").in_doubt
            await stays(lambda: cluster.assignment("orders").leader == NO_BROKER, 8.0)
            await until(lambda: cluster.assignment("orders").leader == 3, "the one that is there leads", within_s=5.0)

    run(body)


def test_the_last_one_in_sync_is_waited_for_without_end(tmp_path: Path) -> None:
    """It has not said that it was killed like the others, who have everything too. By hand one of these is elected."""

    async def body() -> None:
        async with cluster_of(tmp_path, 3, minimum=2) as cluster:
            await killed_in_sync(cluster)
            await cluster.start(1)
            await cluster.start(2)
            assert cluster.assignment("orders").relied_on == (3,)
            await stays(lambda: cluster.assignment("orders").leader == NO_BROKER, 60.0)
            await cluster[DIRECTOR].cluster_admin.elect("orders", 0, unclean=True)
            await until(partial(has_shown, cluster.leader("orders"), 1), "all of it is shown")

    run(body)


def test_who_has_most_and_is_killed_while_it_is_decided_is_not_passed_over(tmp_path: Path) -> None:
    """It told how far its log goes, and the next that told was elected: committed records were cut."""

    async def body() -> None:
        async with cluster_of(tmp_path, 3, minimum=1) as cluster:
            await left_behind(cluster)
            recovery = cluster[DIRECTOR].cluster.controller.recovery
            ask, asked = recovery._ask, list[Mapping[Key, Ends]]()

            async def ask_and_kill(keys: Sequence[Key], brokers: Collection[BrokerId]) -> Mapping[Key, Ends]:
                ends = await ask(keys, brokers)
                if not asked:
                    asked.append(ends)
                    await cluster.crash(1, Random(1))
                return ends

            recovery._ask = ask_and_kill
            await cluster.start(1)
            await until(lambda: bool(asked), "who is there was asked")
            await stays(lambda: cluster.assignment("orders").leader == NO_BROKER, 8.0)
            await cluster.start(1)
            await check_all_show(cluster, [b"all have it", b"2 lacks it", b"1 alone has it"])

    run(body)


def test_nobody_can_be_elected_where_nobody_is_there(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2, minimum=1) as cluster:
            await cluster.create("orders", [1, 2])
            await cluster.crash(1, Random(1))
            await cluster.crash(2, Random(2))
            refused = await refusal_of(cluster[DIRECTOR].cluster_admin.elect("orders", 0, unclean=True))
            assert isinstance(refused, EligibleLeadersNotAvailableError)

    run(body)
