"""Messages with ids across changes of leaders: what is sent again to the next leader is not stored twice."""

import asyncio
from random import Random

from tests.broker.messages import Message, outcomes, publish, publish_soon, values_of
from tests.broker.replicated import DIRECTOR, Cluster, on_brokers, stays, until

from logboom.base.errors import NotLeaderError, UnknownStreamError
from logboom.broker.broker import Broker
from logboom.broker.partition.publications import AppendInDoubtError
from logboom.broker.partition.replica import Partition


def leader_of(cluster: Cluster) -> tuple[Broker, Partition]:
    number = cluster.assignment("orders").leader
    return cluster[number], cluster.partition(number, "orders")


@on_brokers(3)
async def test_a_retry_on_the_next_leader_is_a_duplicate(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    first = [Message(b"%d" % n, id=b"id-%d" % n) for n in range(5)]
    assert await publish(*leader_of(cluster), *first) == [0, 1, 2, 3, 4]
    await cluster.stop(1)
    assert await publish(*leader_of(cluster), first[3], Message(b"5", id=b"id-5", last_id=b"id-4")) == [-4, 5]
    await cluster.start(1)
    await cluster.in_sync("orders")
    await cluster.crash(int(cluster.assignment("orders").leader), Random(0))
    await until(lambda: leader_of(cluster)[1].leads, "the next one leads")
    again = Message(b"5", id=b"id-5", end=5)
    assert await publish(*leader_of(cluster), again, first[0], Message(b"6", id=b"id-6", end=6)) == [-6, -1, 6]
    assert await values_of(leader_of(cluster)[1]) == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]


@on_brokers(3, replica_lag_max_ms=30_000)
async def test_a_duplicate_of_what_is_not_committed_yet_waits_for_it(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    broker, partition = leader_of(cluster)
    await publish(broker, partition, Message(b"0", id=b"zero"))
    cluster.network.cut(1, 2)
    cluster.network.cut(1, 3)
    first = publish_soon(broker, partition, Message(b"1", id=b"one"))
    await until(lambda: partition.log.durable_end == 2, "it is on the leader's disk")
    again = publish_soon(broker, partition, Message(b"1", id=b"one"))
    at_leader = publish_soon(broker, partition, Message(b"1", id=b"one"), acks=1)
    committed = publish_soon(broker, partition, Message(b"0", id=b"zero"))
    assert outcomes(await at_leader) == [-2]
    assert outcomes(await committed) == [-1], "its first copy is committed"
    await stays(lambda: not first.done() and not again.done(), 0.5)
    cluster.network.heal()
    assert outcomes(await first) == [1]
    assert outcomes(await again) == [-2]


@on_brokers(3)
async def test_what_the_next_leader_has_not_got_is_stored_there_and_known_to_the_one_after(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    old_broker, old = leader_of(cluster)
    await publish(old_broker, old, Message(b"0", id=b"zero"))
    for other in (2, 3, DIRECTOR):
        cluster.network.cut(1, other)
    lost = publish_soon(old_broker, old, Message(b"lost", id=b"lost"), Message(b"1", id=b"one"))
    await until(lambda: old.log.durable_end == 3, "it is on the old leader's disk alone")
    await cluster.elect("orders", 0, 2)
    assert await publish(*leader_of(cluster), Message(b"1", id=b"one"), Message(b"2", id=b"two")) == [1, 2]
    cluster.network.heal()
    assert outcomes(await lost) == [AppendInDoubtError, AppendInDoubtError], "it cannot tell"
    await cluster.in_sync("orders")
    await cluster.elect("orders", 0, 1)
    await until(lambda: old.leads, "the first one leads again")
    sent = [Message(b"two", id=b"two"), Message(b"1", id=b"one"), Message(b"0", id=b"zero"), Message(b"3", id=b"lost")]
    assert await publish(*leader_of(cluster), *sent) == [-3, -2, -1, 3], "it has forgotten what was cut"
    assert await values_of(old) == [b"0", b"1", b"2", b"3"]


@on_brokers(3)
async def test_no_refusal_rests_on_a_record_that_is_not_committed(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    old_broker, old = leader_of(cluster)
    await publish(old_broker, old, Message(b"0"))
    for other in (2, 3, DIRECTOR):
        cluster.network.cut(1, other)
    lost = publish_soon(old_broker, old, Message(b"lost"))
    compared = publish_soon(old_broker, old, Message(b"1", end=1))  # with a record that the next leader does not have
    await until(lambda: old.log.durable_end == 2, "it is on the old leader's disk alone")
    await cluster.elect("orders", 0, 2)
    cluster.network.heal()
    assert outcomes(await lost) == [AppendInDoubtError]
    assert outcomes(await compared) == [NotLeaderError], "the next leader would take it"
    assert await publish(*leader_of(cluster), Message(b"1", end=1)) == [1]


@on_brokers(3, replica_lag_max_ms=30_000)
async def test_of_a_deleted_stream_nothing_is_in_doubt(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3])
    broker, partition = leader_of(cluster)
    await publish(broker, partition, Message(b"0", id=b"zero"))
    cluster.network.cut(1, 2)
    cluster.network.cut(1, 3)
    uncommitted = publish_soon(broker, partition, Message(b"1", id=b"one"))
    at_leader = publish_soon(broker, partition, Message(b"2"), acks=1)
    compared = publish_soon(broker, partition, Message(b"3", end=2))  # with a record that is not committed
    assert outcomes(await at_leader) == [2]
    again = publish_soon(broker, partition, Message(b"0", id=b"zero"), Message(b"1", id=b"one"))
    await asyncio.sleep(0.05)  # longer than few messages wait for the commit that is under way
    deletion = asyncio.create_task(cluster[1].catalog.delete_stream("orders"))
    assert outcomes(await uncommitted) == [UnknownStreamError]
    assert outcomes(await compared) == [UnknownStreamError]
    assert outcomes(await again) == [-1, UnknownStreamError]
    await deletion


@on_brokers(3)
async def test_the_window_ends_for_the_next_leader_as_for_the_one_before(cluster: Cluster) -> None:
    await cluster.create("orders", [1, 2, 3], logboom_nats_duplicate_window_ms="20000")
    await publish(*leader_of(cluster), Message(b"0", id=b"zero"))
    await asyncio.sleep(15)
    await publish(*leader_of(cluster), Message(b"1", id=b"one"))
    await cluster.stop(1)
    assert await publish(*leader_of(cluster), Message(b"0", id=b"zero")) == [-1]
    await asyncio.sleep(10)
    assert await publish(*leader_of(cluster), Message(b"1", id=b"one")) == [-2]
    await cluster.start(1)
    await cluster.in_sync("orders")
    await cluster.stop(2)
    stored_again = publish_soon(*leader_of(cluster), Message(b"0", id=b"zero"), Message(b"1", id=b"one"))
    assert outcomes(await stored_again) == [2, -2]
