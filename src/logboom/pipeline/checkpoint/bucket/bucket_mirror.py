"""Keeps the working directory of a checkpoint and the bucket the same. Runs on the driver that owns both.

`open` restores the directory from the bucket and takes over. `save` stores one bundle with the changes of an area and
returns when it is durable. Several queries save from their own threads; their bundles are stored one at a time.
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
"""A driver that was suspended for this long no longer has credentials or a connection that a store accepts."""


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
        """A bundle that may have reached the store although its request failed, or may still reach it."""
        self._previous_full = 0
        self._unused: tuple[set[str], set[str]] = (set(), set())
        """Objects that no file needs any more: those from before the last full bundle, and those since."""
        self.is_away = False
        """Whether the store failed to answer the last request."""
        self.fatal: PipelineError | None = None
        """Set if this driver may not continue."""

    def look(self) -> None:
        """Restores the working directory from the bucket, without taking over."""
        self._state = newest_state(self._objects)
        self._tree.make(self._state.files, partial(content_of, self._objects))

    def open(self, stop: threading.Event) -> None:
        """Restores the directory and takes over: the previous owner can store no more bundles.

        If the previous driver may still run, waits until it must have noticed (`_watch`), unless `stop` is set.
        """
        for _ in range(_CLAIM_TRIES):
            self.look()
            before, claim = self._state.place, self._next("claim", self._state)
            try:
                self._objects.put_new(bundle_path(claim.number), encoded(claim))
            except TakenError:
                if not self._is_ours(claim.number):
                    continue  # the other driver was faster: its bundle counts
            _check_refused(self._objects, bundle_path(claim.number), encoded(claim))
            self._state = self._state.after(claim)
            self._sweep(claim.number)
            if before not in (None, self._place):
                stop.wait(_NOTICED_WITHIN_S)
            threading.Thread(target=self._watch, name="checkpoint", daemon=True).start()
            return
        raise PipelineError(f"{self._objects.url} is being written by another driver: stop that driver first")

    def close(self, *, ended: bool) -> None:
        """Gives up ownership. `ended`: no batch is running any more, so the next owner need not wait."""
        self._closed.set()
        with self._lock, contextlib.suppress(StoreError):
            if ended and self.fatal is None:
                self._settle()
                self._put(self._next("delta", self._state, ended=True))

    def save(self, area: str | None) -> None:
        """Makes the current files of an area durable. None means all areas; then nothing may be writing to any of them.

        :raises ReplacedError: another driver has taken over.
        :raises StoreError: the save may not be durable; the next call repairs that.
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
        """The end offsets of the last batch of a query whose commit is in the bucket; None before the first."""
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
        """Detects that another driver has taken over, also while there is nothing to save."""
        while not self._closed.wait(_LOOK_EVERY_S) and self.fatal is None:
            number = self._state.number + 1
            with contextlib.suppress(FileNotFoundError, PipelineError):
                if bundle_at(self._objects, number).writer != self._writer:
                    self.fatal = self._replaced(number)

    def _upload(self, found: Mapping[str, Read]) -> dict[str, str]:
        """Stores larger files as objects with new names, so that a late removal cannot hit another driver's object."""
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
        """Stores the bundle whose outcome is unknown, unless the bucket has it."""
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
        """Whether an existing bundle was written by this driver: the answer to its request may have been lost."""
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
            f"the checkpoint {self._objects.url} was taken over {who}: this run ends; nothing is lost: the "
            "other driver continues after the last commit of this one"
        )

    def _remove_old(self) -> None:
        """After a full bundle: removes what nothing has needed since the previous full bundle."""
        with contextlib.suppress(StoreError):  # removal of the rest is retried after the next full bundle
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
        """Removes objects that no bundle names: a driver was killed after storing the object and before storing the
        bundle.

        Only objects that are older than this driver's claim: this driver may have been suspended since and replaced by
        another, whose objects are not named in the bundles that this driver knows.
        """
        named = {object_path(name) for name in objects_of(self._state.files)}
        with contextlib.suppress(StoreError, KeyError):
            claimed = numbers(self._objects.list(BUNDLES))[claim].modified
            there = self._objects.list(OBJECTS)
            self._objects.delete([one.path for one in there if one.path not in named and one.modified < claimed])


def check_conditions(objects: Objects) -> None:
    """Tests with a temporary object whatever a checkpoint needs; PipelineError says what the store does not support."""
    path, data = f"connect/{uuid.uuid4().hex}", b"logboom pipeline check --connect\n"
    objects.put_new(path, data)
    try:
        _check_refused(objects, path, data)
        if objects.get(path) != data or path not in [one.path for one in objects.list("connect")]:
            raise PipelineError(f"{objects.url}: an object that was just stored there cannot be read back")
    finally:
        objects.delete([path])


def _check_refused(objects: Objects, path: str, data: bytes) -> None:
    """Whether the store refuses to create an object that exists: some stores accept the condition and ignore it."""
    with contextlib.suppress(TakenError):
        objects.put_new(path, data)
        raise PipelineError(
            f"the server of {objects.url} ignores `If-None-Match: *`, so two drivers could write this checkpoint "
            "at the same time: use a server that supports it (those of Amazon, Google and Azure, and MinIO do), or a "
            "directory"
        )
