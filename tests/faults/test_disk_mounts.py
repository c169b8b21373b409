"""A real broker on real file systems that are small, full, or gone from one moment to the next; and without handles.

ext4 on a loop device, which is shut down under the broker without flushing its journal, as a power failure does; needs
the right to mount.
"""

import contextlib
import fcntl
import os
import random
import resource
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.faults.talk import METADATA, Answer, Talk, get, metric
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.kafka.wire.messages import make, nested

STORAGE = ErrorCode.kafka_storage_error
SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN."""
NO_LOG_FLUSH = 2
ORDERS = 'stream="orders"'


class Loop:
    """A small ext4 in a file."""

    def __init__(self, directory: Path, megabytes: int) -> None:
        self.image, self.path = directory / "image", directory / "ext4"
        self.path.mkdir()
        with self.image.open("wb") as image:
            image.truncate(megabytes << 20)
        self._run("mkfs.ext4", "-q", "-m", "0", str(self.image))
        self.mount()

    def _run(self, *command: str) -> None:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)
        except FileNotFoundError:
            pytest.skip(f"no {command[0]} on this machine")
        if done.returncode:
            pytest.skip(f"no loop device with ext4: {done.stderr.strip()}")

    def mount(self) -> None:
        self._run("mount", "-o", "loop", str(self.image), str(self.path))

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.path)], check=True, timeout=WAIT_S)

    def power_failure(self) -> None:
        """No byte more reaches the device, whatever is still in memory."""
        root = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(root, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(root)

    def fill(self) -> Path:
        """Take all room there is; the file to remove."""
        ballast = self.path / "ballast"
        with ballast.open("wb") as file, contextlib.suppress(OSError):
            for size in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        os.write(file.fileno(), bytes(size))
            os.fsync(file.fileno())
        return ballast


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    made = Loop(tmp_path, 48)
    yield made
    subprocess.run(["umount", "--lazy", str(made.path)], check=False, timeout=WAIT_S)


def until_taken(talk: Talk, value: bytes) -> Answer:
    """A file that was removed gives its room back a moment later."""
    for _ in range(10_000):
        answer = talk.produce("orders", value)
        if answer.ok:
            return answer
        assert answer.error is STORAGE
    raise AssertionError("there is room, and nothing is taken")


def test_a_full_disk_from_end_to_end(loop: Loop, tmp_path: Path) -> None:
    chance = random.Random(5)
    acked: dict[int, bytes] = {}
    # The room that comes back at the end. What `fill` finds is no more than the log has left, which may be nothing.
    reserve = loop.path / "reserve"
    reserve.write_bytes(bytes(1 << 20))
    with BrokerProcess(loop.path / "data", log_path=tmp_path / "log") as broker:
        with Talk(broker.kafka) as talk:
            assert talk.create("orders") is ErrorCode.none
            assert talk.create("other") is ErrorCode.none
            refused = 0
            while refused < 30:
                value = chance.randbytes(chance.choice((100, 50_000, 600_000)))
                answer = talk.produce("orders", value)
                if answer.ok:
                    acked[answer.offset] = value
                else:
                    refused += 1
                    assert (answer.error, "The disk is full" in str(answer.text)) == (STORAGE, True), answer
            assert sorted(acked) == list(range(len(acked))), "what was refused left nothing behind"
            assert talk.read_all("orders") == acked
            ballast = loop.fill()
        assert get(broker.http, "/readyz") == (200, "ready\n")
        assert metric(broker.http, "logboom_disk_full_total") >= refused
        assert metric(broker.http, "logboom_log_dir_offline") == 0
        lines = broker.log_text().count("the disk is full: writes are refused")
        assert 1 <= lines < refused, "said, but not each time"
        # Killed and started again on a disk without a byte to spare: it reads, and refuses to write.
        broker.kill9()
        ballast.unlink()
        ballast = loop.fill()
        broker.start()
        with Talk(broker.kafka) as talk:
            assert talk.read_all("orders") == acked
            answer = talk.produce("orders", chance.randbytes(900_000))
            assert (answer.error, "The disk is full" in str(answer.text)) == (STORAGE, True), answer
            ballast.unlink()
            reserve.unlink()
            value = chance.randbytes(50_000)
            acked[until_taken(talk, value).offset] = value
            assert talk.read_all("orders") == acked
        assert "writes accepted again" in broker.log_text()
        assert broker.sigterm() == 0
        broker.start()
        with Talk(broker.kafka) as talk:
            assert talk.read_all("orders") == acked
    assert "damage" not in broker.log_text()


def test_a_power_failure_of_ext4_under_load(loop: Loop, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    acked: dict[int, bytes] = {}
    with BrokerProcess(loop.path / "data", log_path=tmp_path / "log") as broker:
        with Talk(broker.kafka) as talk:
            assert talk.create("orders", segment_bytes="65536") is ErrorCode.none
        for _ in range(3):
            with Talk(broker.kafka) as talk:
                for _ in range(chance.randrange(5, 60)):
                    value = chance.randbytes(chance.choice((10, 2_000, 30_000)))
                    answer = talk.produce("orders", value)
                    assert answer.ok, answer
                    acked[answer.offset] = value
                loop.power_failure()
                assert talk.produce("orders", b"too late").error is STORAGE
                assert get(broker.http, "/readyz")[0] == 503
            broker.kill9()
            loop.unmount()
            loop.mount()
            broker.start()
            with Talk(broker.kafka) as talk:
                found = talk.read_all("orders")
                assert {offset: found.get(offset) for offset in acked} == acked
                # The one that was refused is there or it is not.
                assert set(found.values()) - set(acked.values()) <= {b"too late"}
                acked = found
    assert "damage" not in broker.log_text()


def limit_handles(process: int, count: int) -> None:
    _, hard = resource.prlimit(process, resource.RLIMIT_NOFILE)
    resource.prlimit(process, resource.RLIMIT_NOFILE, (min(count, hard), hard))


def test_file_handles_run_out_and_come_back(tmp_path: Path) -> None:
    acked: dict[int, bytes] = {}
    with BrokerProcess(tmp_path / "data") as broker, Talk(broker.kafka) as talk:
        assert talk.create("orders", segment_bytes="16384") is ErrorCode.none
        for number in range(20):
            value = b"%d " % number * 1_000
            answer = talk.produce("orders", value)
            assert answer.ok
            acked[answer.offset] = value
        limit_handles(broker.pid, 3)
        answers = [talk.produce("orders", b"refused " * 1_500) for _ in range(20)]
        refused = [answer for answer in answers if not answer.ok]
        acked |= {answer.offset: b"refused " * 1_500 for answer in answers if answer.ok}
        assert refused, "segments of 16 KiB cannot all be there already"
        for answer in refused:
            assert (answer.error, "can be opened at the moment" in str(answer.text)) == (STORAGE, True), answer
        limit_handles(broker.pid, 4_096)
        answer = talk.produce("orders", b"again")
        assert answer.ok, answer
        acked[answer.offset] = b"again"
        assert talk.read_all("orders") == acked
        assert get(broker.http, "/readyz") == (200, "ready\n")
        assert metric(broker.http, "logboom_no_handles_total") >= len(refused)
        assert broker.log_text().count("file handles have run out: writes are refused") == 1
        broker.kill9()
        broker.start()
        with Talk(broker.kafka) as again:
            assert again.read_all("orders") == acked
    assert "damage" not in broker.log_text()


def test_a_partition_that_cannot_be_opened_is_told_everywhere(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker:
        with Talk(broker.kafka) as talk:
            assert talk.create("orders", 3) is ErrorCode.none
            assert talk.produce("orders", b"a", index=0).ok
            assert talk.produce("orders", b"b", index=1).ok
        broker.sigterm()
        segment = data / "streams" / "orders-1" / f"{0:020d}.log"
        kept = segment.read_bytes()
        segment.unlink()
        segment.mkdir()
        shutil.rmtree(data / "streams" / "orders-2")
        broker.start()
        with Talk(broker.kafka) as talk:
            for index in (1, 2):
                assert metric(broker.http, f'logboom_partition_offline{{partition="{index}",{ORDERS}}}') == 1
                refused = talk.produce("orders", b"x", index=index)
                assert (refused.error, "cannot be opened" in str(refused.text)) == (STORAGE, True)
                assert talk.fetch("orders", 0, index)[0] is STORAGE
                assert offset_error(talk, index) is STORAGE
            assert metric(broker.http, f'logboom_partition_offline{{partition="0",{ORDERS}}}') == 0
            topic = make(nested(load_request_schema(METADATA, 5), "topics"), name="orders")
            told = talk.ask(METADATA, 5, topics=(topic,), allow_auto_topic_creation=False).topics[0].partitions
            offline = {part.partition_index: tuple(part.offline_replicas) for part in told}
            assert offline == {0: (), 1: (1,), 2: (1,)}
            assert talk.read_all("orders", 0) == {0: b"a"}
            assert talk.produce("orders", b"c", index=0).ok
        status, reason = get(broker.http, "/readyz")
        assert status == 503
        assert reason.startswith("offline: orders-1, orders-2; all others are served. orders-1 cannot be opened")
        broker.sigterm()
        segment.rmdir()
        segment.write_bytes(kept)
        broker.start()
        with Talk(broker.kafka) as talk:
            assert talk.read_all("orders", 1) == {0: b"b"}
            status, reason = get(broker.http, "/readyz")
            assert (status, "orders-1" in reason, "orders-2" in reason) == (503, False, True)


def offset_error(talk: Talk, index: int) -> ErrorCode:
    """What ListOffsets says of a partition."""
    cls = load_request_schema(2, 5)
    part = make(nested(cls, "topics", "partitions"), partition_index=index, current_leader_epoch=-1, timestamp=-1)
    topic = make(nested(cls, "topics"), name="orders", partitions=(part,))
    reply = talk.ask(2, 5, replica_id=-1, isolation_level=0, topics=(topic,))
    code: ErrorCode = reply.topics[0].partitions[0].error_code
    return code
