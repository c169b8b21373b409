"""How much a run of the tests does of what has no natural end: a part in `make test`, everything in `make faults`."""

import os

from hypothesis import settings

THOROUGH = os.environ.get("LOGBOOM_TEST_THOROUGH") == "1"
_EXAMPLES_MIN = 20


def part(count: int, turn: int, turns: int) -> range:
    """Which of `count` cases one of several alike tests plays: every one of `turns` in a quick run, so that together
    the tests with the turns 0 to `turns - 1` play each case once. All in a thorough run.

    >>> [list(part(7, turn, 3)) for turn in range(3)]
    [[0, 3, 6], [1, 4], [2, 5]]
    """
    return range(count) if THOROUGH else range(turn % turns, count, turns)


def fewer_examples(given: settings) -> settings:
    """The settings of a property for a quick run: two fifths of its examples, which are others in every run."""
    return settings(given, max_examples=min(given.max_examples, max(_EXAMPLES_MIN, given.max_examples * 2 // 5)))
