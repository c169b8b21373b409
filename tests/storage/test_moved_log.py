"""The directory of a deleted log is renamed while the log is read, and another log takes the old name."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.logs import DIRECTORY, SMALL, append, batch, open_log, read_batches
from tests.support.waiting import WAIT_S

from logboom.base.ids import Offset
from logboom.sim.disk import SimDisk
from logboom.storage import PartitionLog

ASIDE = "streams/deleted"
HELD_UP_S = 0.2
CONFIG = replace(SMALL, segment_bytes=1 << 20)


def write(disk: SimDisk, timestamp_ms: int) -> PartitionLog:
    """A log of 50 batches in its first segment, the same as any other of these but for their times."""
    log = open_log(disk, CONFIG)
    for _ in range(50):
        append(log, batch(1, 100, timestamp_ms=timestamp_ms))
    log.flush(sync=True)
    log.roll()
    log.flush(sync=True)
    return log


def contents(disk: SimDisk, directory: str) -> dict[str, bytes]:
    return {name: bytes(node.data) for name, node in disk.nodes.items() if name.startswith(directory + "/")}


def before_opening(disk: SimDisk, suffix: str, nth: int, action: Callable[[], None]) -> None:
    """Run `action` once, after the reader took the path of a file and before the file is opened for the `nth` time."""
    left = [nth]

    def interrupt(operation: str, path: str) -> None:
        if operation == "open" and path.startswith(DIRECTORY) and path.endswith(suffix):
            left[0] -= 1
            if left[0] == 0:
                action()

    disk.fault = interrupt


@pytest.mark.parametrize(("suffix", "nth"), [(".log", 1), (".index", 1), (".index", 2)])
def test_a_late_read_touches_only_its_own_log(suffix: str, nth: int) -> None:
    disk = SimDisk()
    log = write(disk, 1000)
    (own, *_) = read_batches(log, 30)
    log.close()
    for name in [name for name in disk.nodes if name.endswith(".index")]:
        disk.unlink(name)  # the first search makes the index again, and saves it
    deleted = open_log(disk, CONFIG)
    deleted.abandon()
    taken: list[dict[str, bytes]] = []

    def replaced() -> None:
        deleted.move_to(ASIDE)
        write(disk, 2000).close()
        for name in [name for name in disk.nodes if name.startswith(DIRECTORY) and name.endswith(".index")]:
            disk.nodes[name].write(0, b"another's")
        taken.append(contents(disk, DIRECTORY))

    before_opening(disk, suffix, nth, replaced)
    batches = deleted.reader.read(Offset(30), 1, ceiling=Offset(50))
    disk.fault = lambda operation, path: None
    assert taken, "the name was taken over between the path and the open"
    assert batches is not None
    assert bytes(batches) == own
    assert contents(disk, DIRECTORY) == taken[0], "nothing was written to the new log"


def test_old_segments_are_not_removed_from_the_log_that_took_the_name() -> None:
    """Retention and DeleteRecords remove files beside everything else, and a deletion does not wait for them."""
    disk = SimDisk()
    deleted = write(disk, 1000)
    old_segments = deleted.detach_before(Offset(50))
    assert len(old_segments.segments) == 1
    deleted.abandon()
    deleted.move_to(ASIDE)
    successor = write(disk, 2000)
    before = contents(disk, DIRECTORY)
    old_segments.remove()
    assert contents(disk, DIRECTORY) == before
    assert len(read_batches(successor, 0)) == 50
    assert not [name for name in contents(disk, ASIDE) if "00000000000000000000" in name], "its own went"


def test_a_removal_under_way_ends_before_the_name_is_free() -> None:
    disk = SimDisk()
    deleted = write(disk, 1000)
    old_segments = deleted.detach_before(Offset(50))
    deleted.abandon()
    taken: list[dict[str, bytes]] = []

    def take_over() -> None:
        deleted.move_to(ASIDE)
        write(disk, 2000)
        taken.append(contents(disk, DIRECTORY))

    mover = threading.Thread(target=take_over, daemon=True)

    def at_unlink(operation: str, path: str) -> None:
        if operation == "unlink" and not mover.ident:
            mover.start()
            mover.join(HELD_UP_S)  # it has the time to rename the directory, if nothing keeps it from that

    disk.fault = at_unlink
    old_segments.remove()
    mover.join(WAIT_S)
    assert not mover.is_alive()
    assert contents(disk, DIRECTORY) == taken[0]
