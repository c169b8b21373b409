"""The passes of key compaction in a process of its own: the same result, the same errors, and an end at any time."""

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.compaction import pairs_batch, pairs_of
from tests.support.logs import DIRECTORY, Reports, append, open_log
from tests.support.waiting import WAIT_S

from logboom.base.errors import CompactionCancelledError, RetriableStorageError, StorageError
from logboom.base.ids import Offset
from logboom.base.ports import File, Helper, SyncFailedError
from logboom.base.units import MIB
from logboom.broker.disk.remote_passes import PassProcess
from logboom.host import OsDisk, SystemWorkers
from logboom.host.helper import HelperProcess, session_niceness
from logboom.records import Codec
from logboom.storage import Cleaned, CompactionSettings, LogConfig, PartitionLog
from logboom.storage.compaction import Cleaning

CONFIG = LogConfig(segment_bytes=200_000, preallocate_bytes=0)


class Workers(SystemWorkers):
    """Real ones, which remember the process that was started last."""

    started: HelperProcess

    def helper(self, work: str) -> HelperProcess:
        self.started = super().helper(work)
        return self.started

    @property
    def pid(self) -> int:
        return self.started._process.pid


@contextmanager
def process_of(workers: SystemWorkers) -> Iterator[PassProcess]:
    """One that is used for any size."""
    process = PassProcess(workers, small_bytes=0)
    try:
        yield process
    finally:
        process.end()


def filled(directory: Path) -> PartitionLog:
    """A log of several segments with every kind of batch that a cleaning treats differently."""
    chance = random.Random(3)
    disk = OsDisk(directory)
    disk.make_dir(DIRECTORY)
    log = open_log(disk, CONFIG)
    for number in range(60):
        pairs = [
            (f"key {chance.randrange(900)}", None if chance.random() < 0.1 else f"{number} " * 30) for _ in range(50)
        ]
        codec = (Codec.NONE, Codec.LZ4, Codec.ZSTD)[number % 3]
        append(log, pairs_batch(pairs, codec=codec), leader_epoch=number // 20)
        if number % 6 == 5:
            log.roll()
    log.flush(sync=True)
    return log


def begin(log: PartitionLog, process: PassProcess) -> Cleaning:
    return log.compaction.begin(
        CompactionSettings(), now_ms=2000, stable_end=log.durable_end, start_passes=process.start_passes
    )


def run(cleaning: Cleaning, pace: Callable[[int], None] = lambda size_bytes: None) -> Cleaned:
    try:
        while (swap := cleaning.write_next(pace, lambda: False)) is not None:
            swap()
        return cleaning.finish()
    finally:
        cleaning.abandon()


def files_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((path / DIRECTORY).glob("*.log"))}


def in_directory(path: Path) -> list[str]:
    return sorted(name.name for name in (path / DIRECTORY).iterdir())


def test_what_it_writes_is_what_a_thread_writes(tmp_path: Path) -> None:
    """Every file byte for byte, and what is told of it; then once more over the log that was cleaned."""
    workers = Workers()
    logs = filled(tmp_path / "thread"), filled(tmp_path / "process")
    with process_of(workers) as process:
        for turn in range(2):
            told = run(logs[0].compaction.begin(CompactionSettings(), now_ms=2000, stable_end=logs[0].durable_end))
            assert run(begin(logs[1], process)) == told
            assert told.records_removed > 500
            pid = workers.pid
            assert files_of(tmp_path / "thread") == files_of(tmp_path / "process")
            assert in_directory(tmp_path / "thread") == in_directory(tmp_path / "process")
            assert pairs_of(logs[0]) == pairs_of(logs[1])
            for log in logs:
                for _ in range(20):
                    append(log, pairs_batch([(f"key {turn} {n}", "x" * 100) for n in range(40)] * 2), leader_epoch=3)
                log.roll()
                append(log, pairs_batch([("active", "1")]), leader_epoch=3)
                log.flush(sync=True)
        assert workers.pid == pid, "one process for all"
    assert not Path(f"/proc/{pid}").exists()


def test_a_small_log_is_left_to_the_thread(tmp_path: Path) -> None:
    log = filled(tmp_path)
    process = PassProcess(Workers())
    run(begin(log, process))
    assert not process.runs


