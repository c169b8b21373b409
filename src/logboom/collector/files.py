"""All files of one input: found by globs, followed through rotations, read in turn, with a bounded number of handles.

It knows paths, identities and generations; cutting lines is the business of `tail`, finding rotated content that of
`rotation`. Nothing here waits: `poll` looks at what changed, `next_batch` reads one block of one file.

Life of a file: found by a glob -> watched by its path -> its path names another file or none: leaving, read to its end
by its handle -> quiet for `rotate_wait_ms`: finished. A renamed file that a glob still finds is watched on under its
new path. A file truncated in place begins a new generation; the copy that was made of the old one is read to its end
first.
"""

import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from logboom.collector.discover import Discovery, Found, look
from logboom.collector.fingerprint import Fingerprint
from logboom.collector.rotation import compressed_beside, find_copy, find_renamed, holds, may_become_copy
from logboom.collector.tail import FileBatch, FileTail, Generation, Identity, Reading, ReadRule

HOT_FOR_MS = 10_000


@dataclass(frozen=True, slots=True)
class WatchRule:
    """When files are looked at, and how many are held open."""

    start_at_end: bool = False
    discover_ms: int = 2_000
    hot_ms: int = 200
    idle_ms: int = 1_000
    rotate_wait_ms: int = 5_000
    copy_wait_ms: int = 10_000
    max_open_files: int = 512


@dataclass(slots=True, eq=False)
class Watch:
    """A file being followed and when to look at it again."""

    tail: FileTail
    identity: Identity
    path: str
    size: int = -1
    mtime_ns: int = -1
    due_ms: int = 0
    changed_ms: int = 0
    queued: bool = False
    leaving: bool = False
    rotated: bool = False
    drained: bool = False
    ended: bool = False
    after: "Watch | None" = None

    @property
    def must_wait(self) -> bool:
        """Whether the generation before this one has lines that come first."""
        return self.after is not None and (not self.after.drained or self.after.tail.holds_something)


@dataclass(slots=True)
class _Held:
    """A file that looks like a copy in the making of one that may be truncated next."""

    identity: Identity
    size: int
    until_ms: int


@dataclass(slots=True)
class FileCounters:
    """What an input of files says of itself."""

    truncations: int = 0
    rotations: int = 0
    bytes_lost: int = 0
    errors: int = 0
    refused: set[str] = field(default_factory=set)


