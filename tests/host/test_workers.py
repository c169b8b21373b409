"""Threads of the operating system: what they tell of themselves."""

import sys
import time

import pytest

from logboom.host.workers import SystemWorkers


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a thread's waits")
def test_a_thread_that_slept_has_waited() -> None:
    workers = SystemWorkers()
    before = workers.waits()
    time.sleep(0.001)
    assert workers.waits() > before


def test_where_the_system_does_not_tell_every_call_may_have_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "elsewhere")
    workers = SystemWorkers()
    assert workers.waits() != workers.waits()
