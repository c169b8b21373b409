"""Processes that may use a part of a core only."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from tests.support.skipping import skipped_on

from logboom.bench.report import cpu_seconds
from logboom.bench.servers import UnavailableError, cpu_quotas

_SHARE = 0.2
_CPU_S = 0.3


@pytest.fixture
def busy() -> Iterator[int]:
    """Process id of one that uses all the time it gets."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process.pid
    process.kill()
    process.wait(30)


def test_a_process_gets_its_share_and_no_more(busy: int) -> None:
    with skipped_on(UnavailableError), cpu_quotas([busy], _SHARE):
        before, began = cpu_seconds(busy), time.perf_counter()
        while (used := cpu_seconds(busy) - before) < _CPU_S:
            assert time.perf_counter() - began < 60
        elapsed = time.perf_counter() - began
    # A machine with other work makes it take longer, never shorter.
    assert used / elapsed < 2 * _SHARE


def test_processes_that_are_not_there_are_no_limit_and_leave_nothing() -> None:
    with pytest.raises(UnavailableError, match="cannot be limited"), cpu_quotas([2**22 + 1], _SHARE):
        pytest.fail("there is no such process")
