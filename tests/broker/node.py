"""A broker on the real disk for the tests of this room, and a disk that fails when told to."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import structlog
from tests.support.simulated import machine
from tests.support.waiting import WAIT_S

from logboom.base.errors import LogboomError
from logboom.base.ids import Offset, ProducerEpoch, ProducerId
from logboom.base.ports import Bytes, Disk, DiskSpace, File, Lock, SyncFailedError
from logboom.broker.broker import Broker
from logboom.broker.config import BrokerConfig
from logboom.broker.partition.replica import AppendResult, Partition
from logboom.host import OsDisk
from logboom.records import Codec, Record, build_batch, iter_batches, iter_records
from logboom.sim.disk import SimDisk

INLINE_FLUSH = True
"""Whether brokers of tests make small writes on the loop; `conftest.both_ways` runs a test with either."""
Result = TypeVar("Result")


def run(body: Callable[[], Awaitable[Result]]) -> Result:
    """Run one test's coroutine, bounded."""

    async def bounded() -> Result:
        return await asyncio.wait_for(body(), WAIT_S)

    return asyncio.run(bounded())


async def start(
    path: Path, *, open_disk: Callable[[str], Disk] | None = None, log: Any = None, **config: Any
) -> Broker:
    """A broker on `path`, or in simulated time (tests.support.simulated) on a simulated disk of that name."""
    runtime, disk_of = machine()
    settings = BrokerConfig(data_dir=path, **{"inline_flush": INLINE_FLUSH, **config})
    if log is None:
        log = structlog.wrap_logger(structlog.testing.CapturingLogger())
    return await Broker.start(settings, runtime=runtime, log=log, open_disk=open_disk or disk_of)


@asynccontextmanager
async def running(
    path: Path, *, open_disk: Callable[[str], Disk] | None = None, **config: Any
) -> AsyncIterator[Broker]:
    """A broker that is stopped at the end."""
    broker = await start(path, open_disk=open_disk, **config)
    try:
        yield broker
    finally:
        await broker.stop()


async def disk_after(how: str, broker: Broker, disk: SimDisk, chance: Random) -> SimDisk:
    """End a broker by "stop", "kill" or a power cut; what it left of its simulated disk."""
    if how == "stop":
        await broker.stop()
        return disk.restarted()
    left = disk.restarted() if how == "kill" else disk.power_cut(chance)
    await broker.stop()  # on the disk that is given up
    return left


async def until(condition: Callable[[], object]) -> None:
    """Return once a condition holds; the test's own time is the bound."""
    while not condition():
        await asyncio.sleep(0.01)


