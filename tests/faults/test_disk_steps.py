"""Short lives of a log, each with every fault at every single operation of its disk, and all that may survive it.

Exhaustive: a history of n operations is played n times for each kind of fault. A failure names the history, the fault
and the survivor; `play` plays one of them alone.
"""

import errno
from random import Random

import pytest
from tests.support.disk_lives import Fault, Step, hold, operations_of, play_with_fault
from tests.support.thoroughness import part

from logboom.storage import LogConfig

FLAT = LogConfig(segment_bytes=900, index_interval_bytes=1, recovery_point_bytes=300, preallocate_bytes=0)
ROOMY = LogConfig(segment_bytes=2_000, index_interval_bytes=200, recovery_point_bytes=500, preallocate_bytes=3_000)

OPEN: Step = ("open",)
ONE: Step = ("append", 1, 60)
TWO: Step = ("append", 2, 150)
BIG: Step = ("append", 1, 600, False)
SYNC: Step = ("flush",)
WRITE: Step = ("flush", False)
CLOSE: Step = ("close",)

# What the sweep found in November 2026, each in the history named. Truncated: a snapshot of producers that had been
# removed came back with the power failure, beside other batches, and so did the old bytes of a temporary file whose
# rename had failed. Truncated to nothing: a log was for a moment without any segment, and its records were called
# missing; a cut that failed half-way left called durable what was gone. Truncated far: segments went in another order
# than they were removed, and a newer one was taken for durable. Segments end unsynced: a log that had never synced a
# byte began behind offsets that nobody wrote.
HISTORIES: dict[str, tuple[LogConfig, list[Step]]] = {
    "one append": (FLAT, [OPEN, ONE, SYNC, CLOSE]),
    "room ahead": (ROOMY, [OPEN, ONE, SYNC, ONE, ONE, SYNC, TWO, WRITE, ONE, SYNC]),
    "unsynced writes": (FLAT, [OPEN, ONE, WRITE, TWO, WRITE, SYNC, ONE, WRITE]),
    "segments end": (FLAT, [OPEN, BIG, SYNC, BIG, SYNC, ONE, SYNC]),
    "segments end within one flush": (FLAT, [OPEN, BIG, BIG, ONE, BIG, SYNC, ONE, SYNC]),
    "segments end unsynced": (ROOMY, [OPEN, BIG, BIG, BIG, WRITE, BIG, WRITE, SYNC]),
    "hints": (FLAT, [OPEN, TWO, SYNC, TWO, SYNC, TWO, SYNC, TWO, SYNC]),
    "closed and opened": (FLAT, [OPEN, ONE, SYNC, CLOSE, OPEN, ONE, SYNC, CLOSE]),
    "killed and opened": (ROOMY, [OPEN, ONE, SYNC, TWO, WRITE, OPEN, ONE, SYNC, OPEN]),
    "leaderships": (FLAT, [OPEN, ONE, ("lead",), ONE, SYNC, ("lead",), ("lead",), ONE, WRITE, SYNC]),
    "deleted": (FLAT, [OPEN, BIG, BIG, BIG, SYNC, ("delete", 0.7), ONE, SYNC, ("delete", 1.0), OPEN]),
    "let go of to the end": (FLAT, [OPEN, BIG, BIG, SYNC, ("roll",), SYNC, ("delete", 1.0), CLOSE, OPEN, ONE, SYNC]),
    "truncated": (FLAT, [OPEN, ONE, BIG, BIG, SYNC, ("truncate", 0.4), TWO, SYNC]),
    "truncated to nothing": (ROOMY, [OPEN, BIG, BIG, SYNC, ("truncate", 0.0), TWO, SYNC, CLOSE]),
    "truncated far": (FLAT, [OPEN, BIG, BIG, BIG, BIG, BIG, SYNC, ("truncate", 0.3)]),
    "truncated unsynced": (FLAT, [OPEN, ONE, SYNC, ONE, TWO, ONE, WRITE, ("truncate", 0.5), ONE, SYNC]),
    "checkpoint": (FLAT, [OPEN, ONE, SYNC, ("checkpoint",), ONE, WRITE, ("checkpoint",), ONE, SYNC]),
}

FAULTS: dict[str, tuple[int | None, bool]] = {
    "crash": (None, False),
    "EIO": (errno.EIO, False),
    "EIO for good": (errno.EIO, True),
    "full once": (errno.ENOSPC, False),
    "full": (errno.ENOSPC, True),
    "no handle once": (errno.EMFILE, False),
    "no handles": (errno.EMFILE, True),
}
BRIEF = ("crash", "EIO", "full once", "no handle once")


def play(history: str, kind: str, at: int) -> int:
    """Play one case; how many survivors were checked."""
    config, steps = HISTORIES[history]
    code, lasting = FAULTS[kind]
    fault = Fault(at, code, lasting)
    life = play_with_fault(config, steps, fault)
    if life is None:
        return 0
    case = f"play({history!r}, {kind!r}, {at})"
    return hold(life, Random(at), lambda survivor: f"{case}, {fault.happened}, {survivor}")


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("history", HISTORIES)
def test_every_fault_at_every_operation(history: str) -> None:
    """A quick run has one or two of the faults at each operation."""
    config, steps = HISTORIES[history]
    count = operations_of(config, steps)
    for turn, kind in enumerate(BRIEF):
        assert sum(play(history, kind, at) for at in part(count, turn, 3)), kind


@pytest.mark.slow
@pytest.mark.parametrize("history", HISTORIES)
def test_every_lasting_fault_from_every_operation_on(history: str) -> None:
    config, steps = HISTORIES[history]
    count = operations_of(config, steps)
    for kind in FAULTS.keys() - BRIEF:
        assert sum(play(history, kind, at) for at in range(count)), kind
