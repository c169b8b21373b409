"""From a server that leaves its cluster to another one: nothing is lost, and nothing comes twice."""

import asyncio
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from tests.nats.flow import Flow, check_each_once, check_order, connected
from tests.nats.links import linked, up
from tests.nats.servers import nats_cluster, needs_nats_server, on_a_loop
from tests.support.waiting import WAIT_S

from logboom.nats.link.changeover import Changeover
from logboom.nats.link.commands import publish
from logboom.nats.link.connection import Connection, ConnectionLostError
from logboom.nats.link.frames import Delivery
from logboom.nats.link.overlap import Overlap
from logboom.nats.metrics import NatsMetrics


def message(number: int) -> Delivery:
    return Delivery(1, b"a", b"", b"", b"%d" % number)


@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8), st.integers(0, 8), st.randoms())
def test_each_message_once(only_old: int, both_before: int, both: int, only_new: int, chance: object) -> None:
    """Whatever is heard first by which of the two."""
    first, second = only_old + both_before, only_old + both_before + both
    old = [message(number) for number in range(second)]
    new = [message(number) for number in range(only_old, second + only_new)]
    overlap, heard = Overlap(), list[Delivery]()
    while old or new:
        if heard and len(heard) == first and not new:
            overlap.mark()
        if new and (not old or chance.random() < 0.5):  # type: ignore[attr-defined]
            overlap.new([new.pop(0)])
        else:
            heard.append(old.pop(0))
            overlap.old([heard[-1]])
    assert [*heard, *overlap.left()] == [message(number) for number in range(second + only_new)]
    overlap.mark()
    overlap.forget_before_mark()
    assert Overlap().size_bytes == 0
    if not only_old and not only_new:
        assert overlap.size_bytes == 0


@given(*[st.integers(0, 5)] * 5, st.booleans())
def test_equal_messages_are_counted(
    only_old: int, both_before: int, both: int, both_later: int, only_new: int, ahead: bool
) -> None:
    """Those that the old connection alone has heard, from before the mark, are none of the new one's."""
    overlap, one = Overlap(), message(0)
    overlap.old([one] * (only_old + both_before))
    overlap.new([one] * both_before)
    overlap.mark()
    overlap.old([one] * both)
    overlap.new([one] * both)
    overlap.forget_before_mark()
    for step in (overlap.new, overlap.old) if ahead else (overlap.old, overlap.new):
        step([one] * both_later)
    overlap.new([one] * only_new)
    assert overlap.left() == [one] * only_new


@given(*[st.integers(0, 4)] * 4, st.randoms())
def test_equal_messages_are_counted_whichever_connection_is_ahead(
    only_old: int, both: int, both_later: int, only_new: int, chance: Random
) -> None:
    """Since the mark. As many were lost as the old connection alone had brought before it, where the new one was ahead
    for a moment."""
    overlap, one = Overlap(), message(0)
    overlap.old([one] * only_old)
    overlap.mark()
    arriving = [overlap.old, overlap.new] * (both + both_later)
    chance.shuffle(arriving)
    for arrives in arriving[: 2 * both]:
        arrives([one])
    overlap.forget_before_mark()
    for arrives in [*arriving[2 * both :], *[overlap.new] * only_new]:
        arrives([one])
    assert overlap.left() == [one] * only_new


@given(*[st.integers(0, 4)] * 3, st.randoms())
def test_equal_messages_of_others_are_not_taken_for_what_was_said_here(
    said: int, both: int, only_new: int, chance: Random
) -> None:
    """As many were lost as came in the second of a change, whatever was said here once."""
    overlap, one = Overlap(), message(0)
    for _ in range(said):
        overlap.say(publish(b"a", b"0"))
    overlap.mark()
    arriving = [overlap.old] * both + [overlap.new] * (said + both)
    chance.shuffle(arriving)
    for arrives in [*arriving, *[overlap.new] * only_new]:
        arrives([one])
    assert overlap.left() == [one] * only_new


class FakeConnection:
    """A connection whose server answers when the test says so."""

    def __init__(self) -> None:
        self.user: Any = None
        self.trips: list[asyncio.Future[None]] = []
        self.is_lost = False

    def tell(self, user: object) -> None:
        self.user = user

    def round_trip(self, at_once: object = None) -> "asyncio.Future[None]":
        trip: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.trips.append(trip)
        if self.is_lost:
            trip.set_exception(ConnectionLostError("lost"))
        return trip

    async def answers(self) -> None:
        """Answer a PING, once there is one."""
        async with asyncio.timeout(WAIT_S):
            while not self.trips:
                await asyncio.sleep(0.001)
        self.trips.pop(0).set_result(None)

    def lose(self) -> None:
        self.is_lost = True
        self.user.lost("closed by the server")
        for trip in self.trips:
            trip.set_exception(ConnectionLostError("closed by the server"))
        self.trips.clear()

    def subscribe(self, sid: int, subject: str, queue: str | None) -> None: ...
    def unsubscribe(self, sid: int) -> None: ...
    def send(self, data: bytes) -> None: ...
    def end(self, reason: str) -> None: ...