def batch(
    *values: bytes,
    timestamp_ms: int = 1_000,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """One batch; `producer` is id, epoch and first sequence."""
    return build_batch(
        [Record(Offset(n), timestamp_ms, None, value, ()) for n, value in enumerate(values)],
        codec=codec,
        producer_id=ProducerId(producer[0]),
        producer_epoch=ProducerEpoch(producer[1]),
        base_sequence=producer[2],
    )


def append_soon(partition: Partition, records: bytearray, acks: int = -1) -> "asyncio.Future[AppendResult]":
    """Append; the future holds what `done` was called with, an error as its exception."""
    future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()

    def done(result: AppendResult | LogboomError) -> None:
        if isinstance(result, LogboomError):
            future.set_exception(result)
        else:
            future.set_result(result)

    partition.append(records, acks=acks, done=done)
    return future


async def append(partition: Partition, *values: bytes, acks: int = -1, **how: Any) -> AppendResult:
    """Append one batch and wait for its ack."""
    return await append_soon(partition, batch(*values, **how), acks)


async def values_of(partition: Partition, offset: int = 0, max_bytes: int = 1 << 20) -> list[bytes | None]:
    """The values of all committed records from the batch at `offset` on."""
    values: list[bytes | None] = []
    while data := await partition.reads.read(Offset(offset), max_bytes):
        for position, header in iter_batches(data):
            values += [record.value for record in iter_records(data, position, header, 1 << 26)]
            offset = header.next_offset
    return values


class FaultyDisk:
    """The real disk until a fault is set: an errno for writes or for syncs of files whose path holds `where`."""

    def __init__(self, root: str) -> None:
        self._disk = OsDisk(root)
        self.where = ""
        self.write_errno: int | None = None
        self.sync_errno: int | None = None
        self.open_errno: int | None = None
        self.syncs = 0
        self.begun_syncs = 0
        """Syncs that were begun on the loop."""
        self.refuse_nowait = self.refuse_begin = False
        """Whether writes that must not wait, or syncs beside the loop, are refused."""
        self.hold_syncs = False
        """Whether syncs that are begun on the loop hang, until `release`; of files whose path holds `hold_where`."""
        self.hold_where = ""
        self.fail_late = False
        """Whether a sync begun on the loop that is to fail hangs first, too."""
        self._held: list[Callable[[], object]] = []
        self.standstill = threading.RLock()
        """Whoever holds it sees a disk between two calls of the system, as kill -9 leaves it."""

        self.hold_reads_of: str | None = None
        """Reads of files whose path holds this hang, until `release_reads`."""
        self.reads_held = 0
        self._reads_go_on = threading.Event()

    def release_reads(self) -> None:
        self.hold_reads_of = None
        self._reads_go_on.set()

    def before_read(self, path: str) -> None:
        if self.hold_reads_of is not None and self.hold_reads_of in path:
            self.reads_held += 1
            assert self._reads_go_on.wait(WAIT_S)

    def fill(self, where: str = "") -> None:
        self.where, self.write_errno = where, errno.ENOSPC

    def break_sync(self, where: str = "") -> None:
        self.where, self.sync_errno = where, errno.EIO

    @property
    def held(self) -> int:
        """How many syncs hang."""
        return len(self._held)

    def release(self) -> None:
        """On the loop: let go on what hangs."""
        self.hold_syncs = False
        held, self._held = self._held, []
        for go_on in held:
            go_on()

    def release_one(self) -> None:
        """On the loop: let go on what has hung the longest."""
        self._held.pop(0)()

    def hold(self, go_on: Callable[[], object]) -> None:
        self._held.append(go_on)

    def mend(self) -> None:
        self.write_errno = self.sync_errno = self.open_errno = None

    def check(self, path: str, code: int | None) -> None:
        if code is not None and self.where in path:
            raise OSError(code, errno.errorcode[code], path)

    def make_root(self) -> None:
        self._disk.make_root()

    def lock(self, path: str) -> Lock:
        return self._disk.lock(path)

    def start_async_syncs(self) -> bool:
        return self._disk.start_async_syncs()

    def stop_async_syncs(self) -> None:
        self._disk.stop_async_syncs()

    def space(self) -> DiskSpace:
        return self._disk.space()

    def open(self, path: str, *, create: bool = False) -> File:
        self.check(path, self.open_errno)
        return FaultyFile(self, path, self._disk.open(path, create=create))

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def size(self, path: str) -> int:
        return self._disk.size(path)

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)

    def make_dir(self, path: str) -> None:
        self.check(path, self.write_errno)
        with self.standstill:
            self._disk.make_dir(path)

    def make_dirs(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.make_dir(path)
            try:
                self.check(path, self.sync_errno)
            except OSError as error:
                raise SyncFailedError(*error.args) from error

    def rename(self, source: str, target: str) -> None:
        with self.standstill:
            self._disk.rename(source, target)

    def unlink(self, path: str) -> None:
        with self.standstill:
            self._disk.unlink(path)

    def remove_tree(self, path: str) -> None:
        with self.standstill:
            self._disk.remove_tree(path)

    def sync_dir(self, path: str) -> None:
        try:
            self.check(path, self.sync_errno)
        except OSError as error:
            raise SyncFailedError(*error.args) from error
        self._disk.sync_dir(path)


class FaultyFile:
    """A file of it."""

    def __init__(self, disk: FaultyDisk, path: str, file: File) -> None:
        self._disk, self._path, self._file = disk, path, file

    def read(self, offset: int, length: int) -> bytes:
        self._disk.before_read(self._path)
        return self._file.read(offset, length)

    def read_cached(self, offset: int, length: int) -> bytes | memoryview | None:
        return self._file.read_cached(offset, length)

    def forget(self, offset: int, length: int) -> None:
        self._file.forget(offset, length)

    def write(self, offset: int, buffers: Sequence[Bytes]) -> None:
        disk = self._disk
        with disk.standstill:
            if disk.write_errno is not None and disk.where in self._path and buffers:
                # A disk that fills up takes a part of the bytes first.
                self._file.write(offset, [memoryview(buffers[0])[: len(buffers[0]) // 2]])
            disk.check(self._path, disk.write_errno)
            self._file.write(offset, buffers)

    def sync(self) -> None:
        try:
            self._disk.check(self._path, self._disk.sync_errno)
        except OSError as error:
            raise SyncFailedError(*error.args) from error
        self._disk.syncs += 1
        self._file.sync()

    def write_out(self, offset: int, length: int, *, wait: bool) -> None:
        try:
            self._disk.check(self._path, self._disk.sync_errno)
        except OSError as error:
            raise SyncFailedError(*error.args) from error
        self._file.write_out(offset, length, wait=wait)

    def write_nowait(self, offset: int, buffers: Sequence[Bytes]) -> bool:
        with self._disk.standstill:
            self._disk.check(self._path, self._disk.write_errno)
            return not self._disk.refuse_nowait and self._file.write_nowait(offset, buffers)

    def descriptor(self) -> int:
        return self._file.descriptor()

    def begin_sync(self, done: Callable[[OSError | None], None]) -> bool:
        try:
            self._disk.check(self._path, self._disk.sync_errno)
        except OSError as error:
            fail = partial(done, SyncFailedError(*error.args))
            if self._disk.fail_late:
                self._disk.hold(fail)
            else:
                asyncio.get_running_loop().call_soon(fail)
            return True
        if self._disk.refuse_begin:
            return False
        self._disk.syncs += 1
        self._disk.begun_syncs += 1
        if self._disk.hold_syncs and self._disk.hold_where in self._path:
            self._disk.hold(partial(self._file.begin_sync, done))
            return True
        return self._file.begin_sync(done)

    def truncate(self, length: int) -> None:
        with self._disk.standstill:
            self._file.truncate(length)

    def allocate(self, length: int) -> None:
        self._disk.check(self._path, self._disk.write_errno)
        self._file.allocate(length)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()
