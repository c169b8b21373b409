"""Watching a table: one reader's changes for many watchers, none of which waits for another.

The reader hands each batch of changes to every watcher whose prefix fits, as a dictionary by key. A watcher that has
not come round to a key yet gets its newest change alone, so that what waits is bounded by the number of keys, and a
slow watcher never holds up the reader. The changes of one key come in order; those of different keys may come in
another order than they were made in.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

from logboom.table.entry import Change, Entry
from logboom.table.position import Position

Changes = Mapping[bytes, Change]


class Watch:
    """An iterator over changes that waits for the next one; of one thread, or of one task with `async for`.

    It ends when it or its table is closed, and raises what ended the table's reader, if that failed.
    """

    def __init__(
        self,
        prefix: bytes,
        first: Iterable[Entry | Change],
        position: Position,
        *,
        resumed: bool,
        on_close: Callable[["Watch"], None],
    ) -> None:
        self.prefix = prefix
        self.resumed = resumed
        """Whether it goes on from the position it was given. If not, what comes first is the whole table: a copy that
        is kept elsewhere drops every key that is not among it."""
        self._changed = threading.Condition()
        self._taken = deque(first)
        """What the watcher is given now. What is added meanwhile waits until this is through."""
        self._waiting: dict[bytes, Change] = {}
        self._offered = position
        """The position behind everything in `_taken` and `_waiting`."""
        self._after_taken = position
        self._given: Position | None = None
        """Everything below was given; None until the first state of the table was."""
        self._on_close = on_close
        self._ended: BaseException | None = None
        self._wake: Callable[[], None] | None = None

    # --- for the watcher ----------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        change = self.next()
        if change is None:
            raise StopIteration
        return change

    def next(self, timeout_s: float | None = None) -> Change | None:
        """The next change, waiting for it; None when the time is over or the watch is closed."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while (change := self._next_ready()) is None and not self._raise_if_failed():
                remaining_s = None if deadline_s is None else deadline_s - time.monotonic()
                if remaining_s is not None and remaining_s <= 0:
                    return None
                self._changed.wait(remaining_s)
            return change

    @property
    def position(self) -> str | None:
        """Where to resume with `Table.watch(since=...)`, once all that was given so far has been dealt with.

        None while the first state of the table is not given completely. A change may be given again after resuming;
        none is left out.
        """
        with self._changed:
            given = self._given if self._taken or self._waiting else self._offered
            return None if given is None else str(given)

    def close(self) -> None:
        """End it; a thread or task that waits for a change is let go."""
        self._on_close(self)
        self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aiter__(self) -> AsyncIterator[Change]:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(arrived.set)

        while True:
            with self._changed:
                self._wake = wake
                arrived.clear()
                change = self._next_ready()
                if change is None and self._raise_if_failed():
                    return
            if change is None:
                await arrived.wait()
            else:
                yield change

    def _next_ready(self) -> Change | None:
        """The next change that is there."""
        if self._ended:
            return None
        if not self._taken:
            self._taken.extend(self._waiting.values())
            self._waiting.clear()
            self._after_taken = self._offered
        if not self._taken:
            return None
        first = self._taken.popleft()
        if not self._taken:
            self._given = self._after_taken
        return Change(first.key, first, first.version, first.partition) if isinstance(first, Entry) else first

    def _raise_if_failed(self) -> bool:
        """Whether it has ended."""
        if isinstance(self._ended, StopIteration) or self._ended is None:
            return self._ended is not None
        raise self._ended

    # --- for the table ------------------------------------------------------------------------------------------

    def offer(self, changes: Changes, position: Position) -> None:
        """Add what is to be given, and the position behind it."""
        with self._changed:
            self._offered = position
            if changes:
                self._waiting.update(changes)
                self._notify()

    def end(self, error: BaseException | None = None) -> None:
        """Give nothing more; raise `error` to the watcher, if there is one."""
        with self._changed:
            self._ended = self._ended or error or StopIteration()
            self._notify()

    def _notify(self) -> None:
        self._changed.notify_all()
        if self._wake is not None:
            with contextlib.suppress(RuntimeError):  # the event loop that waited is closed
                self._wake()


class Watches:
    """All watchers of a table, by prefix, so that a prefix is compared once for all who watch it."""

    def __init__(self) -> None:
        self._by_prefix: dict[bytes, dict[Watch, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_prefix.values()))

    def add(self, watch: Watch) -> None:
        """Offer changes to it from now on."""
        self._by_prefix.setdefault(watch.prefix, {})[watch] = None

    def remove(self, watch: Watch) -> None:
        """Offer it nothing more."""
        group = self._by_prefix.get(watch.prefix, {})
        group.pop(watch, None)
        if not group:
            self._by_prefix.pop(watch.prefix, None)

    def offer(self, changes: Changes, position: Position) -> None:
        """Hand changes to all whom they concern, and the new position to all."""
        for prefix, group in self._by_prefix.items():
            chosen = changes
            if prefix:
                chosen = {key: change for key, change in changes.items() if key.startswith(prefix)}
            for watch in group:
                watch.offer(chosen, position)

    def end(self, error: BaseException | None = None) -> None:
        """End all."""
        for group in list(self._by_prefix.values()):
            for watch in list(group):
                watch.end(error)
        self._by_prefix.clear()
