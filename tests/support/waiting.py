"""How long tests wait for what must happen: one bound for all that runs in real time, and a loop that looks until then.

A bound ends a test that would hang; it says nothing of how fast something is. On two busy cores a process may get no
time for half a minute, so the bound is far above what anything here takes. A wait in simulated time needs none of this.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

WAIT_S: Final = 300
"""Seconds. Below what a whole test may take (`timeout` in pyproject.toml), so that the wait says what is missing."""
T = TypeVar("T")


def until(look: Callable[[], T], what: str = "", *, every_s: float = 0.02) -> T:
    """What `look` gives, once that is true; it is called again and again, more seldom where that is costly.

    AssertionError with `what` after `WAIT_S`.
    """
    deadline = time.monotonic() + WAIT_S
    while not (given := look()):
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(every_s)
    return given
