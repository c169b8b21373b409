"""A real broker whose small writes go inline (on the event loop, synced beside it) on file systems that are full.

ext4 on a loop device, tmpfs, and an overlay over tmpfs; none of them takes a write that must not wait (RWF_NOWAIT).
Needs the right to mount.
"""

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from tests.faults.talk import Talk, get, metric
from tests.faults.test_disk_mounts import STORAGE, Loop
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

INLINE_ROUNDS = "logboom_inline_flush_rounds_total"

REFUSED_MIN = 20
CHECKPOINTS = ("--set", "broker.checkpoint_interval_s=1")


def mounted(kind: str, target: Path, *options: str) -> Path:
    target.mkdir()
    command = ["mount", "-t", kind, *options, kind, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)
    if done.returncode:
        pytest.skip(f"no {kind} can be mounted: {done.stderr.strip()}")
    return target


@pytest.fixture(params=["ext4", "tmpfs", "overlay"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    with contextlib.ExitStack() as mounts:

        def unmount(path: Path) -> None:
            mounts.callback(subprocess.run, ["umount", "--lazy", str(path)], check=False, timeout=WAIT_S)

        if request.param == "ext4":
            path = Loop(tmp_path, 24).path
            unmount(path)
        else:
            path = mounted("tmpfs", tmp_path / "tmpfs", "-o", "size=24m")
            unmount(path)
        if request.param == "overlay":
            lower, upper, work = (path / name for name in ("lower", "upper", "work"))
            for directory in (lower, upper, work):
                directory.mkdir()
            options = f"lowerdir={lower},upperdir={upper},workdir={work}"
            path = mounted("overlay", tmp_path / "overlay", "-o", options)
            unmount(path)
        yield path


def take_room(path: Path, left_bytes: int) -> Path:
    """Leave so much room; the file to remove."""
    reserve, ballast = path / "reserve", path / "ballast"
    reserve.write_bytes(bytes(left_bytes))
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    with ballast.open("rb") as file:
        os.fsync(file.fileno())
    reserve.unlink()
    return ballast


def test_small_writes_to_a_full_disk_lose_nothing_and_resume(small_disk: Path, tmp_path: Path) -> None:
    chance = random.Random(11)
    acked: dict[int, bytes] = {}
    with BrokerProcess(small_disk / "data", *CHECKPOINTS, log_path=tmp_path / "log") as broker:
        with Talk(broker.kafka) as talk:

            def produce(*sizes: int) -> ErrorCode:
                value = chance.randbytes(chance.choice(sizes or (50, 300, 3_000)))
                answer = talk.produce("orders", value)
                if answer.ok:
                    acked[answer.offset] = value
                else:
                    assert "The disk is full" in str(answer.text), answer
                return answer.error

            assert talk.create("orders") is ErrorCode.none
            for _ in range(50):
                assert produce() is ErrorCode.none
            if not metric(broker.http, INLINE_ROUNDS):
                pytest.skip("this system has no syncs beside the event loop")
            ballast = take_room(small_disk, 600_000)
            refused = 0
            while refused < REFUSED_MIN:
                refused += produce() is STORAGE
            assert metric(broker.http, "logboom_disk_full_total") >= refused
            assert metric(broker.http, "logboom_log_dir_offline") == 0
            assert get(broker.http, "/readyz") == (200, "ready\n")
            assert sorted(acked) == list(range(len(acked))), "what was refused left nothing behind"
            assert talk.read_all("orders") == acked
            ballast.unlink()
            tries = 0
            while produce() is not ErrorCode.none:  # a file that was removed gives its room back a moment later
                tries += 1
                assert tries < 10_000
            # A disk that was slow is not written to on the event loop for up to a minute.
            resumed, deadline_s = metric(broker.http, INLINE_ROUNDS), time.monotonic() + WAIT_S
            while metric(broker.http, INLINE_ROUNDS) == resumed:
                assert time.monotonic() < deadline_s, "small writes are inline again once the disk has been left alone"
                assert produce(50) is ErrorCode.none
            assert talk.read_all("orders") == acked
        broker.kill9()
        broker.start()
        with Talk(broker.kafka) as talk:
            assert talk.read_all("orders") == acked
        assert "writes accepted again" in broker.log_text()
        assert "damage" not in broker.log_text()
        assert broker.sigterm() == 0
