"""Partitions on several brokers: what is acked is on all of the ISR, and what fails is made good."""

from pathlib import Path

from tests.broker.node import append, append_soon, batch, values_of
from tests.broker.replicated import bytes_of, cluster_of, refusal_of, stays, until
from tests.support.simulated import run

from logboom.base.errors import NotEnoughReplicasError, NotLeaderError
from logboom.base.ids import BrokerId
from logboom.records import Codec


def test_an_append_is_acked_once_every_member_of_the_isr_has_it_on_its_disk(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2, 3])
            for number in range(20):
                await append(cluster.leader("orders"), b"a%d" % number, b"b")
            ends = [cluster.partition(n, "orders").log.durable_end for n in (1, 2, 3)]
            assert ends == [40, 40, 40]
            assert isinstance(await refusal_of(append(cluster.partition(2, "orders"), b"x")), NotLeaderError)
            logs = [cluster.partition(n, "orders") for n in (1, 2, 3)]
            await until(lambda: all(log.high_watermark == 40 for log in logs), "followers learn of the mark")
            assert bytes_of(logs[0].log) == bytes_of(logs[1].log) == bytes_of(logs[2].log)
            assert await values_of(logs[1]) == await values_of(logs[0])

    run(body)


def test_nothing_is_acked_while_a_member_cannot_be_reached_and_all_is_once_it_left_the_isr(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2, 3])
            await append(cluster.leader("orders"), b"a")
            cluster.network.cut(1, 3)
            waits = append_soon(cluster.leader("orders"), batch(b"b"))
            await stays(lambda: not waits.done(), 1.0)
            await waits
            assert cluster.assignment("orders").isr == (1, 2)
            cluster.network.heal()
            await cluster.in_sync("orders")
            assert cluster.partition(3, "orders").log.durable_end == 2

    run(body)


def test_a_leader_alone_below_the_minimum_refuses_and_takes_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2) as cluster:
            await cluster.create("orders", [1, 2])
            await append(cluster.leader("orders"), b"a")
            cluster.network.cut(1, 2)
            waits = append_soon(cluster.leader("orders"), batch(b"b"))
            after = await refusal_of(waits)
            assert type(after).__name__ == "NotEnoughReplicasAfterAppendError"
            assert type(await refusal_of(append(cluster.leader("orders"), b"c"))) is NotEnoughReplicasError
            cluster.network.heal()
            await cluster.in_sync("orders")
            await append(cluster.leader("orders"), b"d")
            assert await values_of(cluster.leader("orders")) == [b"a", b"b", b"d"]

    run(body)


def test_a_follower_that_was_away_catches_up_across_segments(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 2, minimum=1) as cluster:
            await cluster.create("orders", [1, 2], segment_bytes="20000", partitions=3)
            await cluster.stop(2)
            for number in range(60):
                for index in range(3):
                    await append(cluster.leader("orders", index), b"%d" % number * 400, codec=Codec.NONE)
            await cluster.start(2)
            for index in range(3):
                await cluster.in_sync("orders", index)
                one, other = (cluster.partition(n, "orders", index).log for n in (1, 2))
                assert bytes_of(one) == bytes_of(other)
                assert len(other.segments) > 1

    run(body)


def test_an_idempotent_producer_goes_on_with_a_new_leader(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2, 3])
            for sequence in range(3):
                await append(cluster.leader("orders"), b"%d" % sequence, producer=(7, 0, sequence))
            await cluster.stop(1)
            leader = cluster.leader("orders")
            assert cluster.assignment("orders").leader == BrokerId(2)
            repeated = await append(leader, b"2", producer=(7, 0, 2))
            assert repeated.base_offset == 2
            assert (await append(leader, b"3", producer=(7, 0, 3))).base_offset == 3
            assert await values_of(leader) == [b"0", b"1", b"2", b"3"]

    run(body)


def test_an_old_leader_that_comes_back_cuts_what_was_not_committed(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_of(tmp_path, 3) as cluster:
            await cluster.create("orders", [1, 2, 3])
            await append(cluster.leader("orders"), b"a")
            old = cluster.leader("orders")
            cluster.network.cut(1, 2)
            cluster.network.cut(1, 3)
            cluster.controller_is_away = True
            lost = append_soon(old, batch(b"only at the old leader"))
            await until(lambda: old.log.durable_end == 2, "it has it on its disk")
            await cluster.elect("orders", 0, 2)
            assert isinstance(await refusal_of(lost), NotLeaderError)
            cluster.controller_is_away = False
            leader = cluster.leader("orders")
            kept = append_soon(leader, batch(b"b"))
            cluster.network.heal()
            await kept
            assert await values_of(leader) == [b"a", b"b"]
            await cluster.in_sync("orders")
            assert bytes_of(old.log) == bytes_of(leader.log)
            await until(lambda: old.high_watermark == 2, "the old leader shows what is committed")
            assert await values_of(old) == [b"a", b"b"]

    run(body)
