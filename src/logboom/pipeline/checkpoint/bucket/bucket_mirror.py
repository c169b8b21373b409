"""Keeps the working directory of a checkpoint and the bucket the same, from the driver that owns the two.

`open` makes the directory as the bucket says and takes over. `save` puts one bundle with what has changed in an area;
it returns when that is durable. Threads of several queries save; their bundles come one after the other.
"""

import contextlib
import os
import socket
import threading
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from logboom.pipeline.checkpoint.bucket.bundle_log import (
    BUNDLES,
    OBJECTS,
    at_once,
    bundle_at,
    bundle_path,
    content_of,
    newest_state,
    numbers,
    object_path,
)
from logboom.pipeline.checkpoint.bucket.bundles import (
    Bundle,
    FileEntry,
    Kind,
    State,
    changes,
    encoded,
    listing_digest,
    objects_of,
    removable,
)
from logboom.pipeline.checkpoint.bucket.objects import Objects, StoreError, TakenError
from logboom.pipeline.checkpoint.bucket.working_tree import Read, WorkingTree, entries_of, newest_number
from logboom.pipeline.checkpoint.spark_log import Offsets, offsets_of
from logboom.pipeline.errors import PipelineError

_BUNDLES_BETWEEN_FULL: Final = 64
_CLAIM_TRIES: Final = 20
_LOOK_EVERY_S: Final = 2.0
_NOTICED_WITHIN_S: Final = 10.0
_CLAIMS_KEPT: Final = timedelta(days=30)
"""No driver that slept so long has credentials, or a connection, that a store would still take."""


class ReplacedError(PipelineError):
    """Another driver has taken over the checkpoint: this one must not commit anything any more."""


