"""The fewest faults that still break a promise: delta debugging of a schedule (Zeller and Hildebrandt, ddmin).

Whether a schedule fails is asked of a run under it, so a search costs many runs; the caller bounds it.
"""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from logboom.sim.schedule import Schedule

_NUMBERS: Final = re.compile(r"[0-9]+")


def kind_of(violations: Sequence[str]) -> str:
    """What a run broke, in such words that two runs which broke the same have the same; empty where nothing.

    >>> kind_of(["lost write in work-1: 7 was read at 3, where None is"])
    'lost write in work-#'
    """
    return _NUMBERS.sub("#", violations[0]).partition(":")[0] if violations else ""


def fewest(schedule: Schedule, fails: Callable[[Schedule], bool], may_go_on: Callable[[], bool]) -> Schedule:
    """A part of a schedule that fails, of which every fault is needed, or the smallest that was found in time.

    `fails` is asked for parts of `schedule`, which itself fails; `may_go_on` before each time.
    """
    if may_go_on() and fails(()):
        return ()
    pieces = 2
    while len(schedule) > 1:
        cuts = [len(schedule) * number // pieces for number in range(pieces + 1)]
        # Each piece alone, which is small, then all without it, which is likelier to fail. Of two they are the same.
        parts = [schedule[start:end] for start, end in pairwise(cuts)]
        rests = [schedule[:start] + schedule[end:] for start, end in pairwise(cuts)] if pieces > 2 else []
        for candidate in [*parts, *rests]:
            if not may_go_on():
                return schedule
            if fails(candidate):
                pieces = 2 if len(candidate) <= len(schedule) // 2 else max(pieces - 1, 2)
                schedule = candidate
                break
        else:
            if pieces == len(schedule):
                break
            pieces = min(2 * pieces, len(schedule))
    return schedule
