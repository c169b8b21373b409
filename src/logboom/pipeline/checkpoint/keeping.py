"""Where a checkpoint is kept permanently: on the disk to which it is written, or also in a bucket.

A checkpoint on a disk is durable when its files are, so `OnDisk` does nothing. The code that runs a pipeline calls a
`Keeping` at the moments that the docstring of `bucket` lists. Must not know Spark's API, the log or sinks.
"""

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from logboom.pipeline.checkpoint.files import is_locked, make_dir, write_durably
from logboom.pipeline.checkpoint.spark_log import Offsets, durably_committed
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.plan.paths import checkpoint_of
from logboom.pipeline.plan.stores import StoreRef, is_in_hdfs

if TYPE_CHECKING:
    from logboom.pipeline.checkpoint.bucket.objects import Objects

LOCK: Final = "lock"
_NOT_LOOKED_AT: Final = ("state/segments/", "tables/")


class Keeping(Protocol):
    """A checkpoint whose files are below `checkpoint_of(plan)`."""

    @property
    def is_away(self) -> bool:
        """Whether the store failed to answer the last request."""
        ...

    @property
    def fatal(self) -> PipelineError | None:
        """Why this run may not continue; None if it may."""
        ...

    def look(self) -> None:
        """Restores the files as they were saved last."""
        ...

    def open(self, stop: threading.Event) -> None:
        """Restores the files and takes the checkpoint over. Call it while holding the lock. `stop` ends the wait for
        the previous driver."""
        ...

    def close(self, *, ended: bool) -> None:
        """Gives up ownership. `ended`: no batch is running."""
        ...

    def save(self, area: str | None) -> None:
        """Returns when the current files of an area are saved; None means all areas."""
        ...

    def committed(self, query: Path) -> Offsets | None:
        """The end offsets of the last batch of a query that will not be repeated even if this machine is lost; None
        before the first."""
        ...


class OnDisk:
    """The files are the checkpoint."""

    is_away = False
    fatal: PipelineError | None = None

    def look(self) -> None:
        """Nothing to restore."""

    def open(self, stop: threading.Event) -> None:
        """The lock is sufficient."""

    def close(self, *, ended: bool) -> None:
        """The lock is sufficient."""

    def save(self, area: str | None) -> None:
        """The writers have already made the files durable."""

    def committed(self, query: Path) -> Offsets | None:
        """Taken from Spark's files, after making them durable."""
        return durably_committed(query)


def keeping_of(plan: Plan) -> Keeping:
    """How the checkpoint of a plan is kept. Sends no request yet."""
    if plan.checkpoint_store is msgspec.UNSET:
        return OnDisk()
    from logboom.pipeline.checkpoint.bucket.bucket_mirror import BucketMirror

    return BucketMirror(_objects_of(plan.checkpoint_store), checkpoint_of(plan))


def _objects_of(store: StoreRef) -> "Objects":
    """The objects of a checkpoint. Sends no request yet."""
    if is_in_hdfs(store.url):
        from logboom.pipeline.checkpoint.bucket.bundle_log import OBJECTS
        from logboom.pipeline.checkpoint.bucket.hdfs_objects import HdfsObjects

        return HdfsObjects(store, OBJECTS)
    from logboom.pipeline.checkpoint.bucket.objects import ObstoreObjects

    return ObstoreObjects(store)


@contextlib.contextmanager
def opened_to_read(plan: Plan) -> Iterator[Path]:
    """The files of a checkpoint for a command that only reads them. For a checkpoint in a bucket it is a copy, unless
    the pipeline runs on this machine. A copy lacks the tables of `enrich` and of states."""
    directory = checkpoint_of(plan)
    if plan.checkpoint_store is msgspec.UNSET or is_locked(directory / LOCK):
        yield directory
        return
    from logboom.pipeline.checkpoint.bucket.bundle_log import content_of, newest_state
    from logboom.pipeline.checkpoint.bucket.working_tree import WorkingTree

    objects = _objects_of(plan.checkpoint_store)
    files = newest_state(objects).files
    looked_at = {path: entry for path, entry in files.items() if not path.startswith(_NOT_LOOKED_AT)}
    with tempfile.TemporaryDirectory(prefix="logboom-checkpoint-") as copy:
        WorkingTree(Path(copy)).make(looked_at, partial(content_of, objects))
        yield Path(copy)


class KeptFile(Protocol):
    """A small file that commands may write while the pipeline runs."""

    def read(self) -> bytes | None:
        """The last content written; None if there is none."""
        ...

    def write(self, data: bytes) -> None:
        """Writes the file durably."""
        ...


@dataclass(frozen=True, slots=True)
class FileOnDisk:
    """A `KeptFile` of a checkpoint on a disk."""

    path: Path

    def read(self) -> bytes | None:
        """The content."""
        return self.path.read_bytes() if self.path.exists() else None

    def write(self, data: bytes) -> None:
        """Writes the content atomically."""
        make_dir(self.path.parent)
        write_durably(self.path, data)


@dataclass(frozen=True, slots=True)
class FileInBucket:
    """A `KeptFile` that is an object beside the bundles."""

    objects: "Objects"
    path: str

    def read(self) -> bytes | None:
        """The content."""
        with contextlib.suppress(FileNotFoundError):
            return self.objects.get(self.path)
        return None

    def write(self, data: bytes) -> None:
        """Writes the content atomically."""
        self.objects.put(self.path, data)


def retried_letters_of(plan: Plan) -> KeptFile:
    """The file that lists retried dead letters."""
    if plan.checkpoint_store is msgspec.UNSET:
        return FileOnDisk(checkpoint_of(plan) / "dead-letters" / "retried.json")
    return FileInBucket(_objects_of(plan.checkpoint_store), "retried.json")


def is_in_bucket(plan: Plan) -> bool:
    """Whether the directory of the checkpoint's files may be lost."""
    return plan.checkpoint_store is not msgspec.UNSET


def where_kept(plan: Plan) -> str:
    """The checkpoint as text: its URL or its directory."""
    return str(checkpoint_of(plan)) if plan.checkpoint_store is msgspec.UNSET else plan.checkpoint_store.url


def try_keeping(plan: Plan) -> None:
    """Checks that the bucket of a checkpoint can create, read and delete objects, and refuses to create one twice.

    :raises PipelineError: says which of these it does not support.
    """
    if plan.checkpoint_store is msgspec.UNSET:
        return
    from logboom.pipeline.checkpoint.bucket.bucket_mirror import check_conditions

    check_conditions(_objects_of(plan.checkpoint_store))
