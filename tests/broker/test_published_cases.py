"""Failures of other systems that were published, each brought about here: what they lost is kept.

The sources are Jepsen's reports, Kafka's improvement proposals and Liftbridge's issues. Brokers are real ones with
simulated disks; what happens, happens in the order that the source tells.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
from tests.broker.node import append, append_soon, batch, values_of
from tests.broker.replicated import DIRECTOR, Cluster, bytes_of, cluster_of, refusal_of, stays, until
from tests.support.simulated import run

from logboom.base.errors import NotEnoughReplicasError, OffsetNotAvailableError, StorageError
from logboom.base.ids import NO_BROKER, Offset, StreamName
from logboom.broker.partition.replica import Partition

FIRST = "00000000000000000000"


def with_cluster(path: Path, body: Callable[[Cluster], Awaitable[None]], count: int = 3, *, minimum: int = 2) -> None:
    """Run `body` with brokers 1 to `count`, and a stream on all of them."""

    async def live() -> None:
        async with cluster_of(path, count, minimum=minimum) as cluster:
            await cluster.create("orders", range(1, count + 1))
            await body(cluster)

    run(live)


def apart(cluster: Cluster) -> None:
    """No replica reaches another one; all of them reach the controller."""
    for one, other in combinations((1, 2, 3), 2):
        cluster.network.cut(one, other)


async def led(cluster: Cluster, by: int) -> None:
    """Wait until a broker leads, and knows it."""
    await until(lambda: cluster.assignment("orders").leader == by, f"broker {by} is elected")
    await until(lambda: cluster.partition(by, "orders").leads, f"broker {by} leads")


async def alike(cluster: Cluster) -> None:
    """All replicas become the same, and are in sync."""
    await cluster.in_sync("orders")
    logs = [cluster.partition(one, "orders").log for one in cluster.assignment("orders").replicas]
    await until(lambda: len({bytes_of(log) for log in logs}) == 1, "all copies are the same")
    await cluster.in_sync("orders")


async def shows(cluster: Cluster, values: list[bytes]) -> None:
    """Wait until whoever leads shows so many records, and these."""

    def ready() -> bool:
        now = cluster.assignment("orders")
        return now.leader != NO_BROKER and cluster.leader("orders").high_watermark >= len(values)

    await until(ready, f"{len(values)} records are shown")
    assert await values_of(cluster.leader("orders")) == values


# --- Jepsen ---------------------------------------------------------------------------------------------------------


def test_jepsen_kafka_2013_the_isr_shrinks_to_one_and_that_one_dies(tmp_path: Path) -> None:
    """https://aphyr.com/posts/293: the leader acks alone once the others are cut off, dies, and one of them, which has
    nothing of it, is elected. With a minimum of one the ack is right; nobody but that leader may lead then."""

    async def body(cluster: Cluster) -> None:
        await append(cluster.leader("orders"), b"on all")
        apart(cluster)
        await append(cluster.leader("orders"), b"on one")
        assert cluster.assignment("orders").isr == (1,)
        await cluster.crash(1, Random(1))
        cluster.network.heal()
        await stays(lambda: cluster.assignment("orders").leader == NO_BROKER, 3.0)
        await cluster.start(1)
        await led(cluster, 1)
        await shows(cluster, [b"on all", b"on one"])
        await alike(cluster)

    with_cluster(tmp_path, body, minimum=1)


def test_jepsen_kafka_2013_with_a_minimum_of_two_nothing_is_acked_by_one(tmp_path: Path) -> None:
    """The same with the setting that came of it: what one alone has is not acked, so that its end loses nothing."""

    async def body(cluster: Cluster) -> None:
        await append(cluster.leader("orders"), b"acked")
        apart(cluster)
        waits = append_soon(cluster.leader("orders"), batch(b"on one"))
        assert type(await refusal_of(waits)).__name__ == "NotEnoughReplicasAfterAppendError"
        assert type(await refusal_of(append(cluster.leader("orders"), b"refused"))) is NotEnoughReplicasError
        await cluster.crash(1, Random(1))
        cluster.network.heal()
        await until(lambda: cluster.assignment("orders").leader in (2, 3), "one that was eligible leads")
        await shows(cluster, [b"acked"])

    with_cluster(tmp_path, body)


def test_jepsen_nats_2_12_1_every_node_loses_its_power(tmp_path: Path) -> None:
    """https://jepsen.io/analyses/nats-2.12.1: acks came before syncs, so a power failure lost seconds of them."""

    async def body(cluster: Cluster) -> None:
        sent = [b"%d" % number for number in range(20)]
        for value in sent:
            await append(cluster.leader("orders"), value)
        for broker in (1, 2, 3):
            await cluster.crash(broker, Random(broker))
        for broker in (3, 2, 1):
            await cluster.start(broker)
        await alike(cluster)
        await shows(cluster, sent)

    with_cluster(tmp_path, body)


