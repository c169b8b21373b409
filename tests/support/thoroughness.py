"""How much a run of the tests does of what has no natural end: a part in `make test`, everything in `make faults`."""

import os
import zlib
from collections.abc import Iterable

from hypothesis import settings

THOROUGH = os.environ.get("LOGBOOM_TEST_THOROUGH") == "1"
TURN = int(os.environ.get("LOGBOOM_TEST_TURN", "-1"))
"""Which cases of tests marked `in_turn` a run does; all of them where it is negative. `make test` works it out from the
commit, so that every commit has other cases, and the same commit the same."""
_EXAMPLES_MIN = 20


def part(count: int, turn: int, turns: int) -> range:
    """Which of `count` cases one of several alike tests plays: every one of `turns` in a quick run, so that together
    the tests with the turns 0 to `turns - 1` play each case once. All in a thorough run.

    >>> [list(part(7, turn, 3)) for turn in range(3)]
    [[0, 3, 6], [1, 4], [2, 5]]
    """
    return range(count) if THOROUGH else range(turn % turns, count, turns)


def in_turn(cases: Iterable[str], turns: int, turn: int) -> set[str]:
    """Which cases of one test have their turn: one of `turns`, others in the next turn, all of them in `turns` turns.

    >>> cases = ["test[a]", "test[b]", "test[c]"]
    >>> [sorted(in_turn(cases, 2, turn)) for turn in range(2)]
    [['test[a]', 'test[c]'], ['test[b]']]
    """
    ordered = sorted(cases)
    first = zlib.crc32(ordered[0].partition("[")[0].encode())  # else all tests of one case would have the same turn
    return {case for number, case in enumerate(ordered) if (number + first) % turns == turn % turns}


def fewer_examples(given: settings) -> settings:
    """The settings of a property for a quick run: a fifth of its examples, which are others in every run."""
    return settings(given, max_examples=min(given.max_examples, max(_EXAMPLES_MIN, given.max_examples // 5)))
