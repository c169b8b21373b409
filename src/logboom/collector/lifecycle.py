"""The transitions of followed files: begun, rotated, detached, truncated, ended, and the order in which they are read.

`watch` names the states; here is what goes with each change of state: handles, the queue of files to read, lines that
are handed on because no more will follow them, and the generations of the checkpoint. When to change state is decided
by `prospector` (what the globs find) and by `files` (what a look at a file shows).
"""

from collections import deque
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from logboom.collector.discover import Discovery, Found
from logboom.collector.fingerprint import Fingerprint
from logboom.collector.handles import OpenHandles
from logboom.collector.registry import FileRegistry
from logboom.collector.rotation import find_copy, find_renamed
from logboom.collector.tail import FileBatch, FileTail, Generation, ReadRule, last_line_start
from logboom.collector.watch import State, WatchedFile, WatchRule


@dataclass(slots=True)
class FileCounters:
    """What an input of files counts since the collector started."""

    truncations: int = 0
    rotations: int = 0
    bytes_lost: int = 0
    """Bytes that were truncated before they were read, with no copy of them."""
    errors: int = 0
    unreadable: set[str] = field(default_factory=set)
    """Paths that could not be opened or read; each is logged once."""


class FileLifecycle:
    """See the module. One for each input of files."""

    def __init__(
        self, discovery: Discovery, read_rule: ReadRule, watch_rule: WatchRule, log: FilteringBoundLogger
    ) -> None:
        self._discovery = discovery
        self._read_rule = read_rule
        self._log = log
        self.registry = FileRegistry()
        self.handles = OpenHandles(watch_rule.max_open_files)
        self.ready: deque[WatchedFile] = deque()
        """Watches whose files may hold unread bytes, in the order of their turns."""
        self.flushed: deque[FileBatch] = deque()
        """Lines to hand on before any file is read: unfinished ones that nothing will follow any more."""
        self.counters = FileCounters()

    # --- reading order ---

    def queue(self, watch: WatchedFile) -> None:
        """Give it a turn of reading behind the others."""
        if not watch.is_queued:
            watch.is_queued = True
            self.ready.append(watch)

    def flush(self, batch: FileBatch | None) -> None:
        """Hand lines on before any file is read."""
        if batch is not None:
            self.flushed.append(batch)

    # --- transitions ---

    def start(
        self, found: Found, generation: Generation, now_ms: int, *, at_end: bool = False, position: int | None = None
    ) -> WatchedFile | None:
        """Follow a file from `position`, else from where its generation stands; None if it cannot be opened."""
        try:
            handle = self.handles.open(found.path)
        except OSError as error:
            self.log_unreadable(found.path, error)
            return None
        if at_end:
            generation.acked = last_line_start(handle, found.status.st_size, self._read_rule.max_line_bytes)
        start = generation.acked.position if position is None else position
        tail = FileTail(generation, found.path, self._read_rule, handle, start)
        return self._add(WatchedFile(tail, found.identity, found.path, changed_ms=now_ms))

    def rename(self, watch: WatchedFile, path: str) -> None:
        """A glob found the file under another path."""
        self.registry.rename(watch, path)
        self._rotate(watch, State.ROTATED)

    def detach(self, watch: WatchedFile) -> bool:
        """No path leads to it: read on by its handle. False if it has none and the file cannot be found again."""
        self.registry.forget_path(watch)
        self._rotate(watch, State.DETACHED)
        if not watch.tail.is_open:
            found = find_renamed(watch.tail.location, watch.identity, watch.tail.content())
            if found is None or not self.handles.reopen(watch, found.path):
                self.flush(watch.tail.finish(watch.changed_ms))
                self.end(watch)
                return False
        return True

    def retire(self, watch: WatchedFile, now_ms: int) -> None:
        """A rotated file is quiet: its last line, finished or not, is handed on; without a path the file is let go."""
        self.flush(watch.tail.finish(now_ms))
        if watch.is_detached:
            self.end(watch)
        else:
            watch.move_to(State.FOLLOWED)

    def end(self, watch: WatchedFile) -> None:
        """Nothing more is read from it."""
        self.handles.release(watch)
        self.registry.end(watch)

    def truncate(self, watch: WatchedFile, now_ms: int) -> None:
        """The file was truncated in place: what a copy still holds is read first, then its new content from the start.

        That is logrotate's `copytruncate`: it copies the file, then truncates the original, and what was written in
        between is in neither.
        """
        self.counters.truncations += 1
        self.handles.forget(watch)
        state = watch.state
        self.registry.end_truncated(watch)
        old = watch.tail
        handle = old.detach()
        if not self._follow_copy(old, now_ms):
            self._count_lost(watch)
            self.flush(old.finish(now_ms))
            self.registry.close(old.generation)
        content = Generation(old.generation.path, watch.identity, Fingerprint())
        tail = FileTail(content, old.location, self._read_rule, handle, 0)
        renewed = self._add(WatchedFile(tail, watch.identity, watch.path, changed_ms=now_ms, state=state))
        if renewed.is_detached:
            self.registry.forget_path(renewed)
        self.queue(renewed)

    def log_unreadable(self, path: str, error: OSError) -> None:
        """Logged once for a path; the file is tried again as long as it is there."""
        self.counters.errors += 1
        if path not in self.counters.unreadable:
            self.counters.unreadable.add(path)
            self._log.warning("file_not_readable", path=path, error=error.strerror)

    def _add(self, watch: WatchedFile) -> WatchedFile:
        self.registry.add(watch)
        self.handles.add(watch)
        return watch

    def _rotate(self, watch: WatchedFile, state: State) -> None:
        # Whatever was written before the rotation must be read before anything that was written after it, so the file
        # counts as unread until the next turn of reading has seen its end.
        self.counters.rotations += 1
        watch.move_to(state)
        watch.is_read_to_end = False
        self.queue(watch)

    def _follow_copy(self, old: FileTail, now_ms: int) -> bool:
        """Read on in the copy that was made before the truncation, if there is one."""
        found = find_copy(old.location, old.content(), besides=self.registry.by_identity)
        if found is None:
            return False
        before, old.generation.identity = old.generation.identity, found.identity
        copy = self.start(found, old.generation, now_ms, position=old.emitted_position)
        if copy is None:
            old.generation.identity = before
            return False
        copy.move_to(State.ROTATED)
        if not self._discovery.is_wanted(found.path):
            self.registry.forget_path(copy)
            copy.move_to(State.DETACHED)
        self.queue(copy)
        return True

    def _count_lost(self, watch: WatchedFile) -> None:
        lost_bytes = max(0, watch.size - watch.tail.read_position)
        if lost_bytes:
            self.counters.bytes_lost += lost_bytes
            self._log.warning("truncated_before_read", path=watch.path, bytes_lost=lost_bytes)
