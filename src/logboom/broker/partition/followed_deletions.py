"""Deletes from this broker's copy of a partition what its leader has deleted.

Otherwise these records would come back if this broker leads one day. One deletion runs at a time; one that fails is
tried again. On the loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from logboom.base.ids import Offset
from logboom.storage import LogStart

_AGAIN_S: Final = 2.0
"""As long as a copy has what its leader has deleted it is not in sync again, and whoever asked for it waits."""


class Log(Protocol):
    """The part of a `storage.PartitionLog` that is used here."""

    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def start(self) -> LogStart: ...


class FollowedDeletions:
    """See the module. Life: that of the follower."""

    __slots__ = ("_delete_before", "_deleted", "_log", "_logger", "_may", "_name", "_running", "leaders_start")

    def __init__(
        self,
        copy: Log,
        delete_before: Callable[[Offset], Awaitable[object]],
        *,
        may: Callable[[], Offset],
        deleted: Callable[[], None],
        log: FilteringBoundLogger,
        name: str,
    ) -> None:
        """`delete_before` removes the oldest records; it raises LogboomError. `may`: up to where records may be deleted
        now. `deleted` is called after each deletion. `name`: of the partition."""
        self._log = copy
        self._delete_before = delete_before
        self._may = may
        self._deleted = deleted
        self._logger = log
        self._name = name
        self._running: asyncio.Future[object] | None = None
        self.leaders_start = Offset(0)
        """Where the leader's log begins, as its last answer said."""

    def follow(self) -> None:
        """Begin to delete, if there is anything to delete and nothing is being deleted."""
        # If this log may have lost its beginning, and the leader's begins at the same offset, it becomes certain.
        if self._running is not None or self.leaders_start <= self._log.start.deleted_below:
            return
        start = min(self.leaders_start, self._may())
        if start >= self._log.log_start_offset and start > self._log.start.deleted_below:
            self._running = asyncio.ensure_future(self._delete_before(start))
            self._running.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Future[object]") -> None:
        self._running = None
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._logger.warning("deleted records stay for now", partition=self._name, reason=str(fault))
            asyncio.get_running_loop().call_later(_AGAIN_S, self.follow)
            return
        self._deleted()
        self.follow()  # the leader has deleted more meanwhile