def test_jepsen_nats_2_12_1_one_node_loses_unsynced_writes_and_another_stands_still(tmp_path: Path) -> None:
    """One node that had acked forgets, and makes a majority with one that was away: acked messages are gone on both."""

    async def body(cluster: Cluster) -> None:
        await append(cluster.leader("orders"), b"on all")
        cluster.network.cut(1, 3)
        cluster.network.cut(2, 3)  # it stands still, and hears nothing of what follows
        await append(cluster.leader("orders"), b"on two")
        await cluster.crash(2, Random(2))
        await cluster.start(2)
        await cluster.crash(1, Random(1))
        cluster.network.heal()
        await cluster.start(1)
        await alike(cluster)
        await shows(cluster, [b"on all", b"on two"])

    with_cluster(tmp_path, body)


@pytest.mark.parametrize("broker", [1, 2], ids=["leader", "follower"])
def test_jepsen_nats_2_12_1_flipped_bits_in_a_log_of_one_node(tmp_path: Path, broker: int) -> None:
    """A node with a damaged file led, and had the others delete what it could not read."""

    async def body(cluster: Cluster) -> None:
        sent = [b"%d" % number * 50 for number in range(5)]
        for value in sent:
            await append(cluster.leader("orders"), value)
        await cluster.stop(broker)
        file = cluster.disk(broker).open(f"streams/orders-0/{FIRST}.log")
        file.write(200, [bytes(byte ^ 0x10 for byte in file.read(200, 4))])
        await cluster.start(broker)
        await cluster.in_sync("orders")
        if cluster.assignment("orders").leader != broker:
            await cluster.elect("orders", 0, broker)
            await led(cluster, broker)
        before = cluster.assignment("orders").partition_epoch
        assert isinstance(await refusal_of(cluster.leader("orders").reads.read(Offset(1), 10)), StorageError)
        await until(lambda: cluster.assignment("orders").partition_epoch > before, "the damage is reported")
        await alike(cluster)
        await shows(cluster, sent)

    with_cluster(tmp_path, body)


def test_jepsen_redpanda_21_10_a_batch_that_is_sent_again_to_another_leader_is_not_doubled(tmp_path: Path) -> None:
    """https://jepsen.io/analyses/redpanda-21.10.1: an idempotent producer whose ack was lost with the leader sends its
    batch again; the next leader stored it twice, or told another offset (redpanda #3039, #3003)."""

    async def body(cluster: Cluster) -> None:
        await append(cluster.leader("orders"), b"0", producer=(7, 0, 0))
        first = await append(cluster.leader("orders"), b"1", producer=(7, 0, 1))
        await cluster.crash(1, Random(1))
        await until(lambda: cluster.assignment("orders").leader in (2, 3), "another one leads")
        leader = cluster.leader("orders")
        await until(lambda: leader.leads, "it knows it")
        again = await append(leader, b"1", producer=(7, 0, 1))
        assert again.base_offset == first.base_offset
        await cluster.start(1)
        await alike(cluster)
        await shows(cluster, [b"0", b"1"])

    with_cluster(tmp_path, body)


# --- Kafka ----------------------------------------------------------------------------------------------------------


def test_kip_101_a_follower_whose_mark_lags_behind_becomes_leader_at_once(tmp_path: Path) -> None:
    """Scenario 1: it cut its log to its own mark, which had not reached it yet, and led before it had fetched again."""

    async def body(cluster: Cluster) -> None:
        await append(cluster.leader("orders"), b"a")
        follower = cluster.partition(3, "orders")
        await append(cluster.leader("orders"), b"b")
        assert follower.log.durable_end == 2
        cluster.network.cut(2, 3)  # it can fetch nothing from the next leader
        await cluster.elect("orders", 0, 2)
        await until(lambda: follower.role.follower.leader == 2, "it follows the next leader")
        await cluster.elect("orders", 0, 3)
        await led(cluster, 3)
        assert bytes_of(follower.log).count(b"b") >= 1
        cluster.network.heal()
        await append(follower, b"c")
        await shows(cluster, [b"a", b"b", b"c"])
        await alike(cluster)

    with_cluster(tmp_path, body)


def test_kip_101_copies_that_differ_after_a_failure_of_both_become_the_same(tmp_path: Path) -> None:
    """Scenario 2: both die, the one with less comes back first, leads and writes; the other one has a different record
    at that offset, and kept it."""

    async def body(cluster: Cluster) -> None:
        await append(cluster.leader("orders"), b"a")
        cluster.network.cut(1, 2)
        old = cluster.leader("orders")
        lost = append_soon(old, batch(b"only here"))
        await until(lambda: old.log.durable_end == 2, "it has it on its disk")
        await cluster.elect("orders", 0, 2)
        await cluster.crash(1, Random(1))
        assert await refusal_of(lost) is not None
        await led(cluster, 2)
        await append(cluster.leader("orders"), b"b")
        cluster.network.heal()
        await cluster.start(1)
        await alike(cluster)
        await shows(cluster, [b"a", b"b"])

    with_cluster(tmp_path, body, 2, minimum=1)


