"""The view of a table that several threads use: the reader changes it, callers wait for it and read it.

One lock guards the view and the list of watchers, so that a watcher gets a state of the table and every change after.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from logboom.base.units import SECOND_MS
from logboom.table.entry import Change, Entry
from logboom.table.errors import TableError, TableTimeoutError
from logboom.table.position import Position
from logboom.table.stream import StreamInfo, now_s
from logboom.table.trouble import Trouble
from logboom.table.view import TableView
from logboom.table.watch import Watch, Watches

_WAIT_S: Final = 1.0
_CLOCK_SKEW_MAX_S: Final = 60.0
"""Between the machines on which a position was made and is used."""
Got = TypeVar("Got")


class LiveView:
    """See the module. Until the stream was read for the first time there is no view."""

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        self._changed = threading.Condition()
        self.info: StreamInfo | None = None
        """What was read into the view; changed inside `changing` alone."""
        self._view = TableView(())
        self._known_at_s = 0.0
        self._watches = Watches()
        self._failed: TableError | None = None
        self._closed = False

    # --- for the reader -----------------------------------------------------------------------------------------

    @property
    def positions(self) -> dict[int, int]:
        """What was read, by partition."""
        with self._changed:
            return dict(self._view.positions)

    @contextlib.contextmanager
    def changing(self) -> Iterator[dict[bytes, Change]]:
        """While the view is changed: put the changes into what this gives, newest last, to have watchers get them."""
        changes: dict[bytes, Change] = {}
        with self._changed:
            yield changes
            self._notify(changes)

    def fresh(self, known_at_s: float) -> None:
        """Everything that is not in the view yet was appended after that moment (see `Freshness`)."""
        with self._changed:
            if known_at_s > self._known_at_s:
                self._known_at_s = known_at_s
                self._changed.notify_all()

    def replace(self, view: TableView, info: StreamInfo, known_at_s: float) -> None:
        """Put a view in place that was read from the start, and tell how it differs from the one before."""
        with self._changed:
            changed = view.difference(self._view) if len(self._watches) else ()
            changes = {change.key: change for change in changed}
            self._view, self.info, self._known_at_s = view, info, known_at_s
            self._notify(changes)

    def fail(self, error: TableError) -> None:
        """The reader has ended: so does everything that waits."""
        with self._changed:
            self._failed = error
            self._watches.end(error)
            self._changed.notify_all()

    def close(self) -> None:
        """The table is closed: watchers end, and whoever waits gets an error."""
        with self._changed:
            self._closed = True
            self._watches.end()
            self._changed.notify_all()

    def _notify(self, changes: dict[bytes, Change]) -> None:
        if len(self._watches) and self.info is not None:
            self._watches.offer(changes, self._position(self.info))
        self._changed.notify_all()

    # --- for callers --------------------------------------------------------------------------------------------

    def when_read(
        self, topic_id: str, ends: Mapping[int, int], get: Callable[[TableView, StreamInfo], Got], deadline_s: float
    ) -> Got:
        """What `get` makes of the view once it has read that stream up to these offsets, and missed no deletion.

        TableTimeoutError where that takes past the deadline, in seconds of `time.monotonic`.
        """

        def is_read(view: TableView, info: StreamInfo) -> bool:
            # Without the last one, a process that was stopped for long would still answer with what was deleted
            # meanwhile: its reader finds that out only when it looks, and then reads another view.
            return (
                info.topic_id == topic_id
                and view.has_read(ends)
                and now_s() - self._known_at_s <= info.delete_retention_s
            )

        return self._when(is_read, get, deadline_s)

    def now(self, get: Callable[[TableView, StreamInfo], Got], deadline_s: float) -> Got:
        """What `get` makes of the view as it is, once there is one."""
        return self._when(lambda view, info: True, get, deadline_s)

    def _when(
        self,
        is_ready: Callable[[TableView, StreamInfo], bool],
        get: Callable[[TableView, StreamInfo], Got],
        deadline_s: float,
    ) -> Got:
        with self._changed:
            while True:
                if self._failed is not None:
                    raise self._failed
                if self._closed:
                    raise TableError("the table was closed: open it again")
                if self.info is not None and is_ready(self._view, self.info):
                    return get(self._view, self.info)
                remaining_s = deadline_s - time.monotonic()
                if remaining_s <= 0:
                    raise TableTimeoutError(f"the table could not be read to its end in time: {self._reason()}")
                self._changed.wait(min(remaining_s, _WAIT_S))

    def _reason(self) -> str:
        read = sum(self._view.positions.values())
        return str(self.trouble) or f"it is still being read, up to now {read:,} records; allow more time"

    def watch(self, view: TableView, info: StreamInfo, prefix: bytes, since: Position | None) -> Watch:
        """A new watcher of the view, inside a `get` of the methods above."""
        resumed = since is not None and self._can_resume(view, info, since)
        first: Iterable[Entry | Change]
        if since is not None and resumed:
            first = [change for change in view.changes_since(since.offsets) if change.key.startswith(prefix)]
        else:
            ambiguous = view.ambiguous
            first = [view.state(each) if each.key in ambiguous else each for each in view.entries(prefix)]
        watch = Watch(prefix, first, self._position(info), resumed=resumed, on_close=self._remove)
        self._watches.add(watch)
        return watch

    def _can_resume(self, view: TableView, info: StreamInfo, since: Position) -> bool:
        """Whether the view remembers all that happened since then, deletions included."""
        away_s = time.time() - since.known_at_ms / SECOND_MS
        return (
            since.topic_id == info.topic_id
            and -_CLOCK_SKEW_MAX_S <= away_s <= info.delete_retention_s - _CLOCK_SKEW_MAX_S
            and all(view.positions.get(index, -1) >= offset for index, offset in since.offsets.items())
            and all(since.starts.get(index, 0) >= start for index, start in view.starts.items())
        )

    def _position(self, info: StreamInfo) -> Position:
        known_at_ms = (time.time() - (now_s() - self._known_at_s)) * SECOND_MS
        return Position(info.topic_id, dict(self._view.positions), dict(self._view.starts), int(known_at_ms))

    def _remove(self, watch: Watch) -> None:
        with self._changed:
            self._watches.remove(watch)
