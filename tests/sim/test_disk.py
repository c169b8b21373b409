"""What a disk forgets: a sync is about what was written before it, kill -9 keeps what a power cut does not."""

import errno
from collections.abc import Callable

import pytest

from logboom.base.ports import SyncFailedError
from logboom.sim.disk import Always, SimDisk, SimFile

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


def test_a_directory_whose_removal_was_not_synced_may_be_back_with_its_files() -> None:
    disk = SimDisk()
    disk.make_dir("d/e")
    disk.open("d/e/a", create=True)
    disk.sync_dir("d/e")
    disk.remove_tree("d")
    assert not disk.exists("d")
    assert disk.power_cut(LOST).list("d/e") == ["a"]


# --- syncs beside the event loop ------------------------------------------------------------------------------------


class Later:
    """Syncs that were begun and have not ended; a test ends them."""

    def __init__(self, disk: SimDisk) -> None:
        self.ends: list[Callable[[OSError | None], None]] = []
        self.outcomes: list[OSError | None] = []
        disk.complete_later = lambda path, ended: self.ends.append(ended)


def begun(disk: SimDisk) -> Later:
    """A disk with a file of which "first" is being synced beside the loop."""
    later = Later(disk)
    assert disk.start_async_syncs()
    file = disk.open("a", create=True)
    disk.sync_dir(".")
    assert file.write_nowait(0, [b"fi", b"rst"])
    assert file.begin_sync(later.outcomes.append)
    return later


def test_a_sync_beside_the_loop_is_durable_when_it_ends_and_not_before() -> None:
    disk = SimDisk()
    later = begun(disk)
    disk.open("a").write(5, [b"second"])
    assert (written(disk.power_cut(LOST)), later.outcomes) == (b"", [])
    later.ends.pop()(None)
    assert (written(disk.power_cut(LOST)), later.outcomes) == (b"first", [None])


def test_a_sync_beside_the_loop_that_fails_leaves_its_writes_in_doubt() -> None:
    disk = SimDisk()
    later = begun(disk)
    later.ends.pop()(OSError(errno.EIO, "broken"))
    assert isinstance(later.outcomes[0], SyncFailedError)
    disk.open("a").sync()
    assert written(disk.power_cut(LOST)) == b""
    assert written(disk.power_cut(Always(survives=True))) == b"first"


def test_what_would_wait_is_refused_and_may_be_written_in_part() -> None:
    disk = SimDisk()
    begun(disk)

    def would_wait(operation: str, path: str) -> None:
        raise BlockingIOError(errno.EAGAIN, "would wait")

    disk.fault = would_wait
    file = SimFile(disk, "a", disk.nodes["a"])
    assert not file.write_nowait(0, [bytes(2_000)])
    assert len(disk.nodes["a"].data) == 512
    assert not file.begin_sync(lambda error: None)
    assert file.read_cached(0, 5) is None


def test_no_sync_is_begun_or_ends_beside_a_loop_that_has_stopped_them() -> None:
    disk = SimDisk()
    assert not disk.start_async_syncs()
    later = begun(disk)
    disk.stop_async_syncs()
    later.ends.pop()(None)
    assert later.outcomes == []
    assert written(disk.power_cut(LOST)) == b""
    assert not disk.open("a").begin_sync(later.outcomes.append)