def test_kip_279_fast_failovers_leave_no_two_logs_that_differ(tmp_path: Path) -> None:
    """Each of two leaders has an epoch that the other one has not: to cut at the end that the leader knows of an older
    epoch leaves a record that is not the leader's."""

    async def body(cluster: Cluster) -> None:
        await append(cluster.leader("orders"), b"a")
        apart(cluster)
        one, two = cluster.partition(1, "orders"), cluster.partition(2, "orders")
        unacked = [append_soon(one, batch(b"of epoch 0"))]
        await until(lambda: one.log.durable_end == 2, "the first leader has one more")
        await cluster.elect("orders", 0, 2)
        await led(cluster, 2)
        unacked += [append_soon(two, batch(b"of epoch 1")), append_soon(two, batch(b"and another one"))]
        await until(lambda: two.log.durable_end == 3, "the second leader has two more")
        await cluster.elect("orders", 0, 1)
        await led(cluster, 1)
        cluster.network.heal()
        await alike(cluster)
        await append(one, b"b")
        for append_ in unacked:
            await refusal_of(append_)
        await alike(cluster)
        await shows(cluster, [b"a", b"of epoch 0", b"b"])

    with_cluster(tmp_path, body)


def test_kip_966_the_last_replica_that_stands_falls(tmp_path: Path) -> None:
    """The ISR shrinks to one below the minimum, and that one loses its power. Who left the ISR then has all that was
    ever acked, and leads; the partition does not wait for the one that fell."""

    async def body(cluster: Cluster) -> None:
        await append(cluster.leader("orders"), b"a")
        await cluster.stop(3)
        await append(cluster.leader("orders"), b"b")
        await cluster.stop(2)
        assert (cluster.assignment("orders").isr, cluster.assignment("orders").elr) == ((1,), (2,))
        assert type(await refusal_of(append(cluster.leader("orders"), b"refused"))) is NotEnoughReplicasError
        await cluster.crash(1, Random(1))
        await cluster.start(3)
        await stays(lambda: cluster.assignment("orders").leader == NO_BROKER, 1.0)
        await cluster.start(2)
        await led(cluster, 2)
        await until(lambda: set(cluster.assignment("orders").isr) == {2, 3}, "the minimum is met")
        await shows(cluster, [b"a", b"b"])

    with_cluster(tmp_path, body)


@pytest.mark.parametrize("whose", ["the stream's", "all streams'"])
def test_kip_966_a_lower_minimum_makes_nobody_leader_who_lacks_what_was_acked(tmp_path: Path, whose: str) -> None:
    """The ISR shrinks to one below the minimum; then an operator lowers the minimum, and that one goes on alone. Who
    left the ISR before may not be elected any more when it dies."""

    async def body(cluster: Cluster) -> None:
        catalog = cluster[DIRECTOR].catalog
        if whose == "all streams'":
            await catalog.change_broker_config("", {"min.insync.replicas": "2"})
            await catalog.change_stream_config("orders", {"min.insync.replicas": None})
        await append(cluster.leader("orders"), b"a")
        await cluster.stop(3)
        await cluster.stop(2)
        assert (cluster.assignment("orders").isr, cluster.assignment("orders").elr) == ((1,), (2,))
        assert type(await refusal_of(append(cluster.leader("orders"), b"refused"))) is NotEnoughReplicasError
        if whose == "all streams'":
            await catalog.change_broker_config("", {"min.insync.replicas": "1"})
        else:
            await catalog.change_stream_config("orders", {"min.insync.replicas": "1"})

        def goes_on() -> bool:
            (known,) = cluster[1].catalog.image.by_name[StreamName("orders")].assignments
            return not known.elr

        await until(goes_on, "the leader knows that nobody else is eligible")
        await append(cluster.leader("orders"), b"b")
        cluster.network.cut(1, 2)
        await cluster.start(2)
        await cluster.crash(1, Random(1))
        await stays(lambda: cluster.assignment("orders").leader == NO_BROKER, 1.0)
        await cluster.start(1)
        await shows(cluster, [b"a", b"b"])

    with_cluster(tmp_path, body)


# --- Liftbridge -----------------------------------------------------------------------------------------------------


