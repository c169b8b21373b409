"""When the next snapshot of the state machine is taken, and how large it may be."""

from typing import Final

import msgspec
from structlog.typing import FilteringBoundLogger

from logboom.broker.raft.ports import StateMachine
from logboom.broker.raft.settings import RaftSettings
from logboom.raft import Entry, Snapshot

_RETRY_MS: Final = 10_000


class Snapshots:
    """Counts what was applied since the last snapshot, and takes the next one.

    A snapshot costs time and disk in proportion to the state, so it waits until the entries since the last one have as
    many bytes as that had: then all snapshots together cost about what the entries cost. A start reads the last one and
    what came since. One is under way at a time.
    """

    def __init__(self, settings: RaftSettings, last_bytes: int, log: FilteringBoundLogger) -> None:
        """`last_bytes`: the size of the last snapshot."""
        self._settings = settings
        self._log = log
        self._last_bytes = last_bytes
        self._entries = self._bytes = 0
        self._under_way: tuple[int, int] | None = None
        self._not_before_ms = 0
        self._wanted = False

    def applied(self, entry: Entry) -> None:
        """One more entry."""
        self._entries += 1
        self._bytes += len(entry.data)

    def want(self) -> None:
        """A member needs one now."""
        self._wanted = True

    def is_due(self, now_ms: int) -> bool:
        """Whether one is to be taken now."""
        if self._under_way is not None or now_ms < self._not_before_ms:
            return False
        settings = self._settings
        is_long = self._entries >= settings.snapshot_entries() and self._bytes >= self._last_bytes
        return self._wanted or is_long or self._bytes >= max(settings.snapshot_log_bytes, self._last_bytes)

    def take(self, point: Snapshot, machine: StateMachine, now_ms: int) -> Snapshot | None:
        """The snapshot of what is applied now, `point`, to be written; None where it would be too large."""
        data = machine.snapshot()
        if len(data) > self._settings.snapshot_bytes_max:
            self._log.error(
                "the metadata is too large for a snapshot: delete streams, or its log grows and no broker can join",
                size_bytes=len(data),
                limit_bytes=self._settings.snapshot_bytes_max,
            )
            self._leave_for_a_while(now_ms)
            return None
        self._under_way = (self._entries, self._bytes)
        self._wanted = False
        return msgspec.structs.replace(point, data=data)

    def taken(self, snapshot: Snapshot) -> None:
        """It is durable."""
        assert self._under_way is not None, "no snapshot was begun"
        entries, read_bytes = self._under_way
        self._under_way = None
        self._entries -= entries
        self._bytes -= read_bytes
        self._last_bytes = len(snapshot.data)
        self._log.info("metadata snapshot taken", index=snapshot.index, size_bytes=len(snapshot.data))

    def failed(self, error: Exception, now_ms: int) -> None:
        """It could not be written. The entries are still there."""
        self._log.warning("metadata snapshot failed", reason=str(error))
        self._leave_for_a_while(now_ms)

    def _leave_for_a_while(self, now_ms: int) -> None:
        self._under_way = None
        self._wanted = False
        self._not_before_ms = now_ms + _RETRY_MS

    def restored(self, snapshot: Snapshot) -> None:
        """The leader's has taken the place of everything before."""
        self._entries = self._bytes = 0
        if self._under_way is not None:
            self._under_way = (0, 0)
        self._last_bytes = len(snapshot.data)