def damage(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("at", [0.0, 0.5, 0.9])
def test_damage_is_reported_by_the_log(tmp_path: Path, at: float) -> None:
    with process_of(Workers()) as process:
        reports = Reports()
        filled(tmp_path).close()
        log = open_log(OsDisk(tmp_path), CONFIG, reports=reports)
        damage(tmp_path / log.segments[2].path, at)
        before = files_of(tmp_path)
        with pytest.raises(StorageError, match="is damaged at byte") as caught:
            run(begin(log, process))
        assert not isinstance(caught.value, RetriableStorageError)
        assert [told.path for told in reports.damage] == [log.segments[2].path]
        assert files_of(tmp_path) == before
        assert process.runs, "the process is as it was, and can be asked again"
        with pytest.raises(StorageError):
            run(begin(log, process))


def test_a_log_that_is_emptied_beside_it_is_not_damaged(tmp_path: Path) -> None:
    """A copy begins anew while the process reads a file that becomes shorter. Told as damage, it would begin anew
    again, and not be compacted any more."""
    reports = Reports()
    disk = OsDisk(tmp_path)
    disk.make_dir(DIRECTORY)
    log = open_log(disk, replace(CONFIG, segment_bytes=16 * MIB), reports=reports)
    for number in range(24):
        append(log, pairs_batch([(f"key {number}", "x" * (MIB // 2))]))
    log.roll()
    append(log, pairs_batch([("active", "1")]))
    log.flush(sync=True)
    steps = list[int]()

    def empty(size_bytes: int) -> None:
        steps.append(size_bytes)
        if len(steps) == 2:  # the last look at the log before the process goes on
            log.truncate(Offset(0), now_ms=2000, discard_all=True)

    with process_of(Workers()) as process:
        with pytest.raises(CompactionCancelledError):
            run(begin(log, process), empty)
        assert log.log_end_offset == 0
        assert not reports.damage
        assert not any(name.endswith(".cleaned") for name in in_directory(tmp_path))


def test_a_killed_process_postpones_the_cleaning_and_is_replaced(tmp_path: Path) -> None:
    log, workers = filled(tmp_path), Workers()
    before, killed = pairs_of(log), list[int]()

    def pace(size_bytes: int) -> None:
        if not killed:
            killed.append(workers.pid)
            workers.started._process.kill()

    with process_of(workers) as process:
        with pytest.raises(RetriableStorageError, match="process that compacts logs has ended"):
            run(begin(log, process), pace)
        assert pairs_of(log) == before
        assert not any(name.endswith(".cleaned") for name in in_directory(tmp_path))
        run(begin(log, process))
        assert workers.pid not in killed
        assert len(pairs_of(log)) < len(before) / 2


def test_a_cancelled_cleaning_ends_the_process_at_once(tmp_path: Path) -> None:
    log, workers = filled(tmp_path), Workers()
    before = pairs_of(log)
    with process_of(workers) as process:
        cleaning = begin(log, process)
        with pytest.raises(CompactionCancelledError):
            cleaning.write_next(lambda size_bytes: None, lambda: True)
        cleaning.abandon()
        assert not process.runs
        assert pairs_of(log) == before
        assert not any(name.endswith(".cleaned") for name in in_directory(tmp_path))


def test_the_process_leaves_the_cores_to_all_others(tmp_path: Path) -> None:
    """Nice, and of a session of its own: Linux may share the cores among sessions first (sched(7))."""
    log, workers = filled(tmp_path), Workers()
    seen = set[tuple[int, int]]()

    def pace(size_bytes: int) -> None:
        seen.add((os.getsid(workers.pid), os.getpriority(os.PRIO_PROCESS, workers.pid)))

    with process_of(workers) as process:
        run(begin(log, process), pace)
        assert seen == {(workers.pid, 19)}


@pytest.mark.parametrize(
    ("niceness", "ran_ms", "waited_ms", "wanted"),
    [
        (19, 100, 0, 19),
        (19, 100, 800, 19),
        (19, 100, 901, 0),
        (0, 100, 901, 0),
        (0, 100, 200, 0),
        (0, 100, 99, 5),
        (15, 100, 0, 19),
        (0, 0, 0, 0),
        (19, 0, 49, 19),
    ],
)
def test_its_session_is_less_nice_where_it_starves(niceness: int, ran_ms: int, waited_ms: int, wanted: int) -> None:
    """Where others keep all cores busy the nicest session gets a thousandth of them."""
    assert session_niceness(niceness, ran_ms * 1_000_000, waited_ms * 1_000_000) == wanted


STARVED_BEFORE_IT_SPEAKS = """
import sys, time
from logboom.host import helper

def work(side):
    for _ in range(600):
        if open(sys.argv[1]).read() == "0":
            side.send(b"less nice")
            return
        time.sleep(0.1)

helper._AUTOGROUP, helper._SCHEDSTAT, helper._named = sys.argv[1], sys.argv[2], lambda name: work
helper.main("work", int(sys.argv[3]))
"""


def test_it_is_less_nice_where_it_starves_before_it_has_said_anything(tmp_path: Path) -> None:
    """On a machine with a hundred busy sessions it had not imported its work after two minutes, was killed as one that
    does not answer, and so was each that was started after it: nothing was compacted."""
    niceness, scheduled = tmp_path / "autogroup", tmp_path / "schedstat"
    niceness.write_text("")
    scheduled.write_text("1000000 900000000 3")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = (sys.executable, "-c", STARVED_BEFORE_IT_SPEAKS, niceness, scheduled, str(theirs.fileno()))
        with subprocess.Popen(command, pass_fds=(theirs.fileno(),)) as started:
            theirs.close()
            ours.settimeout(WAIT_S)
            assert ours.recv(100).endswith(b"less nice")
            assert started.wait(WAIT_S) == 0


class RefusesWrites(Workers):
    """Its process gets files that it can only read."""

    def helper(self, work: str) -> HelperProcess:
        started = super().helper(work)
        send = started.send

        def send_read_only(message: bytes, file: File | None = None) -> None:
            path = None if file is None else os.readlink(f"/proc/self/fd/{file.descriptor()}")
            send(message, None if path is None else ReadOnly(path))

        started.send = send_read_only  # type: ignore[method-assign]
        return started


class ReadOnly:
    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        os.close(self._fd)

    def descriptor(self) -> int:
        return self._fd

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_an_error_of_the_disk_comes_back_as_one(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = pairs_of(log)
    with process_of(RefusesWrites()) as process:
        with pytest.raises(StorageError, match=r"Cleaning .* failed") as caught:
            run(begin(log, process))
        assert isinstance(caught.value.__cause__, OSError)
        assert not isinstance(caught.value.__cause__, SyncFailedError)
        assert pairs_of(log) == before


class CannotStart(SystemWorkers):
    def helper(self, work: str) -> HelperProcess:
        raise OSError(11, "Resource temporarily unavailable")


def test_no_process_to_be_had_postpones_the_cleaning(tmp_path: Path) -> None:
    log = filled(tmp_path)
    with process_of(CannotStart()) as process, pytest.raises(RetriableStorageError, match="No process could be"):
        run(begin(log, process))


def echo_and_fail(side: Any) -> None:
    """Work for the next test: answers once with the end of a file, then a bug."""
    message, file = side.receive()
    side.send(message + file.read(0, 100))
    raise ZeroDivisionError


def test_a_helper_gets_a_file_and_its_end_is_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk(tmp_path)
    file = disk.open("some", create=True)
    file.write(0, [b"bytes of a file"])
    paths = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    helper: Helper = SystemWorkers().helper(f"{__name__}:echo_and_fail")
    try:
        helper.send(b"x" * 300_000, file)
        file.close()
        assert helper.receive() == b"x" * 300_000 + b"bytes of a file"
        with pytest.raises(OSError, match="has ended"):
            helper.receive()
    finally:
        helper.end()
        helper.end()
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_process_that_does_not_answer_is_given_up_and_killed(tmp_path: Path) -> None:
    """One that was stopped by a signal: before, its log and all others were never compacted again."""
    log = filled(tmp_path)

    class Impatient(Workers):
        def helper(self, work: str) -> HelperProcess:
            self.started = HelperProcess(work, silence_max_s=0.5)
            os.kill(self.pid, signal.SIGSTOP)
            return self.started

    workers = Impatient()
    with process_of(workers) as process:
        cleaning = begin(log, process)
        with pytest.raises(RetriableStorageError, match="stopped by a signal"):
            run(cleaning)
        cleaning.abandon()
        assert not process.runs
        assert not Path(f"/proc/{workers.pid}").exists()