def test_liftbridge_38_a_start_cuts_nothing_that_was_acked(tmp_path: Path) -> None:
    """A replica that started cut its log to its high-water mark, which its last note may be far behind."""

    async def body(cluster: Cluster) -> None:
        sent = [b"%d" % number for number in range(10)]
        for value in sent:
            await append(cluster.leader("orders"), value)
        for broker in (3, 2):
            await cluster.crash(broker, Random(broker))
            await cluster.start(broker)
            assert cluster.partition(broker, "orders").log.log_end_offset == len(sent)
            await cluster.in_sync("orders")
        await cluster.crash(1, Random(1))
        await until(lambda: cluster.assignment("orders").leader in (2, 3), "another one leads")
        await shows(cluster, sent)

    with_cluster(tmp_path, body)


def test_liftbridge_383_a_leader_that_fails_is_replaced_without_a_report_of_anybody(tmp_path: Path) -> None:
    """Followers had to report a leader that failed, and the reports were lost. Here its lease ends."""

    async def body(cluster: Cluster) -> None:
        await append(cluster.leader("orders"), b"a")
        for number in range(1, 4):
            failed = cluster.assignment("orders").leader
            await cluster.crash(failed, Random(number))
            await until(lambda failed=failed: cluster.assignment("orders").leader not in (failed, NO_BROKER), "another")  # type: ignore[misc]
            await until(lambda: cluster.leader("orders").leads, "it knows it")
            await append(cluster.leader("orders"), b"%d" % number)
            await cluster.start(failed)
            await cluster.in_sync("orders")
        await shows(cluster, [b"a", b"1", b"2", b"3"])

    with_cluster(tmp_path, body)


@pytest.mark.parametrize("name", [f"{FIRST}.index", "leader-epochs", "durable-end"])
def test_liftbridge_243_and_411_a_garbled_auxiliary_file_stops_no_broker(tmp_path: Path, name: str) -> None:
    """An index or a file of leader epochs that was cut or garbled ended every start, until somebody deleted it."""

    async def body(cluster: Cluster) -> None:
        sent = [b"%d" % number * 300 for number in range(30)]
        for value in sent:
            await append(cluster.leader("orders"), value)
        await cluster.crash(2, Random(2))
        disk = cluster.disk(2)
        path = f"streams/orders-0/{name}"
        if disk.exists(path):
            disk.unlink(path)
        file = disk.open(path, create=True)
        file.write(0, [b"no such thing"])
        file.sync()
        await cluster.start(2)
        await alike(cluster)
        await cluster.elect("orders", 0, 2)
        await led(cluster, 2)
        await shows(cluster, sent)

    with_cluster(tmp_path, body)


def test_liftbridge_319_and_337_the_high_water_mark_goes_back_at_no_failover(tmp_path: Path) -> None:
    """A new leader computed it of what it had last known of its own log: readers saw records vanish. Here it is never
    below what this process has shown, and a leader tells no latest offset before it is at what others may have told."""

    async def body(cluster: Cluster) -> None:
        shown: dict[Partition, int] = {}
        told = 0

        def look() -> None:
            for broker in cluster.brokers:
                if broker == DIRECTOR:
                    continue
                copy = cluster.partition(broker, "orders")
                assert copy.high_watermark >= shown.get(copy, 0), f"it goes back on broker {broker}"
                shown[copy] = copy.high_watermark

        def knows_what_was_told(leader: Partition) -> bool:
            look()
            try:
                leader.role.leader.check_latest_known()
            except OffsetNotAvailableError:
                return False
            assert leader.high_watermark >= told
            return True

        for number in range(12):
            leader = cluster.leader("orders")
            await until(partial(knows_what_was_told, leader), "the leader knows what is committed")
            await append(leader, b"%d" % number)
            told = leader.high_watermark
            assert told == number + 1
            look()
            await cluster.elect("orders", 0, number % 3 + 1)
            await led(cluster, number % 3 + 1)
            look()
        await shows(cluster, [b"%d" % number for number in range(12)])

    with_cluster(tmp_path, body)


def test_liftbridge_414_a_start_from_a_snapshot_of_the_metadata(tmp_path: Path) -> None:
    """What the snapshot held was begun before the rest of the server was there, so that every start ended."""

    async def live() -> None:
        async with cluster_of(tmp_path, 3, metadata_snapshot_records=5) as cluster:
            await cluster.create("orders", (1, 2, 3))
            sent = [b"%d" % number for number in range(5)]
            for value in sent:
                await append(cluster.leader("orders"), value)
            for number in range(12):
                await cluster.create(f"more-{number}", (1, 2, 3))
            logs = [name for name in cluster.disk(2).nodes if name.startswith("metadata/raft/log-")]
            assert not any("/log-00000000000000000000/" in name for name in logs), "the log begins behind a snapshot"
            for broker in (1, 2, 3):
                await cluster.crash(broker, Random(broker))
            for broker in (1, 2, 3):
                await cluster.start(broker)
            await alike(cluster)
            await shows(cluster, sent)
            assert set(cluster[2].catalog.streams()) == set(cluster.image.by_name)

    run(live)
