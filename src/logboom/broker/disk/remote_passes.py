"""The passes of key compaction in another process: `PassProcess` starts it, and is `storage`'s `StartPasses`.

The passes are plain work of the interpreter. On a thread they would take the interpreter lock from the event loop half
a millisecond at a time: an ack of 1 ms took 7 meanwhile. In another process they take a core, and the memory of the
keys is given back with it. The broker opens all files, swaps segments, keeps to the rate limit and can end the process
at any time; the process is given open files and answers with what it found.
"""

from collections.abc import Sequence
from typing import Final

from logboom.base.errors import RetriableStorageError, StorageError
from logboom.base.ids import Offset
from logboom.base.ports import File, Helper, SyncFailedError, Workers
from logboom.base.units import MIB
from logboom.broker.disk import pass_messages as messages
from logboom.broker.disk.pass_process import WORK
from logboom.storage.compaction import CompactionPlan, Files, Passes, Source, Written, in_this_process
from logboom.storage.segment import BadBatchError

SMALL_BYTES: Final = MIB
"""What is not larger than this takes some milliseconds: a process takes two hundred to start."""


class PassProcess:
    """Life: that of the cleaner, on its thread. `end` gives the process back until it is needed again."""

    def __init__(self, workers: Workers, *, small_bytes: int = SMALL_BYTES) -> None:
        self._workers = workers
        self._small_bytes = small_bytes
        self._helper: Helper | None = None

    @property
    def runs(self) -> bool:
        """Whether there is a process now."""
        return self._helper is not None

    def start_passes(self, plan: CompactionPlan, size_bytes: int) -> Passes:
        """Begin the passes of a plan over this many bytes. RetriableStorageError where no process can be started."""
        if self._helper is None and size_bytes <= self._small_bytes:
            return in_this_process(plan, size_bytes)
        try:
            self._helper = self._helper or self._workers.helper(WORK)
            if self._helper is None:  # a simulation
                return in_this_process(plan, size_bytes)
            self._helper.send(messages.encode(messages.Begin(plan)))
        except OSError as error:
            self.end()
            raise RetriableStorageError(f"No process could be started to compact a log: {error}.") from error
        return _RemotePasses(self, self._helper)

    def kill(self) -> None:
        """Kill the process, if there is one, from any thread: the cleaner's may wait in vain for one that was stopped
        (SIGSTOP)."""
        helper = self._helper
        if helper is not None:
            helper.kill()

    def end(self) -> None:
        """Kill the process, if there is one, and forget it."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.end()


class _RemotePasses:
    """See `passes.Passes`."""

    def __init__(self, process: PassProcess, helper: Helper) -> None:
        self._process = process
        self._helper = helper
        self._is_working = False

    def read(self, source: Source, files: Files) -> tuple[Offset, bool]:
        found = self._call(messages.Read(source), files)
        assert isinstance(found, messages.ReadDone)
        return found.dirty_end, found.has_room

    def write(self, sources: Sequence[Source], files: Files) -> Written:
        found = self._call(messages.Write(tuple(sources)), files)
        assert isinstance(found, messages.WriteDone)
        return Written(found.size_bytes, found.written_bytes, found.index.index(), found.counts)

    def close(self) -> None:
        if self._is_working:
            self._process.end()

    def _call(self, request: messages.ToProcess, files: Files) -> messages.ReadDone | messages.WriteDone:
        """Send a request and return its result; answers what the process asks for meanwhile."""
        self._is_working = True  # until it has answered: an error of `files` leaves it in the middle
        self._send(request)
        while True:
            message = self._receive()
            match message:
                case messages.PassProgress():
                    files.did_read(message.read_bytes)
                    files.did_write(message.written_bytes)
                    self._send(messages.Continue())
                case messages.NeedSource():
                    self._send(messages.Continue(), files.source(message.number))
                case messages.NeedTarget():
                    self._send(messages.Continue(), files.target())
                case _:
                    self._is_working = False
                    return _result(message)

    def _send(self, message: messages.ToProcess, file: File | None = None) -> None:
        try:
            self._helper.send(messages.encode(message), file)
        except OSError as error:
            raise _has_ended(error) from error

    def _receive(self) -> messages.ToCleaner:
        try:
            return messages.decode_for_cleaner(self._helper.receive())
        except TimeoutError as error:
            raise RetriableStorageError(
                "The process that compacts logs does not answer: it was stopped by a signal, or waits for the disk. "
                "It is killed, and another one started."
            ) from error
        except OSError as error:
            raise _has_ended(error) from error


def _result(
    message: messages.ReadDone
    | messages.WriteDone
    | messages.Damaged
    | messages.CannotOpen
    | messages.DiskFailed
    | messages.InternalError,
) -> messages.ReadDone | messages.WriteDone:
    match message:
        case messages.ReadDone() | messages.WriteDone():
            return message
        case messages.Damaged():
            raise BadBatchError(message.position, message.offset, message.reason, message.path)
        case messages.CannotOpen():
            raise StorageError(message.message)
        case messages.DiskFailed():
            raise (SyncFailedError if message.is_sync else OSError)(message.errno, message.text)
        case messages.InternalError():
            raise RuntimeError(f"The process that compacts logs failed:\n{message.traceback}")


def _has_ended(error: OSError) -> RetriableStorageError:
    """Killed, most likely for lack of memory: it is tried again."""
    return RetriableStorageError(f"The process that compacts logs has ended: {error}.")
