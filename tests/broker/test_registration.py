"""The heartbeats of a broker, in simulated time: when they are sent, and what answers mean that take long, or come in
another order than the heartbeats were sent in."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import update_wrapper
from itertools import pairwise
from typing import cast

import pytest
import structlog
from tests.support import simulated

from logboom.base.dynamic import Current
from logboom.base.errors import LogboomError, StaleBrokerEpochError
from logboom.base.ids import BrokerEpoch, BrokerId, DirectoryId
from logboom.broker.config import BrokerConfig
from logboom.broker.control import commands
from logboom.broker.control.channel import ControlChannel
from logboom.broker.control.commands import Heartbeat, Lease
from logboom.broker.control.registration import BrokerHooks, Registration
from logboom.broker.disk.data_dir import Identity
from logboom.broker.peers import PeerUnavailableError

INTERVAL_S = 0.25
LEASE_S = 1.0


def lease(*, fenced: bool = False, applied: int = 0, may_stop: bool = False) -> Lease:
    return Lease(fenced=fenced, applied=applied, may_stop=may_stop)


class Controller:
    """Asked by one broker. The test answers, unless all answers take as long."""

    def __init__(
        self, takes_s: float | None = None, *, interval_s: float = INTERVAL_S, lease_s: float = LEASE_S
    ) -> None:
        self.takes_s = takes_s
        self.heartbeats: list[Heartbeat] = []
        self.leases: list[bool] = []
        """Whether the broker has a lease, each time that this has changed."""
        self.expelled: list[LogboomError] = []
        self.disk_hangs = False
        self._answers: list[asyncio.Future[Lease]] = []
        runtime, _ = simulated.machine()
        self.broker = Registration(
            Identity("c", BrokerId(1), DirectoryId("d")),
            Current(BrokerConfig(lease_ms=round(lease_s * 1_000), heartbeat_ms=round(interval_s * 1_000))),
            cast("ControlChannel", self),
            runtime=runtime,
            log=structlog.wrap_logger(structlog.testing.CapturingLogger()),
            is_sole_voter=lambda: False,
            applied=lambda: 7,
            ask_another=self._passed_on,
            hooks=BrokerHooks(self.leases.append, self.expelled.append, lambda: self.disk_hangs),
        )
        self.broker.registered(commands.Registered(epoch=BrokerEpoch(1), cluster_id="c", members={}))

    async def ask_once(self, command: Heartbeat, kind: type[Lease], *, timeout_s: float) -> Lease:
        """As the links of peers do it: an answer that comes at the very moment at which it would be given up counts."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Lease] = loop.create_future()
        self.heartbeats.append(command)
        self._answers.append(answer)
        if self.takes_s is not None:
            loop.call_later(self.takes_s, answer.set_result, lease())

        def give_up() -> None:
            if not answer.done():
                answer.set_exception(PeerUnavailableError("no answer in time"))

        deadline = loop.call_later(timeout_s, give_up)
        try:
            return await answer
        finally:
            deadline.cancel()

    async def _passed_on(self, command: commands.AnyCommand) -> None:
        raise AssertionError("the controller can be reached")

    async def sent(self, count: int) -> None:
        """Return once so many heartbeats have been sent."""
        async with asyncio.timeout(60):
            while len(self.heartbeats) < count:
                await asyncio.sleep(INTERVAL_S / 10)

    async def answer(self, *answers: tuple[int, Lease | LogboomError]) -> None:
        """Answer heartbeats at once, each by its number, which begins with 1; return when the broker has taken it."""
        for number, answer in answers:
            self.arrives(number, answer)
        await asyncio.sleep(INTERVAL_S / 100)

    def arrives(self, number: int, answer: Lease | LogboomError) -> None:
        """An answer is there; the broker takes it when it runs next."""
        future = self._answers[number - 1]
        if isinstance(answer, LogboomError):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def in_simulated_time(body: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        simulated.run(body)

    update_wrapper(test, body)
    del test.__dict__["__wrapped__"]
    return test


@asynccontextmanager
async def beating(controller: Controller) -> AsyncIterator[Registration]:
    controller.broker.start()
    try:
        yield controller.broker
    finally:
        await controller.broker.stop()


@in_simulated_time
async def test_a_lease_holds_while_answers_take_most_of_it() -> None:
    """A heartbeat that waits for the answer to the one before it comes too late; found by seed 310029 of the
    simulation, whose links were slow."""
    controller = Controller(takes_s=0.7)
    async with beating(controller):
        await asyncio.sleep(30)
    assert controller.leases == [True]
    assert 120 <= len(controller.heartbeats) <= 121


@in_simulated_time
async def test_a_lease_lasts_from_when_its_heartbeat_was_sent_in_whatever_order_answers_come() -> None:
    controller = Controller()
    async with beating(controller) as broker:
        now_s = asyncio.get_running_loop().time
        ends_s = now_s() + 2 * INTERVAL_S + LEASE_S  # for the third one, which is sent after two intervals
        await controller.sent(3)
        await controller.answer((3, lease()))
        await controller.answer((1, lease()))
        await controller.answer((2, lease()))
        await asyncio.sleep(ends_s - now_s() - 0.001)
        held = [broker.holds_lease]
        await asyncio.sleep(0.001)
        held.append(broker.holds_lease)
    assert held == [True, False]
    assert controller.leases == [True, False]


@in_simulated_time
async def test_an_answer_that_comes_too_late_gives_no_lease() -> None:
    controller = Controller(takes_s=LEASE_S)
    async with beating(controller) as broker:
        await asyncio.sleep(10)
        assert not broker.holds_lease
    assert controller.leases == []


@in_simulated_time
async def test_no_more_than_so_many_heartbeats_are_under_way() -> None:
    controller = Controller(interval_s=0.01, lease_s=60)
    async with beating(controller):
        await asyncio.sleep(2)
        assert len(controller.heartbeats) == 8
        await controller.answer((5, lease()))
        await controller.sent(9)
        await asyncio.sleep(2)
        assert len(controller.heartbeats) == 9


@in_simulated_time
async def test_what_the_controller_says_of_an_older_heartbeat_does_not_count() -> None:
    controller = Controller()
    async with beating(controller) as broker:
        ready = asyncio.ensure_future(broker.ready())
        await controller.sent(4)
        await controller.answer((3, lease(fenced=True, applied=9)))
        await controller.answer((2, lease(applied=8)))
        assert (broker.fenced, broker.to_apply, ready.done()) == (True, 9, False)
        await controller.answer((4, lease(applied=9)))
        await ready
        await controller.answer((1, lease(fenced=True)))
        assert (broker.fenced, broker.to_apply, broker.is_current) == (False, 9, False)


@in_simulated_time
async def test_a_disk_that_hangs_is_over_once_a_heartbeat_is_answered_that_was_sent_since() -> None:
    """The controller may still have the one that said it: others may lead because of it."""
    controller = Controller()
    async with beating(controller) as broker:
        await controller.sent(1)
        controller.disk_hangs = True
        await controller.sent(2)
        controller.disk_hangs = False
        await controller.sent(3)
        assert [one.stalled for one in controller.heartbeats] == [False, True, False]
        await controller.answer((1, lease()))
        current = [broker.is_current]
        await controller.answer((3, lease()))
        current.append(broker.is_current)
        await controller.answer((2, lease()))
        current.append(broker.is_current)
    assert current == [False, True, True]


@in_simulated_time
async def test_who_leaves_says_so_at_once_and_stops_by_the_answer_to_that() -> None:
    controller = Controller()
    async with beating(controller) as broker:
        await controller.sent(2)
        leaves = asyncio.ensure_future(broker.leave(30))
        await asyncio.sleep(INTERVAL_S / 100)
        assert [one.stopping for one in controller.heartbeats] == [False, False, True]
        await controller.answer((3, lease(may_stop=True)))
        await controller.answer((2, lease()))
        assert await leaves


@pytest.mark.parametrize("also", [StaleBrokerEpochError("another process"), lease()])
def test_a_process_that_is_known_no_more_is_told_once_and_sends_nothing_more(also: Lease | LogboomError) -> None:
    async def body() -> None:
        controller = Controller()
        async with beating(controller):
            await controller.sent(3)
            await controller.answer((2, StaleBrokerEpochError("another process")), (3, also))
            await asyncio.sleep(10)
        assert len(controller.expelled) == 1
        assert len(controller.heartbeats) == 3
        assert controller.leases == []

    simulated.run(body)


@in_simulated_time
async def test_who_applies_no_metadata_any_more_gets_no_lease_by_an_answer_that_was_under_way() -> None:
    controller = Controller()
    async with beating(controller) as broker:
        await controller.sent(3)
        controller.arrives(2, lease())
        await broker.end()
        await asyncio.sleep(10)
        assert not broker.holds_lease
    assert len(controller.heartbeats) == 3


@in_simulated_time
async def test_without_any_answer_another_broker_passes_one_on_and_the_others_go_on() -> None:
    """Who was removed while it was cut off would else never learn it."""
    controller, passed_on = Controller(), []

    async def pass_on(command: commands.AnyCommand) -> None:
        passed_on.append(asyncio.get_running_loop().time())
        await asyncio.sleep(3)

    controller.broker._ask_another = pass_on
    async with beating(controller):
        await asyncio.sleep(12)
    assert [round(later - before, 1) for before, later in pairwise(passed_on)] == [5.2]
    assert len(controller.heartbeats) + len(passed_on) == 48
