"""Files of many logs: only so many are open, none is let go of that must not be, and nobody reads anything else."""

import os
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.logs import Reports

from logboom.base.ids import Epoch, Offset
from logboom.host import OsDisk
from logboom.records import Record, build_batch, read_header
from logboom.storage import LogConfig, OpenFiles, PartitionLog


class Thing:
    """An owner that has nothing open."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.used = self.unsynced = False
        self.is_open = False

    def drop_handle(self) -> None:
        self.is_open = False


_STEPS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["open", "close", "write", "sync"])), max_size=80)


@given(_STEPS, st.integers(1, 6))
@settings(max_examples=150)
def test_the_limit_holds_but_for_what_must_stay(steps: list[tuple[int, str]], limit: int) -> None:
    files, things = OpenFiles(limit), [Thing(n) for n in range(10)]
    for n, what in steps:
        thing = things[n]
        if what == "close":
            files.closed(thing)
            thing.is_open = thing.unsynced = False
            continue
        if not thing.is_open:
            thing.is_open = True
            files.opened(thing)
            stay = sum(one.unsynced or one is thing for one in things)
            assert len(files) <= max(limit, stay), "each that is opened makes up for what had to stay before"
        thing.used = True
        if what != "open":
            thing.unsynced = what == "write"
        there = [one for one in things if one.is_open]
        assert len(files) == len(there)
        assert thing.is_open
        assert all(one.is_open for one in things if one.unsynced)


def batch(value: bytes) -> bytearray:
    return build_batch([Record(Offset(0), 1_000, None, value, ())])


def append(log: PartitionLog, value: bytes) -> None:
    data = batch(value)
    log.append(data, ((0, read_header(data)),), leader_epoch=Epoch(0), now_ms=1_000)
    log.flush(sync=True)


def opened(root: Path) -> int:
    """Descriptors of this process below a directory."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith(str(root))
        except FileNotFoundError:
            continue
    return count


def test_two_hundred_logs_share_twenty_files(tmp_path: Path) -> None:
    disk, files, config = OsDisk(tmp_path), OpenFiles(20), LogConfig()
    logs = [
        PartitionLog.open(disk, f"log-{n}", config, now_ms=0, report=Reports(), open_files=files) for n in range(200)
    ]
    for turn in range(3):
        for n, log in enumerate(logs):
            append(log, f"{n}-{turn}".encode())
            assert len(files) <= 20
    assert opened(tmp_path) <= 20
    for n, log in enumerate(logs):
        assert log.durable_end == 3
        data = log.reader.read(Offset(0), 1 << 20, ceiling=Offset(3))
        assert data is not None
        assert all(f"{n}-{turn}".encode() in bytes(data) for turn in range(3))
    assert opened(tmp_path) <= 20
    for log in logs:
        log.close()
    assert (len(files), opened(tmp_path)) == (0, 0)


def test_a_read_that_must_not_wait_opens_no_file(tmp_path: Path) -> None:
    """Not even where a read before it ended, which is remembered: opening may wait for a disk that hangs."""
    log = PartitionLog.open(OsDisk(tmp_path), "log", LogConfig(), now_ms=0, report=Reports(), open_files=OpenFiles())
    for value in (b"a", b"b"):
        append(log, value)
    first = log.reader.read(Offset(0), 1, ceiling=Offset(2), cached_only=True)
    assert first is not None
    log.segments[-1].file.drop_handle()
    assert log.reader.read(Offset(1), 1, ceiling=Offset(2), cached_only=True) is None
    assert log.reader.read(Offset(1), 1, ceiling=Offset(2)) is not None
    assert log.reader.read(Offset(1), 1, ceiling=Offset(2), cached_only=True) is not None
