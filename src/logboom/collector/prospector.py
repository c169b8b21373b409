"""Expands the globs of an input and decides about each file that they find; Filebeat calls this part the prospector.

A found file is one of: followed already; followed under another path (renamed); known to the checkpoint (resumed where
it was acknowledged); a copy in the making of a file that may be truncated next (not followed until it stops growing);
new.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from logboom.collector.discover import Discovery, Found, look
from logboom.collector.fingerprint import Fingerprint
from logboom.collector.lifecycle import FileLifecycle
from logboom.collector.rotation import (
    compressed_beside,
    find_copy,
    find_renamed,
    find_unseen_copies,
    has_its_name,
    holds,
    may_become_copy,
)
from logboom.collector.tail import Generation, Identity
from logboom.collector.watch import State, WatchedFile, WatchRule


@dataclass(slots=True)
class _PossibleCopy:
    """A file that looks like a copy in the making of one that may be truncated next."""

    identity: Identity
    size: int
    until_ms: int


class Prospector:
    """See the module. `saved` are the generations of the last run, None if there was none, and `saved_ns` is when they
    were saved, in nanoseconds as of `st_mtime_ns`."""

    def __init__(
        self,
        discovery: Discovery,
        rule: WatchRule,
        lifecycle: FileLifecycle,
        saved: Iterable[Generation] | None,
        saved_ns: int,
        log: FilteringBoundLogger,
    ) -> None:
        self._discovery = discovery
        self._rule = rule
        self._lifecycle = lifecycle
        self._registry = lifecycle.registry
        self._log = log
        self._unclaimed = list(saved or ())
        self._saved_ns = saved_ns
        self._unwanted: list[Generation] = []
        self._starts_at_end = rule.start_at_end and saved is None
        self._possible_copies: dict[str, _PossibleCopy] = {}
        self._next_ms = 0

    @property
    def resting_generations(self) -> list[Generation]:
        """Generations of the last run that no watched file continues; the checkpoint keeps them."""
        return [*self._unwanted, *self._unclaimed]

    @property
    def has_settled(self) -> bool:
        """Whether the globs were expanded and no found file waits to be followed."""
        followed = self._registry.by_identity
        return bool(self._next_ms) and all(copy.identity in followed for copy in self._possible_copies.values())

    def find(self, now_ms: int) -> None:
        """Expand the globs when it is time to."""
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + self._rule.discover_ms
        found_files = list(self._discovery.files(besides=self._registry.by_path))
        # The list grows while it is walked: a file that took a renamed one's place is new as well.
        for found in found_files:
            found_files += self._relocate(found)
        if self._unclaimed:
            self._claim(found_files, now_ms)
        for found in found_files:
            if found.path not in self._registry.by_path and found.identity not in self._registry.by_identity:
                self._follow_unless_copy(found, now_ms)
        self._starts_at_end = False
        self._possible_copies = {
            path: copy
            for path, copy in self._possible_copies.items()
            if copy.identity not in self._registry.by_identity
        }

    def follow_new(self, found: Found, now_ms: int) -> None:
        """Follow a file that no earlier content leads to."""
        generation = Generation(found.path, found.identity, Fingerprint())
        self._lifecycle.start(found, generation, now_ms, at_end=self._starts_at_end)

    # --- renamed files ---

    def _relocate(self, found: Found) -> list[Found]:
        """A watched file may be at another path now; what took its place at the old one, if anything did."""
        watch = self._registry.by_identity.get(found.identity)
        if watch is None or (watch.path == found.path and not watch.is_detached):
            return []
        successor = None if watch.is_detached else look(watch.path)
        if successor is not None and successor.identity == found.identity:
            return []  # a hard link: one file under two paths is read once
        self._lifecycle.rename(watch, found.path)
        return [successor] if successor is not None else []

    # --- what the last run left ---

    def _claim(self, found_files: list[Found], now_ms: int) -> None:
        """Match the checkpoint's generations with files: first those that did not change, then rotated ones."""
        by_identity = {found.identity: found for found in reversed(found_files)}
        unclaimed, self._unclaimed = self._unclaimed, []
        unchanged: dict[Identity, Generation] = {}
        # Of two contents of one inode, the one that more is known of and that still matches is the file's own: an empty
        # one matches all.
        for generation in sorted(unclaimed, key=lambda one: (-one.acked.position, -one.acked.head_bytes)):
            found = by_identity.get(generation.identity)
            if found and generation.identity not in self._registry.by_identity and holds(found, generation.acked):
                unchanged.setdefault(generation.identity, generation)
        for generation in unclaimed:  # in the order in which they began, so that older lines are read first
            if unchanged.get(generation.identity) is generation:
                if generation.acked.says_nothing:
                    self._follow_unseen_copies(generation.path, {*self._registry.by_identity, *unchanged}, now_ms)
                self._resume(by_identity[generation.identity], generation, now_ms)
            else:
                self._find_again(generation, {*self._registry.by_identity, *unchanged}, now_ms)

    def _find_again(self, generation: Generation, taken: set[Identity], now_ms: int) -> None:
        """Look for a rotated file beside the path under which its lines were written."""
        if not self._discovery.is_wanted(generation.path):
            at_path = look(generation.path)
            if at_path is not None and at_path.identity == generation.identity:
                self._unwanted.append(generation)
            return
        content = generation.acked
        found = None
        if generation.identity not in taken:
            found = find_renamed(generation.path, generation.identity, content)
        found = found or find_copy(generation.path, content, besides=taken)
        if found is None:
            self._note_missing(generation)
            return
        generation.identity = found.identity
        watch = self._resume(found, generation, now_ms)
        if watch is not None:
            self._note_rotated(watch)

    def _follow_unseen_copies(self, path: str, taken: set[Identity], now_ms: int) -> None:
        """The file at `path` was empty when it was seen last, and may have been written, copied and truncated since."""
        for found in find_unseen_copies(path, self._saved_ns, besides=taken):
            if self._discovery.is_wanted(found.path) and not has_its_name(found.path, path):
                continue  # it is found as a file of its own
            watch = self._lifecycle.start(found, Generation(path, found.identity, Fingerprint()), now_ms)
            if watch is not None:
                self._note_rotated(watch)

    def _note_rotated(self, watch: WatchedFile) -> None:
        watch.move_to(State.ROTATED)
        if not self._discovery.is_wanted(watch.path):
            self._lifecycle.detach(watch)

    def _note_missing(self, generation: Generation) -> None:
        if not os.path.isdir(os.path.dirname(generation.path)):
            self._unclaimed.append(generation)  # perhaps not mounted yet: look again at the next turn
        elif not generation.acked.says_nothing:
            self._log.warning(
                "file_missing_after_restart",
                path=generation.path,
                read_to=generation.acked.position,
                compressed=compressed_beside(generation.path),
            )

    def _resume(self, found: Found, generation: Generation, now_ms: int) -> WatchedFile | None:
        watch = self._lifecycle.start(found, generation, now_ms)
        if watch is None:
            self._unclaimed.append(generation)
        return watch

    # --- new files ---

    def _follow_unless_copy(self, found: Found, now_ms: int) -> None:
        # `copytruncate` makes the copy before it truncates. Followed at once, the copy's lines would be sent twice; so
        # it waits until it stands still, or until the truncation shows whose copy it is (`lifecycle.truncate`).
        if self._may_be_copy(found):
            copy = self._possible_copies.get(found.path)
            if copy is None or copy.identity != found.identity or copy.size != found.status.st_size:
                until_ms = now_ms + self._rule.copy_wait_ms
                copy = self._possible_copies[found.path] = _PossibleCopy(found.identity, found.status.st_size, until_ms)
            if now_ms < copy.until_ms:
                return
        self._possible_copies.pop(found.path, None)
        self.follow_new(found, now_ms)

    def _may_be_copy(self, found: Found) -> bool:
        directory = os.path.dirname(found.path)
        return any(
            may_become_copy(found, path, watch.tail.content())
            for path, watch in self._registry.by_path.items()
            if os.path.dirname(path) == directory
        )
