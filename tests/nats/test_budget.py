"""What waits to be stored is bounded: the connection is held for a moment, then messages are refused until there is
room."""

import asyncio

import pytest
from tests.nats.servers import on_a_loop
from tests.support.waiting import WAIT_S

from logboom.nats.ingress import budget as budget_module
from logboom.nats.ingress.budget import Budget
from logboom.nats.metrics import NatsMetrics


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
