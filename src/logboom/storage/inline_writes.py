"""Small writes of one log on the event loop, while the flusher's thread is idle and a sync runs beside the loop.

One round is `write`, then the sync of the handle it gives, then `synced` or `sync_failed`. Nothing else may change the
log in between. The caller decides whether the disk is quick enough for this; this module only never waits for it.
"""

from threading import Lock

from logboom.base.errors import StorageError, with_cause
from logboom.base.ids import Offset
from logboom.base.ports import File
from logboom.storage import writing
from logboom.storage.staging import Staged
from logboom.storage.state import LogState


class InlineWrites:
    """The part of a `PartitionLog` that writes on the loop; shares the log's state, staged batches and lock."""

    def __init__(self, state: LogState, staged: list[Staged], io: Lock) -> None:
        self._state = state
        self._staged = staged
        self._io = io

    def write(self, max_bytes: int) -> File | None:
        """Write all that is staged, without a wait for the disk; the handle whose sync makes it durable.

        None where `PartitionLog.flush` must do it: there is more than `max_bytes`, or more than one plain write to do.
        Raises BlockingIOError where the write would wait for the disk: `flush` must do it then too.
        """
        if self._state.failure is not None or not self._io.acquire(blocking=False):
            return None
        try:
            handle = writing.write_nowait(self._state, self._staged, max_bytes)
        finally:
            self._io.release()
        if handle is not None and self._state.on_written is not None:
            self._state.on_written.on_loop()
        return handle

    def synced(self) -> Offset:
        """The sync after `write` succeeded: the new durable end. Raises as `PartitionLog.flush`."""
        state = self._state
        with self._io:
            state.check_writable()
            state.active.file.synced()
            try:
                state.set_durable_nowait()
            except OSError as error:
                raise with_cause(state.error_for(error), error) from error
            return state.durable_end

    def sync_failed(self, error: OSError) -> StorageError:
        """The sync after `write` failed: the log never writes again. The error that says so."""
        return self._state.fail(error)
