"""Full collections visit what is new, and what they have left once it has doubled; then its garbage goes."""

import subprocess
import sys

from tests.support.waiting import WAIT_S

PROGRAM = """
import gc
from logboom.app import garbage
garbage._WHOLE_MIN, garbage._FIRST_LOOK = 1_000, 1
garbage.keep_collections_short()

class Thing:
    def __init__(self):
        self.itself = self

gc.collect()
first = gc.get_freeze_count()
assert first > 1_000, "all that there is"
things = [Thing() for _ in range(100)]
gc.collect()
assert gc.get_freeze_count() >= first + 100
assert not any(isinstance(one, Thing) for generation in range(3) for one in gc.get_objects(generation))
del things[50:]
gc.collect()
assert gc.get_freeze_count() >= first + 100, "set aside, garbage or not"
many = [Thing() for _ in range(2 * first)]
gc.collect()
assert gc.get_freeze_count() >= 3 * first, "not counted yet"
gc.collect()
assert gc.get_freeze_count() == 0, "doubled, so the next one visits everything"
gc.collect()
assert sum(isinstance(one, Thing) for one in many) == 2 * first
before = gc.get_freeze_count()
gc.unfreeze()
assert sum(isinstance(one, Thing) for one in gc.get_objects()) == 50 + 2 * first
print("kept", before)
"""


def test_what_has_survived_is_set_aside_until_it_has_doubled() -> None:
    # A process of its own: the interpreter has one garbage collector.
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("kept")


MANY = """
import gc
from logboom.app import garbage
garbage._WHOLE_MIN, garbage._FIRST_LOOK, garbage._WHOLE_MAX = 1_000, 1, 1_000
garbage.keep_collections_short()
gc.collect()
first = gc.get_freeze_count()
few = [[[]] for _ in range(2 * first)]
gc.collect()
gc.collect()
assert gc.get_freeze_count() >= 4 * first, "more than doubled, and too many to be visited for that"
more = [[[]] for _ in range(3 * first)]
gc.collect()
gc.collect()
assert gc.get_freeze_count() == 0, "eight times as many"
"""


def test_very_many_are_visited_again_only_once_there_are_eight_times_as_many() -> None:
    ended = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == 0, ended.stderr


START = """
import asyncio
import gc
from logboom.app import garbage
garbage._START_MAX_S = 0.0

class Thing:
    pass

def seen(thing):
    return any(one is thing for generation in range(3) for one in gc.get_objects(generation))

async def start():
    with garbage.no_collections_at_start():
        assert not gc.isenabled()
        made = Thing()
        made.itself = made
        await asyncio.sleep(0.01)
        assert gc.isenabled(), "it waits for something"
        gc.disable()
        assert seen(made)
    assert gc.isenabled() and not seen(made), "set aside"
    try:
        with garbage.no_collections_at_start():
            raise OSError("a start that fails")
    except OSError:
        assert gc.isenabled()

asyncio.run(start())
"""


def test_a_start_has_no_collections_until_it_waits_and_sets_aside_what_it_made() -> None:
    ended = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == 0, ended.stderr
