"""All files of one input: looked at for growth and rotation, read in turn, acknowledged.

Nothing here waits: `poll` looks at what changed, `next_batch` reads one block of one file. Cutting lines is `tail`'s,
the states of a file and what goes with their changes `watch`'s and `lifecycle`'s, expanding globs `prospector`'s,
finding rotated content `rotation`'s.
"""

import os
from collections.abc import Iterable

from structlog.typing import FilteringBoundLogger

from logboom.collector.discover import Discovery, look
from logboom.collector.lifecycle import FileCounters, FileLifecycle
from logboom.collector.prospector import Prospector
from logboom.collector.tail import FileBatch, Generation, Reading, ReadRule
from logboom.collector.watch import WatchedFile, WatchRule

HOT_FOR_MS = 10_000
"""A file that changed less than this long ago is looked at more often."""


class FileInput:
    """The files of one input. `saved` are the generations of the last run, None if there was none, and `saved_ns` is
    when they were saved, in nanoseconds as of `st_mtime_ns`."""

    def __init__(
        self,
        discovery: Discovery,
        read_rule: ReadRule,
        watch_rule: WatchRule,
        saved: Iterable[Generation] | None,
        saved_ns: int,
        log: FilteringBoundLogger,
    ) -> None:
        self._discovery = discovery
        self._rule = watch_rule
        self._lifecycle = FileLifecycle(discovery, read_rule, watch_rule, log)
        self._registry = self._lifecycle.registry
        self._handles = self._lifecycle.handles
        self._prospector = Prospector(discovery, watch_rule, self._lifecycle, saved, saved_ns, log)

    # --- the agent's calls ---

    def poll(self, now_ms: int) -> None:
        """Find new files, notice growth and rotation, hand on events that waited too long for their next line."""
        self._prospector.find(now_ms)
        for watch in [watch for watch in self._registry if watch.due_ms <= now_ms]:
            if watch.is_ended:  # by the look at another file of this turn
                continue
            try:
                self._look_at(watch, now_ms)
            except OSError as error:
                watch.due_ms = now_ms + self._rule.idle_ms
                self._lifecycle.log_unreadable(watch.tail.location, error)

    def next_batch(self, now_ms: int) -> FileBatch | None:
        """Lines of the next file that has some; None if none has any."""
        ready, flushed = self._lifecycle.ready, self._lifecycle.flushed
        passed_over = 0
        while not flushed and passed_over < len(ready):
            watch = ready.popleft()
            if watch.must_wait:
                ready.append(watch)
                passed_over += 1
                continue
            passed_over = 0
            batch = self._read(watch, now_ms)
            if batch is not None:
                return batch
        return flushed.popleft() if flushed else None

    def acked(self, batch: FileBatch) -> None:
        """Everything up to and including this batch is safe in the log. In order per path."""
        generation = batch.generation
        generation.acknowledge(batch.mark)
        generation.outstanding -= 1
        self._registry.drop_if_finished(generation)

    def generations(self) -> list[Generation]:
        """What a checkpoint has to hold."""
        return [*self._prospector.resting_generations, *self._registry.generations]

    @property
    def changed(self) -> bool:
        """Whether more than an acknowledgement changed what a checkpoint has to hold."""
        return self._registry.changed

    def note_checkpoint(self) -> None:
        """`generations` were made durable."""
        self._registry.changed = False

    def read_to_end(self, now_ms: int) -> bool:
        """Whether every file was read to its end; then unfinished last lines and events are handed on as well."""
        if self._lifecycle.ready or not self._prospector.has_settled:
            return False
        for watch in self._registry:
            self._lifecycle.flush(watch.tail.finish(now_ms))
        return not self._lifecycle.flushed

    @property
    def counters(self) -> FileCounters:
        """The counters since the collector started."""
        return self._lifecycle.counters

    @property
    def lag_bytes(self) -> int:
        """Bytes that are in the files and not acknowledged yet, as of the last look at each."""
        return sum(max(0, watch.size - watch.tail.generation.acked.position) for watch in self._registry)

    @property
    def files_watched(self) -> int:
        """Files that are followed."""
        return len(self._registry)

    @property
    def handles_open(self) -> int:
        """Handles that are held."""
        return len(self._handles)

    def close(self) -> None:
        """Close every handle."""
        self._handles.close()

    # --- looking at files ---

    def _look_at(self, watch: WatchedFile, now_ms: int) -> None:
        status = self._status(watch, now_ms)
        if status is None:
            return
        if (status.st_size, status.st_mtime_ns) != (watch.size, watch.mtime_ns):
            watch.size, watch.mtime_ns, watch.changed_ms = status.st_size, status.st_mtime_ns, now_ms
            self._registry.changed = True
            # Truncated and grown beyond its old size between two looks, a file only shows it by its first bytes.
            if watch.tail.is_open and watch.tail.is_replaced():
                self._lifecycle.truncate(watch, now_ms)
                return
            self._lifecycle.queue(watch)
        elif not watch.is_queued:
            quiet_ms = now_ms - watch.changed_ms
            if watch.ends_when_quiet and quiet_ms >= self._rule.rotate_wait_ms:
                self._lifecycle.retire(watch, now_ms)
            else:
                self._lifecycle.flush(watch.tail.idle_event(now_ms))
        is_hot = now_ms - watch.changed_ms < HOT_FOR_MS or watch.tail.holds_event
        watch.due_ms = now_ms + (self._rule.hot_ms if is_hot else self._rule.idle_ms)

    def _status(self, watch: WatchedFile, now_ms: int) -> os.stat_result | None:
        """Of the file that is read, which may have gone from its path; None if it can be read no more."""
        if not watch.is_detached:
            found = look(watch.path)
            if found is not None and found.identity == watch.identity:
                return found.status
            if not self._lifecycle.detach(watch):
                return None
            # The file that took its place is followed at once: waiting for the globs would delay its lines.
            is_new = found is not None and found.identity not in self._registry.by_identity
            if found is not None and is_new and self._discovery.is_wanted(found.path):
                self._prospector.follow_new(found, now_ms)
        return watch.tail.stat()

    # --- reading ---

    def _read(self, watch: WatchedFile, now_ms: int) -> FileBatch | None:
        """One turn of one file. It goes to the end of the queue while it has more."""
        watch.is_queued = False
        if watch.is_ended:
            return None
        watch.predecessor = None
        batch = None
        try:
            if not watch.tail.is_open and not self._handles.reopen(watch, watch.path):
                return None
            self._handles.mark_used(watch)
            reading, batch = watch.tail.read(now_ms)
            if reading is Reading.REPLACED:
                self._lifecycle.truncate(watch, now_ms)
            elif reading is Reading.MORE:
                self._lifecycle.queue(watch)
            else:
                watch.is_read_to_end = True
        except OSError as error:
            watch.mtime_ns = -1  # the next look takes it for changed and queues it again
            watch.due_ms = now_ms + self._rule.idle_ms
            self._lifecycle.log_unreadable(watch.tail.location, error)
        return batch