class BucketMirror:
    """One driver's hold on a checkpoint in a bucket."""

    def __init__(self, objects: Objects, directory: Path) -> None:
        self._objects = objects
        self._tree = WorkingTree(directory)
        self._lock = threading.Lock()
        self._writer = uuid.uuid4().hex
        self._place = f"{socket.gethostname()}:{directory}"
        self._closed = threading.Event()
        self._state = State()
        self._in_doubt: Bundle | None = None
        """A bundle that may have come to the store although its request failed, or come still."""
        self._previous_full = 0
        self._unused: tuple[set[str], set[str]] = (set(), set())
        """Objects that no file is in any more: since before the last full bundle, and since."""
        self.is_away = False
        """Whether the store did not answer the last time."""
        self.fatal: PipelineError | None = None
        """Set where this driver may not go on."""

    def look(self) -> None:
        """Makes the working directory as the bucket says, and takes nothing over."""
        self._state = newest_state(self._objects)
        self._tree.make(self._state.files, partial(content_of, self._objects))

    def open(self, stop: threading.Event) -> None:
        """The same, and takes over: who had the checkpoint before can put no more bundles.

        A driver before it that may still run is given the time to notice (`_watch`), unless `stop` is set.
        """
        for _ in range(_CLAIM_TRIES):
            self.look()
            before, claim = self._state.place, self._next("claim", self._state)
            try:
                self._objects.put_new(bundle_path(claim.number), encoded(claim))
            except TakenError:
                if not self._is_ours(claim.number):
                    continue  # the other driver was quicker: what it has put counts
            _check_refused(self._objects, bundle_path(claim.number), encoded(claim))
            self._state = self._state.after(claim)
            self._sweep(claim.number)
            if before not in (None, self._place):
                stop.wait(_NOTICED_WITHIN_S)
            threading.Thread(target=self._watch, name="checkpoint", daemon=True).start()
            return
        raise PipelineError(f"{self._objects.url} is written by another driver, again and again: stop that one first")

    def close(self, *, ended: bool) -> None:
        """Ends the hold. `ended`: no batch is under way any more, so who takes over need not wait."""
        self._closed.set()
        with self._lock, contextlib.suppress(StoreError):
            if ended and self.fatal is None:
                self._settle()
                self._put(self._next("delta", self._state, ended=True))

    def save(self, area: str | None) -> None:
        """Makes durable what an area has now; None for all areas, at a time when nothing writes any of them.

        :raises ReplacedError: another driver has taken over.
        :raises StoreError: it may not be durable; the next call makes good for it.
        """
        with self._lock:
            if self.fatal is not None:
                raise self.fatal
            try:
                self._settle()
                self._save(area)
            except StoreError:
                self.is_away = True
                raise
            except PipelineError as error:
                self.fatal = error
                raise
            self.is_away = False

    def committed(self, query: Path) -> Offsets | None:
        """Where the last batch of a query ended whose commit the bucket has; None before the first."""
        below = query.relative_to(self._tree.directory).as_posix()
        last = newest_number(self._state.files, f"{below}/commits")
        return None if last is None else offsets_of(query, last)

    def _save(self, area: str | None) -> None:
        found, gone = self._tree.changed(area, self._state.files)
        if not found and not gone:
            return
        entries = entries_of(found, self._upload(found))
        files = {**self._state.files, **entries}
        for path in gone:
            del files[path]
        is_full = self._state.number + 1 - self._state.base >= _BUNDLES_BETWEEN_FULL
        self._put(self._next("full" if is_full else "delta", self._state, files))
        if is_full:
            self._remove_old()

    def _put(self, bundle: Bundle) -> None:
        self._in_doubt = bundle
        self._settle()

    def _watch(self) -> None:
        """Notices a driver that has taken over also while there is nothing to save."""
        while not self._closed.wait(_LOOK_EVERY_S) and self.fatal is None:
            number = self._state.number + 1
            with contextlib.suppress(FileNotFoundError, PipelineError):
                if bundle_at(self._objects, number).writer != self._writer:
                    self.fatal = self._replaced(number)

    def _upload(self, found: Mapping[str, Read]) -> dict[str, str]:
        """Puts larger files into objects of new names: one that is removed late can be nobody else's."""
        large = {path: uuid.uuid4().hex for path, read in found.items() if read.data is None}
        at_once(lambda path: self._objects.put_file(object_path(large[path]), self._tree.directory / path), large)
        return large

    def _next(
        self, kind: Kind, state: State, files: Mapping[str, FileEntry] | None = None, *, ended: bool = False
    ) -> Bundle:
        number, files = state.number + 1, state.files if files is None else files
        changed, removed = (dict(files), []) if kind == "full" else changes(state.files, files)
        return Bundle(
            number=number,
            kind=kind,
            writer=self._writer,
            host=f"{socket.gethostname()}, process {os.getpid()}",
            place=self._place,
            ended=ended,
            made_at=datetime.now(UTC).isoformat(timespec="seconds"),
            base=number if kind == "full" else state.base,
            changed=changed,
            removed=removed,
            listing=listing_digest(files),
            claims=list(state.claims) if kind == "full" else [],
        )

    def _settle(self) -> None:
        """Puts the bundle that is in doubt, unless it is there."""
        bundle = self._in_doubt
        if bundle is None:
            return
        try:
            self._objects.put_new(bundle_path(bundle.number), encoded(bundle))
        except TakenError:
            if not self._is_ours(bundle.number):
                raise self._replaced(bundle.number) from None
        self._unused[1].update(objects_of(self._state.files))
        if bundle.kind == "full":
            self._previous_full = self._state.base
        self._state, self._in_doubt = self._state.after(bundle), None
        self._unused[1].difference_update(objects_of(self._state.files))

    def _is_ours(self, number: int) -> bool:
        """Whether a bundle that is there is the one of this driver: an answer may have been lost."""
        try:
            return bundle_at(self._objects, number).writer == self._writer
        except FileNotFoundError:
            return False

    def _replaced(self, number: int) -> ReplacedError:
        try:
            other = bundle_at(self._objects, number)
            who = f"by {other.host}, at {other.made_at}"
        except (FileNotFoundError, PipelineError):
            who = "by another driver"
        return ReplacedError(
            f"the checkpoint {self._objects.url} was taken over {who}: this run ends; nothing is lost, the other "
            "goes on with what this one has committed"
        )

    def _remove_old(self) -> None:
        """Behind a full bundle: removes what nobody has needed since the full one before."""
        with contextlib.suppress(StoreError):  # what is left is tried again behind the next
            there = numbers(self._objects.list(BUNDLES))
            newest = there[self._state.number].modified
            expired = [number for number, one in there.items() if newest - one.modified > _CLAIMS_KEPT]
            old = removable(self._state, list(there), expired, self._previous_full)
            unused = [object_path(name) for name in self._unused[0]]
            self._objects.delete([*map(bundle_path, old), *unused])
            claims = tuple(number for number in self._state.claims if number not in expired)
            self._state = replace(self._state, claims=claims)
            self._unused = (self._unused[1], set())

    def _sweep(self, claim: int) -> None:
        """Removes objects that no bundle names, which a driver left that was killed between the two.

        Of those alone that are older than this driver's claim: it may have slept since, and been replaced by a driver
        whose objects its own bundles do not name.
        """
        named = {object_path(name) for name in objects_of(self._state.files)}
        with contextlib.suppress(StoreError, KeyError):
            claimed = numbers(self._objects.list(BUNDLES))[claim].modified
            there = self._objects.list(OBJECTS)
            self._objects.delete([one.path for one in there if one.path not in named and one.modified < claimed])


def check_conditions(objects: Objects) -> None:
    """Tries what a checkpoint needs with an object of its own; PipelineError says what the store does not do."""
    path, data = f"connect/{uuid.uuid4().hex}", b"logboom pipeline check --connect\n"
    objects.put_new(path, data)
    try:
        _check_refused(objects, path, data)
        if objects.get(path) != data or path not in [one.path for one in objects.list("connect")]:
            raise PipelineError(f"{objects.url}: what was put there is not found again")
    finally:
        objects.delete([path])


def _check_refused(objects: Objects, path: str, data: bytes) -> None:
    """Whether the store refuses to make an object anew: some take the condition and pay no heed to it."""
    with contextlib.suppress(TakenError):
        objects.put_new(path, data)
        raise PipelineError(
            f"the server of {objects.url} pays no heed to `If-None-Match: *`, so two drivers could have this "
            "checkpoint at once: use one that does (those of Amazon, Google and Azure, and MinIO do), or a directory"
        )
