"""How long a process waits for the end of the one before it, when it asks to be registered."""

import asyncio
from typing import cast

import pytest
import structlog
from tests.support.clock import ManualClock

from logboom.base.dynamic import Current
from logboom.base.errors import BrokerRunsError, LogboomError
from logboom.base.ids import BrokerId
from logboom.broker.config import BrokerConfig
from logboom.broker.control import commands
from logboom.broker.control.channel import ControlChannel
from logboom.broker.control.incarnations import KnownProcesses
from logboom.broker.metadata_state import MetadataState
from logboom.broker.metrics import Counters
from logboom.broker.peers import NoPeers
from logboom.broker.registrar import Registrar

LEASE_S = 1.0
COMMAND = commands.RegisterBroker(id=1, directory_id="d", incarnation="new", listeners={}, levels=(1, 2))
REGISTERED = commands.Registered(epoch=7, cluster_id="c", members={})


class Controller:
    """Gives its answers in turn, the last one again and again; before each, so many seconds pass."""

    def __init__(self, clock: ManualClock, *answers: tuple[float, LogboomError | commands.Registered]) -> None:
        self._clock = clock
        self._answers = list(answers)

    async def submit(self, command: object, kind: object) -> commands.Registered:
        seconds, answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self._clock.now_s += seconds
        if isinstance(answer, LogboomError):
            raise answer
        return answer


def registrar(clock: ManualClock, controller: Controller) -> Registrar:
    return Registrar(
        KnownProcesses(BrokerId(1), ()),
        cast("ControlChannel", controller),
        NoPeers(),
        Current(BrokerConfig(lease_ms=int(LEASE_S * 1_000))),
        metadata=MetadataState(Counters(), lambda _: None),
        joins=False,
        clock=clock,
        log=structlog.get_logger(),
    )


def test_a_late_heartbeat_of_a_killed_process_refuses_nobody() -> None:
    """The question waits for a controller, which hears what the network still had of that process just before it."""
    clock = ManualClock()
    runs = BrokerRunsError("another process of broker 1 is alive")
    controller = Controller(clock, (10 * LEASE_S, runs), (LEASE_S, REGISTERED))
    assert asyncio.run(registrar(clock, controller).registered(COMMAND)) == REGISTERED


def test_a_process_that_lives_is_heard_until_the_other_one_gives_up() -> None:
    clock = ManualClock()
    began_s = clock.now_s
    runs = BrokerRunsError("another process of broker 1 is alive")
    with pytest.raises(BrokerRunsError):
        asyncio.run(registrar(clock, Controller(clock, (LEASE_S, runs))).registered(COMMAND))
    assert clock.now_s > began_s + 3 * LEASE_S
