"""Full collections visit what is new, and what they have left once it has doubled; then its garbage goes."""

import subprocess
import sys

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
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("kept")
