"""What waits to be stored is bounded: the connection is held for a moment, then messages are refused until there is
room."""

import asyncio
import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.nats.servers import on_a_loop
from tests.support.waiting import WAIT_S

from logboom.base.ids import Epoch, Offset
from logboom.base.units import MIB
from logboom.broker.partition.publications import AppendInDoubtError, PublishDone, Published
from logboom.nats.ingress import budget as budget_module
from logboom.nats.ingress.budget import Budget
from logboom.nats.ingress.holding import HeldMessages, HoldingState
from logboom.nats.ingress.intake import Intake
from logboom.nats.link.frames import Delivery
from logboom.nats.metrics import NatsMetrics
from logboom.nats.wire.messages import Reader


class Reading:
    """A connection, as far as it is read or not."""

    def __init__(self) -> None:
        self._held = False
        self.changed = asyncio.Event()

    def held(self) -> bool:
        return self._held

    def hold(self, why: str) -> None:
        self._held = True

    def release(self, why: str) -> None:
        self._held = False
        self.changed.set()


@on_a_loop
async def test_a_burst_only_holds_the_connection() -> None:
    reading = Reading()
    budget = Budget(1_000, lambda: False, reading.hold, reading.release, NatsMetrics())
    budget.took(999)
    assert not reading.held()
    budget.took(1)
    assert reading.held()
    assert budget.allows()  # what was read before
    budget.gave(400)
    assert reading.held()
    budget.gave(100)
    assert not reading.held()


@pytest.mark.uncompiled
@on_a_loop
async def test_what_lasts_is_refused_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_module, "HOLD_MAX_S", 0.01)
    reading = Reading()
    metrics = NatsMetrics()
    budget = Budget(1_000, lambda: False, reading.hold, reading.release, metrics)
    budget.took(1_000)
    await asyncio.wait_for(reading.changed.wait(), WAIT_S)
    assert not reading.held()
    assert not budget.allows()
    budget.gave(1)
    assert budget.allows()
    assert metrics.inflight_bytes == 999


@pytest.mark.uncompiled
@on_a_loop
async def test_a_disk_that_does_not_keep_up_counts_as_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_module, "HOLD_MAX_S", 0.01)
    reading = Reading()
    behind = True
    budget = Budget(1_000, lambda: behind, reading.hold, reading.release, NatsMetrics())
    budget.took(1)
    assert reading.held()
    await asyncio.wait_for(reading.changed.wait(), WAIT_S)
    assert not budget.allows()
    behind = False
    assert budget.allows()


@on_a_loop
async def test_what_is_in_doubt_takes_memory_until_it_is_known() -> None:
    """Leaderships that come and go keep messages that are neither stored nor lost."""
    metrics, reading, waiting = NatsMetrics(), Reading(), list[PublishDone]()
    budget = Budget(MIB, lambda: False, reading.hold, reading.release, metrics)

    def publish(*_: Any, done: PublishDone, **__: Any) -> None:
        waiting.append(done)

    services = SimpleNamespace(
        metrics=metrics,
        budget=budget,
        replicas=SimpleNamespace(find=lambda *_: None),
        publishing=SimpleNamespace(publish=publish),
    )
    holding = HeldMessages(0)
    holding.publish(3)
    intake = Intake("orders", Reader("orders", key="none", ack="commit"), {0: holding}, cast("Any", services))
    for resolved in (True, False):
        intake.receive(0, True, [Delivery(1, b"orders.a", b"", b"", bytes(1_000))])
        holding.state = HoldingState.HANDING_OVER
        waiting.pop()(Published([AppendInDoubtError(Offset(7), Epoch(3))], frozenset()))
        assert metrics.inflight_bytes > 1_000
        if resolved:
            intake.resolve(holding, [(3, 0)])
        else:
            assert len(intake.take_doubts(holding)) == 1
        assert metrics.inflight_bytes == 0
        holding.state = HoldingState.PUBLISHING


def test_long_subjects_are_not_remembered() -> None:
    """nats-server takes subjects of 4 KiB: a publisher who uses others all the time took 60 MB for each stream that has
    them."""
    reader = Reader("orders", key="subject", ack="commit")
    tracemalloc.start()
    try:
        for number in range(3_000):
            reader.read(b"orders.%04d.%b" % (number, b"x" * 3_900), b"", b"", b"")
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < MIB
