"""What a disk forgets: a sync is about what was written before it, kill -9 keeps what a power cut does not."""

import errno

import pytest

from logboom.base.ports import SyncFailedError
from logboom.sim.disk import Always, SimDisk

LOST = Always(survives=False)


def written(disk: SimDisk) -> bytes:
    return bytes(disk.nodes["a"].data) if "a" in disk.nodes else b"none"


def test_a_sync_makes_durable_what_was_written_when_it_began() -> None:
    disk = SimDisk()
    file = disk.open("a", create=True)
    disk.sync_dir(".")
    file.write(0, [b"first"])

    def while_it_syncs(operation: str, path: str) -> None:
        disk.fault = lambda operation, path: None
        file.write(5, [b"second"])

    disk.fault = while_it_syncs
    file.sync()
    assert written(disk) == b"firstsecond"
    assert written(disk.power_cut(LOST)) == b"first"
    file.sync()
    assert written(disk.power_cut(LOST)) == b"firstsecond"


def test_kill_keeps_what_was_written_and_a_power_cut_after_it_does_not() -> None:
    disk = SimDisk()
    disk.open("a", create=True).write(0, [b"unsynced"])
    disk = disk.after_kill()
    assert written(disk) == b"unsynced"
    assert written(disk.power_cut(LOST)) == b"none"
    disk.sync_dir(".")
    assert written(disk.power_cut(LOST)) == b""
    disk.open("a").sync()
    assert written(disk.power_cut(LOST)) == b"unsynced"


def test_what_a_failed_sync_was_about_stays_in_doubt_also_after_a_restart() -> None:
    disk = SimDisk()
    file = disk.open("a", create=True)
    disk.sync_dir(".")
    file.write(0, [b"doubtful"])

    def fails(operation: str, path: str) -> None:
        raise OSError(errno.EIO, "broken")

    disk.fault = fails
    with pytest.raises(SyncFailedError):
        file.sync()
    disk = disk.after_kill()
    disk.open("a").sync()
    assert written(disk.power_cut(LOST)) == b""
    assert written(disk.power_cut(Always(survives=True))) == b"doubtful"
