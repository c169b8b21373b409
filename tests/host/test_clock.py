"""The machine's clocks: what goes on while it sleeps."""

import subprocess
import sys
import time

import pytest
from tests.support.waiting import WAIT_S

from logboom.host import SystemClock

DAY_S = 86_400
READ = "from logboom.host import SystemClock as C; c = C(); print(c.monotonic_s(), c.monotonic_ns() / 1e9)"


def test_time_that_the_machine_slept_counts() -> None:
    """In a time namespace the machine has slept for a day more: by CLOCK_BOOTTIME alone. A broker whose machine slept
    would otherwise hold a lease for which another one has been elected long since."""
    asleep = ("unshare", "--time", "--boottime", str(DAY_S), "--fork", sys.executable, "-c")
    try:
        subprocess.run((*asleep, ""), check=True, capture_output=True, timeout=WAIT_S)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("needs time namespaces, and the right to make one")
    before_s = SystemClock().monotonic_s()
    read = subprocess.run((*asleep, READ), check=True, capture_output=True, timeout=WAIT_S).stdout
    assert all(float(one) >= before_s + DAY_S for one in read.split())


def test_it_goes_on_at_the_rate_of_the_machine() -> None:
    clock = SystemClock()
    before_s, before_ns, began_s = clock.monotonic_s(), clock.monotonic_ns(), time.monotonic()
    while time.monotonic() - began_s < 0.001:
        assert clock.monotonic_s() >= before_s
    assert clock.monotonic_s() - before_s >= 0.0009
    assert clock.monotonic_ns() - before_ns >= 900_000
