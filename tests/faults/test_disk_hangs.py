"""A real broker on a file system that stops answering: to writes, to reads, at a stop. Nothing fails, nothing ends.

FUSE; needs the right to mount. Syncs that hang are in `test_disk_fuse`.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.faults.talk import Talk, get, metric
from tests.support.fusedisk import CannotMountError, FuseDisk
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S, until

HANG_S = "broker.disk_hang_s=0.5"
SEGMENT = "/00000000000000000000.log"


@contextlib.contextmanager
def fuse_disk(directory: Path) -> Iterator[FuseDisk]:
    with skipped_on(CannotMountError), FuseDisk(directory / "fuse", capacity_bytes=256 << 20) as mounted:
        yield mounted


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FuseDisk]:
    with fuse_disk(tmp_path) as mounted:
        yield mounted


def broker_on(disk: FuseDisk, log: Path, *settings: str) -> BrokerProcess:
    arguments = [part for setting in (HANG_S, *settings) for part in ("--set", setting)]
    return BrokerProcess(disk.path / "data", *arguments, log_path=log)


class Behind:
    """A request on a connection and a thread of its own; its answer once there is one."""

    def __init__(self, address: str, ask: Callable[[Talk], object]) -> None:
        self.answers: list[object] = []
        self._address, self._ask = address, ask
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError, EOFError), Talk(self._address) as talk:  # a stop may close the connection
            self.answers.append(self._ask(talk))

    def answer(self) -> Any:
        self._thread.join(WAIT_S)
        (answer,) = self.answers
        return answer


def test_a_write_that_hangs_is_told_and_everything_else_is_served(disk: FuseDisk, tmp_path: Path) -> None:
    with broker_on(disk, tmp_path / "log") as broker, Talk(broker.kafka) as talk:
        assert talk.create("orders", 2) is ErrorCode.none
        for index in range(2):
            assert talk.produce("orders", b"durable", index=index).ok
        disk.hang = lambda operation, path: operation == "write" and path.endswith(f"orders-1{SEGMENT}")
        waits = Behind(broker.kafka, lambda patient: patient.produce("orders", b"patient", index=1))
        try:
            until(lambda: bool(disk.hanging))
            until(lambda: get(broker.http, "/readyz")[0] == 503)
            assert get(broker.http, "/readyz")[1].startswith("the disk hangs")
            assert metric(broker.http, "logboom_flush_running_seconds") >= 0.5
            until(lambda: "the disk hangs" in broker.log_text())
            assert get(broker.http, "/healthz") == (200, "ok\n")
            late = talk.produce("orders", b"late", index=0, timeout_ms=300)
            assert late.error is ErrorCode.request_timed_out
            assert talk.fetch("orders", 0, 0) == (ErrorCode.none, {0: b"durable"})
            assert not waits.answers
        finally:
            disk.go_on()
        patient = waits.answer()
        assert (patient.ok, patient.offset) == (True, 1)
        # It is of a later flush than what was waited for.
        until(lambda: talk.read_all("orders", 0) == {0: b"durable", 1: b"late"})
        until(lambda: "the disk answers again" in broker.log_text())
        until(lambda: get(broker.http, "/readyz") == (200, "ready\n"))
        assert broker.sigterm() == 0


def test_a_read_that_hangs_is_told_and_everything_else_is_served(disk: FuseDisk, tmp_path: Path) -> None:
    with broker_on(disk, tmp_path / "log", "broker.read_threads=2") as broker:
        with Talk(broker.kafka) as talk:
            assert talk.create("orders", 2) is ErrorCode.none
            for index in range(2):
                assert talk.produce("orders", b"durable", index=index).ok
        broker.restart()  # what was just written would be in memory
        with Talk(broker.kafka) as talk:
            disk.hang = lambda operation, path: operation == "read" and path.endswith(f"orders-1{SEGMENT}")
            waits = Behind(broker.kafka, lambda patient: patient.fetch("orders", 0, 1))
            try:
                until(lambda: bool(disk.hanging))
                assert talk.fetch("orders", 0, 0) == (ErrorCode.none, {0: b"durable"})
                assert talk.produce("orders", b"again", index=0).ok
                # On a busy machine a write may take as long as what counts as a hang here: it is over soon.
                until(lambda: metric(broker.http, "logboom_read_running_seconds") >= 0.5)
                until(lambda: metric(broker.http, "logboom_flush_running_seconds") == 0)
                status, reason = get(broker.http, "/readyz")
                assert (status, reason.startswith("the disk hangs")) == (503, True)
                until(lambda: "the disk hangs" in broker.log_text())
                assert not waits.answers
            finally:
                disk.go_on()
            error, found = waits.answer()
            assert (error, found[0]) == (ErrorCode.none, b"durable")
            until(lambda: "the disk answers again" in broker.log_text())
            until(lambda: get(broker.http, "/readyz") == (200, "ready\n"))
            assert metric(broker.http, "logboom_read_running_seconds") == 0
        assert broker.sigterm() == 0


def test_a_stop_on_a_disk_that_hangs_ends_in_time_and_says_so(tmp_path: Path) -> None:
    """Of a write and of a read, side by side: each stop takes the 20 s that a broker waits for its disk."""
    with ThreadPoolExecutor() as both:
        stops = [
            both.submit(check_stop_on_a_hanging_disk, tmp_path / operation, operation)
            for operation in ("write", "read")
        ]
    for stop in stops:
        stop.result()


@pytest.mark.slow
def test_a_stop_on_a_disk_whose_sync_hangs_ends_in_time_and_says_so(tmp_path: Path) -> None:
    """As above, of a sync."""
    check_stop_on_a_hanging_disk(tmp_path, "fsync")


def check_stop_on_a_hanging_disk(directory: Path, operation: str) -> None:
    """What is on its way is given up as in a crash, and the next start recovers all that was acked."""
    directory.mkdir(exist_ok=True)
    with fuse_disk(directory) as disk, broker_on(disk, directory / "log") as broker:
        with Talk(broker.kafka) as talk:
            assert talk.create("orders", 2) is ErrorCode.none
            for index in range(2):
                assert talk.produce("orders", b"durable", index=index).ok
        if operation == "read":
            broker.restart()
        disk.hang = lambda asked, path: asked == operation and path.endswith(SEGMENT) and "orders-1" in path
        if operation == "read":
            Behind(broker.kafka, lambda patient: patient.fetch("orders", 0, 1))
        else:
            Behind(broker.kafka, lambda patient: patient.produce("orders", b"unsafe", index=1))
        until(lambda: bool(disk.hanging))
        codes = list[int]()
        stop = threading.Thread(target=lambda: codes.append(broker.sigterm()))
        stop.start()
        try:
            # A process ends only once the kernel's calls have ended: its last words come before that.
            until(lambda: "the next start recovers" in broker.log_text())
        finally:
            disk.go_on()
        stop.join(WAIT_S)
        assert codes == [1]
        broker.start()
        with Talk(broker.kafka) as talk:
            assert talk.read_all("orders", 0) == {0: b"durable"}
            found = talk.read_all("orders", 1)
            assert found[0] == b"durable"
            assert set(found.values()) <= {b"durable", b"unsafe"}
            assert talk.produce("orders", b"again", index=1).ok
        assert broker.sigterm() == 0


def test_a_stream_is_deleted_and_made_again_while_a_read_of_it_hangs(disk: FuseDisk, tmp_path: Path) -> None:
    with broker_on(disk, tmp_path / "log") as broker:
        with Talk(broker.kafka) as talk:
            assert talk.create("orders") is ErrorCode.none
            assert talk.produce("orders", b"old").ok
        broker.restart()  # what was just written would be in memory
        with Talk(broker.kafka) as talk:
            disk.hang = lambda operation, path: operation == "read" and path.endswith(f"orders-0{SEGMENT}")
            waits = Behind(broker.kafka, lambda patient: patient.fetch("orders", 0))
            try:
                until(lambda: bool(disk.hanging))
                assert talk.delete("orders") is ErrorCode.none
                disk.hang = lambda operation, path: False
                assert talk.create("orders") is ErrorCode.none
                assert talk.produce("orders", b"new").ok
                assert talk.read_all("orders") == {0: b"new"}
                assert not waits.answers
            finally:
                disk.go_on()
            assert waits.answer() == (ErrorCode.unknown_topic_or_partition, {})
            until(lambda: not list((disk.path / "data" / "streams").glob("*.deleted")))
            assert talk.read_all("orders") == {0: b"new"}
        assert broker.sigterm() == 0
