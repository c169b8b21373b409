"""Brokers with the cluster's key that lie, are of another version or have damaged memory: what they send is refused
with an error that has a name, costs a bounded amount of memory, and changes nothing that is committed."""

from collections.abc import Awaitable, Sequence
from random import Random
from typing import Any
from uuid import UUID

import msgspec
import pytest
from tests.broker.node import append
from tests.broker.replicated import Cluster, on_brokers

from logboom.base.errors import InvalidRequestError, LogboomError, UnknownBrokerError
from logboom.base.ids import BrokerId, PartitionIndex
from logboom.broker.log_ends import QUESTIONS_MAX
from logboom.broker.peers import FrameKind
from logboom.broker.replication import wire

ROUNDS = 400
WILD: tuple[Any, ...] = (
    -(2**63),
    -2,
    -1,
    0,
    1,
    2,
    7,
    2**31 - 1,
    2**31,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
    None,
    "x",
    1.5,
    [],
    b"",
)


class Liar:
    """The process of broker 2, which is none: it says what a test has it say."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.peers = cluster.network.join(2)
        self.epoch = cluster.image.brokers[BrokerId(2)].epoch

    def fetch(self, body: bytes) -> Awaitable[memoryview]:
        return self.peers.call(BrokerId(1), FrameKind.FETCH, [body], timeout_s=5)

    def tell(self, body: bytes) -> None:
        self.peers.post(BrokerId(1), FrameKind.DURABLE_END, [body])

    def ask_ends(self, question: Any) -> Awaitable[memoryview]:
        body = msgspec.msgpack.encode(question)
        return self.peers.call(BrokerId(1), FrameKind.LOG_ENDS, [body], timeout_s=5)

    def request(self, items: Sequence[Any], number: int = 7, *, begins: bool = True, told: int = 0) -> bytes:
        return msgspec.msgpack.encode([number, begins, self.epoch, 0, 1_000, 1_000, list(items), told])


async def a_liar(cluster: Cluster) -> Liar:
    """Beside a leader with three records, of which nothing is committed without broker 2, or with it gone."""
    await cluster.create("orders", [1, 2])
    for number in range(3):
        await append(cluster.leader("orders"), b"%d" % number)
    await cluster.stop(2)
    return Liar(cluster)


@on_brokers(2, minimum=1)
async def test_whatever_a_follower_says_it_is_answered_or_refused_by_name(cluster: Cluster) -> None:
    liar, chance = await a_liar(cluster), Random(5)
    leader = cluster.leader("orders")
    stream = leader.stream.id.bytes
    honest = [stream, 0, 1, leader.leader_epoch, 3, leader.leader_epoch, 3, 0, 0, 0]
    refused = answered = 0
    for _ in range(ROUNDS):
        item: list[Any] = list(honest)
        for _ in range(chance.randrange(1, 4)):
            item[chance.randrange(len(item))] = chance.choice(WILD)
        request = msgspec.msgpack.decode(liar.request([item]))
        if chance.random() < 0.3:
            request[chance.randrange(len(request))] = chance.choice(WILD)
        try:
            await liar.fetch(msgspec.msgpack.encode(request))
            answered += 1
        except LogboomError:  # and nothing else, which would be a fault of the one who was asked
            refused += 1
        liar.tell(msgspec.msgpack.encode([7, liar.epoch, [[stream, 0, *chance.choices(WILD, k=5)]]]))
        assert leader.role.leader.high_watermark == leader.log_end_offset == 3
    assert refused > ROUNDS // 4
    assert answered > ROUNDS // 20
    await append(leader, b"3")


@on_brokers(2, minimum=1)
async def test_more_synced_than_there_is_is_refused(cluster: Cluster) -> None:
    liar, leader = await a_liar(cluster), cluster.leader("orders")
    stream = leader.stream.id.bytes
    item = [stream, 0, 1, leader.leader_epoch, 3, leader.leader_epoch, 2**62, 10]
    with pytest.raises(
        InvalidRequestError, match="has synced its log up to 4611686018427387904, and asks for what is at 3"
    ):
        await liar.fetch(liar.request([item]))
    assert leader.role.leader.follower_end(BrokerId(2)) != 2**62


@on_brokers(2, minimum=1)
async def test_partitions_that_are_not_there_leave_nothing_behind(cluster: Cluster) -> None:
    liar, chance = await a_liar(cluster), Random(6)
    serving = cluster[1].replication._serving
    for number in range(20):
        items = [[chance.randbytes(16), 0, number, 0, 0, -1, 0] for _ in range(100)]
        await liar.fetch(liar.request(items, begins=number == 0))
    session = serving._sessions[BrokerId(2), False]
    kept = (session.pending, session.new, session.ready, session.behind, session.sent_marks, session.ends)
    assert not any(kept)


@on_brokers(2, minimum=1)
async def test_whoever_is_not_registered_gets_no_session(cluster: Cluster) -> None:
    await a_liar(cluster)
    for number in range(50, 60):
        stranger = cluster.network.join(number)
        body = wire.encode_request(wire.FetchRequest(1, True, 2**40, 0, 1_000, 1_000, [], 0))
        with pytest.raises(UnknownBrokerError, match=f"no broker is registered as {number}"):
            await stranger.call(BrokerId(1), FrameKind.FETCH, body, timeout_s=5)
    assert all(broker == 2 for broker, _ in cluster[1].replication._serving._sessions)


@on_brokers(2, minimum=1)
async def test_questions_for_the_ends_of_logs_are_bounded(cluster: Cluster) -> None:
    liar = await a_liar(cluster)
    many = [(UUID(int=number), 0) for number in range(QUESTIONS_MAX + 1)]
    with pytest.raises(InvalidRequestError, match="Expected `array` of length <= 10000"):
        await liar.ask_ends(many)
    assert msgspec.msgpack.decode(await liar.ask_ends(many[1:])) == [None] * QUESTIONS_MAX
    for question in WILD:
        if question != []:
            with pytest.raises(InvalidRequestError, match="a question for the ends of logs cannot be read"):
                await liar.ask_ends(question)


@on_brokers(2, minimum=1)
async def test_ends_that_cannot_be_are_no_answer(cluster: Cluster) -> None:
    liar, chance = await a_liar(cluster), Random(7)
    keys = [(stream.id, PartitionIndex(0)) for stream in cluster.image]
    told: list[Any] = []

    async def tell(_: object, body: memoryview) -> list[bytes]:
        return [msgspec.msgpack.encode(told)]

    liar.peers.serve(FrameKind.LOG_ENDS, tell)
    one_more = len(keys) + 1  # the last question only says what the one who asks can read
    for wrong in ([], [None] * len(keys), [(2**40, 1)] * one_more, [(0, -1)] * one_more, [(1, 2**64 - 1)] * one_more):
        told = list(wrong)
        assert await cluster[1]._log_ends.ask(keys, [BrokerId(2)]) == {key: {} for key in keys}
    told = [*(chance.choice([None, (1, 5), (1, 5, False)]) for _ in keys), None]
    answers = await cluster[1]._log_ends.ask(keys, [BrokerId(2)])
    assert [bool(answers[key]) for key in keys] == [one is not None for one in told[:-1]]
