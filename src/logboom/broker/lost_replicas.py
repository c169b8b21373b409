"""Replicas of this broker that have lost records which other replicas have: reported to the controller, then rebuilt.

A copy whose directory is gone, or whose log has damage below its durable end, must not count any more. The controller
takes it out of the ISR and of the eligible leaders, and elects another leader if this broker led. Once that is
committed the copy begins empty and fetches everything from the leader (rule 9 of the design: nothing is silently
truncated). None of this is done if no other replica has the records: a damaged log is then better than none, until
another replica has them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import LogboomError
from logboom.base.ids import PartitionIndex, StreamId
from logboom.broker.partition.replication_port import ReplicaKey

_RETRY_S: Final = 1.0


class ReplicaLossPort(Protocol):
    """The controller, for replicas that are lost."""

    async def replicas_lost(self, lost: Sequence[tuple[StreamId, PartitionIndex]]) -> None:
        """Report that these replicas of this broker no longer have their records. On return they are in no ISR and no
        ELR, and this broker has applied that. Raises LogboomError if the outcome is not known."""


class NoOtherReplicas:
    """Of a broker that is alone. It is never asked, since nobody else has what it lost."""

    async def replicas_lost(self, lost: Sequence[tuple[StreamId, PartitionIndex]]) -> None:
        """There is nobody to tell."""


class LostReplicas:
    """See the module. Life: that of the broker, from its start to `stop`. On the loop."""

    def __init__(
        self,
        controller: ReplicaLossPort,
        rebuild: Callable[[ReplicaKey], Awaitable[None]],
        log: FilteringBoundLogger,
    ) -> None:
        """`rebuild` empties a replica and gives it the role that the image says."""
        self._controller = controller
        self._rebuild = rebuild
        self._log = log
        self._unreported: dict[ReplicaKey, bool] = {}
        self._known: dict[ReplicaKey, str] = {}
        """All of them, with their names."""
        self.doubted: set[ReplicaKey] = set()
        """Damaged ones whose records nobody else had when that was found. They are looked at whenever the ISR changes,
        since damage is told once."""
        self._task: asyncio.Task[None] | None = None

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def add(self, key: ReplicaKey, name: str, reason: str, *, rebuild: bool, is_new: bool = False) -> None:
        """A replica is lost. Idempotent until it is rebuilt; without `rebuild` that is left to an administrator, who
        may restore its files. `is_new`: it had no records yet, and could not be created."""
        if key in self._known:
            return
        self.doubted.discard(key)
        self._known[key] = name
        self._unreported[key] = rebuild
        if not is_new:
            self._log.error("a replica is lost, others have its records", partition=name, why=reason)
        if self._task is None:
            self._task = asyncio.ensure_future(self._report())
            self._task.add_done_callback(self._reported)

    def forget(self, key: ReplicaKey) -> None:
        """The replica is not here any more."""
        self.doubted.discard(key)
        self._known.pop(key, None)
        self._unreported.pop(key, None)

    async def _report(self) -> None:
        while self._unreported:
            reporting = dict(self._unreported)
            try:
                await self._controller.replicas_lost(list(reporting))
            except LogboomError as error:
                self._log.warning("lost replicas are not reported yet", count=len(reporting), reason=str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            for key, rebuild in reporting.items():
                self._unreported.pop(key, None)
                if rebuild and key in self._known:
                    await self._restore(key)

    async def _restore(self, key: ReplicaKey) -> None:
        name = self._known.pop(key)
        try:
            await self._rebuild(key)
        except (LogboomError, OSError) as error:
            self._log.error("a replica cannot be rebuilt yet", partition=name, why=str(error))
            self._known[key] = name
            self._unreported[key] = True
            await asyncio.sleep(_RETRY_S)

    def _reported(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._log.error("lost replicas are not reported, on an internal error", exc_info=fault)

    async def stop(self) -> None:
        """Report no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