@pytest.mark.parametrize("is_new_lost_too", [False, True])
@on_a_loop
async def test_what_both_have_received_is_passed_on_once_where_the_old_connection_is_lost(
    is_new_lost_too: bool,
) -> None:
    """What a slow connection to the next server brought later was stored twice: as what it alone had received."""
    old, new, arrived, lost, over = FakeConnection(), FakeConnection(), list[Delivery](), list[str](), list[object]()
    user: Any = SimpleNamespace(
        delivered=arrived.extend, told=print, refused=print, paused=print, lost=lambda reason: lost.append("new")
    )
    one, other, third = (Delivery(1, b"orders", b"", b"", b"%d" % number) for number in range(3))
    changeover = Changeover(cast("Connection", old), user, lost=lambda reason: lost.append("old"), limit_bytes=1 << 20)
    new.tell(changeover.newcomer)
    changeover.begin(cast("Connection", new), {}, {1: ("orders", None)}, over.append)
    running = asyncio.ensure_future(changeover.run())
    await old.answers()
    for _ in range(2):  # it is subscribed; then both deliver what is published
        await new.answers()
        await asyncio.sleep(0)
    await old.answers()
    async with asyncio.timeout(WAIT_S):
        while not old.trips:  # of the time after the mark
            await asyncio.sleep(0.001)
    old.user.delivered([one, other])
    old.lose()
    new.user.delivered([one])
    if is_new_lost_too:
        new.lose()
        await running
        assert lost == ["old", "new"]
        assert arrived == [one, other]
        return
    new.trips.pop(0).set_result(None)  # of before
    async with asyncio.timeout(WAIT_S):
        while not new.trips:
            await asyncio.sleep(0.001)
    new.user.delivered([other, third])  # the answer comes behind what was sent before
    await new.answers()
    await running
    assert arrived == [one, other, third]
    assert over == [new]
    assert lost == ["old"]


async def heard_by(client: Client, arrived: list[Delivery]) -> None:
    """Return once what a client publishes arrives."""
    async with asyncio.timeout(WAIT_S):
        while not arrived:
            await client.publish("orders.probe", b"probe")
            await asyncio.sleep(0.02)


@needs_nats_server
@pytest.mark.parametrize("queue", [None, "workers"])
@on_a_loop
async def test_a_server_that_leaves_its_cluster(tmp_path: Path, queue: str | None) -> None:
    metrics, arrived = NatsMetrics(), list[Delivery]()
    with nats_cluster(tmp_path) as (first, second):
        async with linked(metrics, servers=[first.url]) as link, connected(second.url, first.url) as clients:
            link.subscribe("orders.*", queue, arrived.extend)
            await up(link)
            await heard_by(clients[0], arrived)
            flow = Flow(clients[:1], lambda number, count: f"orders.{number}")  # the others are of the leaving server
            await flow.after(40)
            first.leave()
            async with asyncio.timeout(WAIT_S):
                while not metrics.moves:
                    await asyncio.sleep(0.01)
            later = link.subscribe("late", None, arrived.extend)
            await flow.after(40)
            first.kill()
            await flow.after(40)
            await clients[0].publish("late", b"late")
            count = await flow.end()
            async with asyncio.timeout(WAIT_S):
                while sum(one.payload != b"probe" for one in arrived) < count + 1:
                    await asyncio.sleep(0.01)
            await link.unsubscribe([later])
    assert not metrics.disconnects
    assert metrics.connections == 2
    values = [one.payload for one in arrived if one.payload not in (b"probe", b"late")]
    check_each_once([values], flow.sent)
    if queue is None:  # of a queue those of the moment are in two places
        check_order(values)


@needs_nats_server
@pytest.mark.parametrize("queue", [None, "workers"])
@on_a_loop
async def test_what_it_says_itself_does_not_come_back(tmp_path: Path, queue: str | None) -> None:
    """A stream on every subject holds no acks of its own broker: one connection's are no news to it, but they are to
    another one of the same broker."""
    metrics, arrived = NatsMetrics(), list[Delivery]()
    with nats_cluster(tmp_path) as (first, second):
        async with linked(metrics, servers=[first.url]) as link, connected(second.url) as (publisher, *_):
            link.subscribe(">", queue, arrived.extend)
            link.subscribe("orders.*", None, arrived.extend)
            await up(link)
            await heard_by(publisher, arrived)
            first.leave()
            said = 0
            async with asyncio.timeout(WAIT_S):
                while not metrics.moves:
                    link.send(publish(b"_INBOX.%d" % said, b"%d" % said) + publish(b"_INBOX.b.%d" % said, b"and"))
                    said += 1
                    await asyncio.sleep(0.002)
            first.kill()
            await publisher.publish("last", b"last")
            async with asyncio.timeout(WAIT_S):
                while not any(one.payload == b"last" for one in arrived):
                    await asyncio.sleep(0.01)
    assert [one for one in arrived if one.subject.startswith(b"_INBOX.")] == []
