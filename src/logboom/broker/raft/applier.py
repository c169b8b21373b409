"""Applies what is committed to the state machine, one entry after the other, in the order of the node.

Between two applications, when the state machine stands still, a snapshot of it may be taken.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logboom.base.units import KIB
from logboom.broker.raft.ports import StateMachine
from logboom.raft import Apply, Entry, EntryType, Index, Restore, Snapshot

_ENTRIES_PER_TURN: Final = 64
_BYTES_PER_TURN: Final = 64 * KIB
"""After this many entries, or bytes of them, other tasks of the loop run, whether or not the state machine waited for
anything. Changes of 500 partitions are some 30 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplierEvents:
    """Callbacks of the applier. On the loop."""

    entry_applied: Callable[[Entry], None]
    restored: Callable[[Snapshot], None]
    applied: Callable[[Index], None]
    """All entries of one `Apply` are applied, the last of which has this index."""

    at_rest: Callable[[], None]
    """The state machine stands still until this returns."""

    failed: Callable[[Exception], None]
    """The state machine raised an error. Nothing more is applied."""


class Applier:
    """See the module. Life: made on the loop; `stop` ends it behind the entry that is being applied."""

    def __init__(self, machine: StateMachine, index: Index, events: ApplierEvents) -> None:
        """`index`: what the state machine has applied already."""
        self.index = index
        self._machine = machine
        self._events = events
        self._queue: deque[Apply | Restore] = deque()
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    @property
    def idle(self) -> bool:
        """Whether the state machine stands still now."""
        return self._task is None

    def put(self, work: Apply | Restore) -> None:
        """Do it behind everything that was put before."""
        if not self._ended:
            self._queue.append(work)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Return once nothing is being applied any more."""
        self._ended = True
        self._queue.clear()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._queue:
                work = self._queue.popleft()
                if isinstance(work, Restore):
                    await self._restore(work.snapshot)
                else:
                    await self._apply(work.entries)
                if not self._ended:
                    self._events.at_rest()
        except Exception as error:  # noqa: BLE001 - outermost: whatever the state machine raised, it is not usable any more
            self._ended = True
            self._queue.clear()
            self._events.failed(error)
        finally:
            self._task = None

    async def _restore(self, snapshot: Snapshot) -> None:
        await self._machine.restore(snapshot.index, snapshot.data)
        self.index = snapshot.index
        self._events.restored(snapshot)

    async def _apply(self, entries: tuple[Entry, ...]) -> None:
        turn_bytes = 0
        for number, entry in enumerate(entries, 1):
            if entry.type is EntryType.NORMAL and entry.data:
                await self._machine.apply(entry.index, entry.data)
            self.index = entry.index
            self._events.entry_applied(entry)
            if self._ended:
                return
            turn_bytes += len(entry.data)
            if number % _ENTRIES_PER_TURN == 0 or turn_bytes >= _BYTES_PER_TURN:
                turn_bytes = 0
                await asyncio.sleep(0)
        self._events.applied(entries[-1].index)