class FileInput:
    """The files of one input. `saved` are the generations of the last run, None if there was none."""

    def __init__(
        self,
        discovery: Discovery,
        read_rule: ReadRule,
        watch_rule: WatchRule,
        saved: Iterable[Generation] | None,
        log: FilteringBoundLogger,
    ) -> None:
        self._discovery = discovery
        self._read_rule = read_rule
        self._rule = watch_rule
        self._log = log
        self._unclaimed = list(saved or ())
        self._kept: list[Generation] = []
        self._starts_at_end = watch_rule.start_at_end and saved is None
        self._by_path: dict[str, Watch] = {}
        self._live: dict[Identity, Watch] = {}
        self._latest: dict[str, Watch] = {}
        self._open: dict[Watch, None] = {}
        self._held: dict[str, _Held] = {}
        self._ready: deque[Watch] = deque()
        self._emitted: deque[FileBatch] = deque()
        self._generations: dict[Generation, None] = {}
        self._next_discover_ms = 0
        self.changed = False
        """Set when more than an acknowledgement changed what a checkpoint has to hold."""
        self.counters = FileCounters()

    # --- what the agent asks ---

    def poll(self, now_ms: int) -> None:
        """Find new files, notice growth and rotation, let silent events go."""
        if now_ms >= self._next_discover_ms:
            self._discover(now_ms)
            self._next_discover_ms = now_ms + self._rule.discover_ms
        for watch in [watch for watch in self._live.values() if watch.due_ms <= now_ms]:
            if watch.ended:
                continue
            try:
                self._look_at(watch, now_ms)
            except OSError as error:
                watch.due_ms = now_ms + self._rule.idle_ms
                self._refuse(watch.tail.location, error)

    def next_batch(self, now_ms: int) -> FileBatch | None:
        """Lines of the next file that has some; None where none has any."""
        if self._emitted:
            return self._emitted.popleft()
        passed_over = 0
        while passed_over < len(self._ready):
            watch = self._ready.popleft()
            if watch.must_wait:
                self._ready.append(watch)
                passed_over += 1
                continue
            passed_over = 0
            batch = self._read(watch, now_ms)
            if batch is not None:
                return batch
            if self._emitted:
                return self._emitted.popleft()
        return None

    def acked(self, batch: FileBatch) -> None:
        """Everything up to and including this batch is safe in the log. In order per path."""
        generation = batch.generation
        generation.acked = batch.mark
        generation.outstanding -= 1
        if generation.finished:
            self._generations.pop(generation, None)

    def generations(self) -> list[Generation]:
        """What a checkpoint has to hold."""
        return [*self._kept, *self._unclaimed, *self._generations]

    def read_to_end(self, now_ms: int) -> bool:
        """Whether every file was read to its end; then unfinished last lines and events are handed out as well."""
        if self._ready or self._held or not self._next_discover_ms:
            return False
        for watch in self._live.values():
            self._emit(watch.tail.finish(now_ms))
        return not self._emitted

    @property
    def lag_bytes(self) -> int:
        """Bytes that are in the files and not acknowledged yet, as far as was seen."""
        return sum(max(0, watch.size - watch.tail.generation.acked.position) for watch in self._live.values())

    @property
    def files_watched(self) -> int:
        """Files that are followed."""
        return len(self._live)

    @property
    def handles_open(self) -> int:
        """Handles that are held."""
        return len(self._open)

    def close(self) -> None:
        """Give every handle back."""
        for watch in list(self._open):
            self._release(watch)

    # --- finding files ---

    def _discover(self, now_ms: int) -> None:
        found_files = list(self._discovery.files(besides=self._by_path))
        for found in found_files:  # it grows: what stands where a moved file stood is new as well
            found_files += self._relocate(found)
        if self._unclaimed:
            self._claim(found_files, now_ms)
        for found in found_files:
            if found.path not in self._by_path and found.identity not in self._live:
                self._adopt_or_hold(found, now_ms)
        self._starts_at_end = False
        self._held = {path: held for path, held in self._held.items() if held.identity not in self._live}

    def _relocate(self, found: Found) -> list[Found]:
        """A file we follow may be at another path now; what took its place at the old one, if anything did."""
        watch = self._live.get(found.identity)
        if watch is None or (watch.path == found.path and not watch.leaving):
            return []
        successor = None if watch.leaving else look(watch.path)
        if successor is not None and successor.identity == found.identity:
            return []  # a link: one file under two paths is read once
        self._forget_path(watch)
        watch.path = watch.tail.location = found.path
        watch.leaving = False
        self._has_rotated(watch)
        self._by_path[found.path] = watch
        return [successor] if successor is not None else []

    def _claim(self, found_files: list[Found], now_ms: int) -> None:
        """Match what the last run left with what is there: first files that did not change, then rotated ones."""
        by_identity = {found.identity: found for found in reversed(found_files)}
        unclaimed, self._unclaimed = self._unclaimed, []
        unchanged: dict[Identity, Generation] = {}
        for generation in sorted(unclaimed, key=lambda one: -one.acked.position):
            found = by_identity.get(generation.identity)
            if found and generation.identity not in self._live and holds(found, generation.acked):
                unchanged.setdefault(generation.identity, generation)
        for generation in unclaimed:  # in the order in which they began
            if unchanged.get(generation.identity) is generation:
                self._resume(by_identity[generation.identity], generation, now_ms)
            else:
                self._find_again(generation, {*self._live, *unchanged}, now_ms)

    def _find_again(self, generation: Generation, taken: set[Identity], now_ms: int) -> None:
        if not self._discovery.is_wanted(generation.path):
            at_path = look(generation.path)
            if at_path is not None and at_path.identity == generation.identity:
                self._kept.append(generation)
            return
        content = generation.acked
        found = (
            None if generation.identity in self._live else find_renamed(generation.path, generation.identity, content)
        )
        found = found or find_copy(generation.path, content, besides=self._live)
        if found is None and not os.path.isdir(os.path.dirname(generation.path)):
            self._unclaimed.append(generation)  # not mounted, or not yet: nothing is known of it
            return
        if found is None and not content.says_nothing:
            beside = compressed_beside(generation.path)
            self._log.warning("file_gone_while_away", path=generation.path, read_to=content.position, compressed=beside)
        if found is None:
            return
        generation.identity = found.identity
        watch = self._resume(found, generation, now_ms)
        if watch is not None:
            watch.rotated = True
            if not self._discovery.is_wanted(found.path):
                self._leave(watch)

    def _resume(self, found: Found, generation: Generation, now_ms: int) -> Watch | None:
        watch = self._start(found, generation, now_ms)
        if watch is None:
            self._unclaimed.append(generation)
        return watch

    def _adopt_or_hold(self, found: Found, now_ms: int) -> None:
        if self._may_be_copy(found):
            held = self._held.get(found.path)
            if held is None or held.identity != found.identity or held.size != found.status.st_size:
                until_ms = now_ms + self._rule.copy_wait_ms
                held = self._held[found.path] = _Held(found.identity, found.status.st_size, until_ms)
            if now_ms < held.until_ms:
                return
        self._held.pop(found.path, None)
        self._adopt(found, now_ms)

    def _may_be_copy(self, found: Found) -> bool:
        directory = os.path.dirname(found.path)
        return any(
            may_become_copy(found, path, watch.tail.content())
            for path, watch in self._by_path.items()
            if os.path.dirname(path) == directory
        )

    def _adopt(self, found: Found, now_ms: int) -> None:
        generation = Generation(found.path, found.identity, Fingerprint())
        self._start(found, generation, now_ms, at_end=self._starts_at_end)

    def _start(
        self, found: Found, generation: Generation, now_ms: int, *, at_end: bool = False, position: int | None = None
    ) -> Watch | None:
        """Follow a file from `position`, else from where its generation stands; None where it cannot be opened."""
        self._make_room()
        try:
            handle = os.open(found.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self._refuse(found.path, error)
            return None
        if at_end:
            generation.acked = _end_of(handle, found.status.st_size, self._read_rule.max_line_bytes)
        start = generation.acked.position if position is None else position
        tail = FileTail(generation, found.path, self._read_rule, handle, start)
        return self._follow(Watch(tail, found.identity, found.path, changed_ms=now_ms))

    def _follow(self, watch: Watch) -> Watch:
        origin = watch.tail.generation.path
        previous = self._latest.get(origin)
        if previous is not None and previous is not watch:
            watch.after = previous
        self._latest[origin] = watch
        self._generations[watch.tail.generation] = None
        self.changed = True
        self._live[watch.identity] = watch
        self._by_path[watch.path] = watch
        self._open[watch] = None
        return watch

    # --- looking at files ---

    def _look_at(self, watch: Watch, now_ms: int) -> None:
        status = self._status(watch, now_ms)
        if status is None:
            return
        if (status.st_size, status.st_mtime_ns) != (watch.size, watch.mtime_ns):
            watch.size, watch.mtime_ns, watch.changed_ms = status.st_size, status.st_mtime_ns, now_ms
            self.changed = True
            if watch.tail.is_open and watch.tail.is_replaced():
                self._replaced(watch, now_ms)
                return
            self._queue(watch)
        elif not watch.queued:
            quiet_ms = now_ms - watch.changed_ms
            if watch.rotated and quiet_ms >= self._rule.rotate_wait_ms:
                self._retire(watch, now_ms)
            else:
                self._emit(watch.tail.idle_event(now_ms))
        is_hot = now_ms - watch.changed_ms < HOT_FOR_MS or watch.tail.holds_event
        watch.due_ms = now_ms + (self._rule.hot_ms if is_hot else self._rule.idle_ms)

    def _status(self, watch: Watch, now_ms: int) -> os.stat_result | None:
        """Of the file that is read, which may have gone from its path; None if it can be read no more."""
        if not watch.leaving:
            found = look(watch.path)
            if found is not None and found.identity == watch.identity:
                return found.status
            if not self._leave(watch):
                return None
            if found is not None and found.identity not in self._live and self._discovery.is_wanted(found.path):
                self._adopt(found, now_ms)
        return watch.tail.stat()

    def _leave(self, watch: Watch) -> bool:
        """Read on by the handle alone. False if there is no handle and the file cannot be found again."""
        self._forget_path(watch)
        watch.leaving = True
        self._has_rotated(watch)
        if not watch.tail.is_open:
            found = find_renamed(watch.tail.location, watch.identity, watch.tail.content())
            if found is None or not self._reopen(watch, found.path):
                self._emit(watch.tail.finish(watch.changed_ms))
                self._end(watch)
                return False
        return True

    def _has_rotated(self, watch: Watch) -> None:
        """What was written before the rotation is read before anything that was written after it."""
        self.counters.rotations += 1
        watch.rotated = True
        watch.drained = False
        self._queue(watch)

    def _retire(self, watch: Watch, now_ms: int) -> None:
        """A rotated file is quiet: its last line, finished or not, is handed out; without a path it is let go."""
        self._emit(watch.tail.finish(now_ms))
        if watch.leaving:
            self._end(watch)
        else:
            watch.rotated = False

    def _end(self, watch: Watch) -> None:
        self._release(watch)
        watch.drained = watch.ended = True
        generation = watch.tail.generation
        self._close(generation)
        if self._live.get(watch.identity) is watch:
            del self._live[watch.identity]
        if self._latest.get(generation.path) is watch:
            del self._latest[generation.path]

    def _queue(self, watch: Watch) -> None:
        if not watch.queued:
            watch.queued = True
            self._ready.append(watch)

    def _emit(self, batch: FileBatch | None) -> None:
        if batch is not None:
            self._emitted.append(batch)

    # --- reading ---

    def _read(self, watch: Watch, now_ms: int) -> FileBatch | None:
        """One turn of one file. It goes to the end of the queue while it has more."""
        watch.queued = False
        if watch.ended:
            return None
        watch.after = None
        batch = None
        try:
            if not watch.tail.is_open and not self._reopen(watch, watch.path):
                return None
            self._open[watch] = self._open.pop(watch)
            reading, batch = watch.tail.read(now_ms)
            if reading is Reading.REPLACED:
                self._replaced(watch, now_ms)
            elif reading is Reading.MORE:
                self._queue(watch)
            else:
                watch.drained = True
        except OSError as error:
            watch.mtime_ns = -1
            watch.due_ms = now_ms + self._rule.idle_ms
            self._refuse(watch.tail.location, error)
        return batch

    def _replaced(self, watch: Watch, now_ms: int) -> None:
        """The file was truncated: what its copy still has is read first, then its new content from the start."""
        self.counters.truncations += 1
        self._open.pop(watch, None)
        self._live.pop(watch.identity, None)
        self._forget_path(watch)
        if watch.after is not None:
            self._latest[watch.tail.generation.path] = watch.after
        else:
            self._latest.pop(watch.tail.generation.path, None)
        watch.drained = watch.ended = True
        old = watch.tail
        handle = old.detach()
        if not self._follow_copy(old, now_ms):
            self._count_lost(watch)
            self._emit(old.finish(now_ms))
            self._close(old.generation)
        fresh = Generation(old.generation.path, watch.identity, Fingerprint())
        tail = FileTail(fresh, old.location, self._read_rule, handle, 0)
        renewed = Watch(
            tail, watch.identity, watch.path, changed_ms=now_ms, leaving=watch.leaving, rotated=watch.rotated
        )
        self._follow(renewed)
        if renewed.leaving:
            self._forget_path(renewed)
        self._queue(renewed)

    def _follow_copy(self, old: FileTail, now_ms: int) -> bool:
        """Read on in the copy that was made before the truncation, if there is one."""
        found = find_copy(old.location, old.content(), besides=self._live)
        if found is None:
            return False
        before, old.generation.identity = old.generation.identity, found.identity
        copy = self._start(found, old.generation, now_ms, position=old.emitted_position)
        if copy is None:
            old.generation.identity = before
            return False
        copy.rotated = True
        self._held.pop(found.path, None)
        if not self._discovery.is_wanted(found.path):
            self._forget_path(copy)
            copy.leaving = True
        self._queue(copy)
        return True

    def _count_lost(self, watch: Watch) -> None:
        lost = max(0, watch.size - watch.tail.read_position)
        if lost:
            self.counters.bytes_lost += lost
            self._log.warning("truncated_before_read", path=watch.path, bytes_lost=lost)

    # --- handles and books ---

    def _close(self, generation: Generation) -> None:
        generation.closed = True
        self.changed = True
        if generation.finished:
            self._generations.pop(generation, None)

    def _forget_path(self, watch: Watch) -> None:
        if self._by_path.get(watch.path) is watch:
            del self._by_path[watch.path]

    def _make_room(self) -> None:
        """Give back the handle that was used longest ago: of a file read to its end, else of any that has a path."""
        while len(self._open) >= self._rule.max_open_files:
            with_path = [watch for watch in self._open if not watch.leaving]
            if not with_path:
                return
            self._release(next((watch for watch in with_path if not watch.queued), with_path[0]))

    def _release(self, watch: Watch) -> None:
        watch.tail.release()
        self._open.pop(watch, None)

    def _reopen(self, watch: Watch, path: str) -> bool:
        self._make_room()
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        status = os.fstat(handle)
        if Identity(status.st_dev, status.st_ino) != watch.identity:
            os.close(handle)
            return False
        watch.tail.take_handle(handle)
        watch.tail.location = path
        self._open[watch] = None
        return True

    def _refuse(self, path: str, error: OSError) -> None:
        """Said once per path; tried again as long as the file is there."""
        self.counters.errors += 1
        if path not in self.counters.refused:
            self.counters.refused.add(path)
            self._log.warning("file_not_readable", path=path, error=error.strerror)


def _end_of(handle: int, size: int, max_line_bytes: int) -> Fingerprint:
    """The start of the last, unfinished line; the end of the file where its last line is finished."""
    window_start = max(0, size - max_line_bytes)
    newline = os.pread(handle, size - window_start, window_start).rfind(b"\n")
    position = window_start + newline + 1 if newline >= 0 or window_start == 0 else size
    return Fingerprint.taken(position, lambda start, length: os.pread(handle, length, start))
