"""Where a checkpoint is kept for good: on the disk that it is written to, or in a bucket beside it.

A checkpoint on a disk is durable when its files are; nothing more is to be done, and `OnDisk` does nothing. Who runs a
pipeline asks for a `Keeping` and calls it at the moments that `bucket` lists. Must not know Spark's API, the log or
sinks.
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
        """Whether what keeps it did not answer the last time."""
        ...

    @property
    def fatal(self) -> PipelineError | None:
        """Why this run may not go on, where it may not."""
        ...

    def look(self) -> None:
        """Makes the files as they were kept last."""
        ...

    def open(self, stop: threading.Event) -> None:
        """The same, and takes the checkpoint over; to be called behind its lock. `stop` ends a wait for a driver that
        had it before."""
        ...

    def close(self, *, ended: bool) -> None:
        """Gives it up. `ended`: no batch is under way."""
        ...

    def save(self, area: str | None) -> None:
        """Returns when the files of an area are kept as they are now; None for all of them."""
        ...

    def committed(self, query: Path) -> Offsets | None:
        """Where the last batch of a query ended that would not run again, whatever is lost here; None before it."""
        ...


class OnDisk:
    """The files are the checkpoint."""

    is_away = False
    fatal: PipelineError | None = None

    def look(self) -> None:
        """They are as they are."""

    def open(self, stop: threading.Event) -> None:
        """The lock is all."""

    def close(self, *, ended: bool) -> None:
        """The lock is all."""

    def save(self, area: str | None) -> None:
        """Who wrote them made them durable."""

    def committed(self, query: Path) -> Offsets | None:
        """As Spark's files say, once they are durable too."""
        return durably_committed(query)


def keeping_of(plan: Plan) -> Keeping:
    """How the checkpoint of a plan is kept. Nothing is asked yet."""
    if plan.checkpoint_store is msgspec.UNSET:
        return OnDisk()
    from logboom.pipeline.checkpoint.bucket.bucket_mirror import BucketMirror

    return BucketMirror(_objects_of(plan.checkpoint_store), checkpoint_of(plan))


def _objects_of(store: StoreRef) -> "Objects":
    """The objects of a checkpoint. Nothing is asked yet."""
    if is_in_hdfs(store.url):
        from logboom.pipeline.checkpoint.bucket.bundle_log import OBJECTS
        from logboom.pipeline.checkpoint.bucket.hdfs_objects import HdfsObjects

        return HdfsObjects(store, OBJECTS)
    from logboom.pipeline.checkpoint.bucket.objects import ObstoreObjects

    return ObstoreObjects(store)


@contextlib.contextmanager
def opened_to_read(plan: Plan) -> Iterator[Path]:
    """The files of a checkpoint for a command that only looks at them: of one in a bucket a copy, unless the pipeline
    runs here; a copy lacks the tables of `enrich` and of states."""
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
    """A small file that commands write while the pipeline may run."""

    def read(self) -> bytes | None:
        """What was written last; None where nothing was."""
        ...

    def write(self, data: bytes) -> None:
        """Durably."""
        ...


@dataclass(frozen=True, slots=True)
class FileOnDisk:
    """A `KeptFile` of a checkpoint on a disk."""

    path: Path

    def read(self) -> bytes | None:
        """What is in it."""
        return self.path.read_bytes() if self.path.exists() else None

    def write(self, data: bytes) -> None:
        """Whole, or not at all."""
        make_dir(self.path.parent)
        write_durably(self.path, data)


@dataclass(frozen=True, slots=True)
class FileInBucket:
    """A `KeptFile` that is an object beside the bundles."""

    objects: "Objects"
    path: str

    def read(self) -> bytes | None:
        """What is in it."""
        with contextlib.suppress(FileNotFoundError):
            return self.objects.get(self.path)
        return None

    def write(self, data: bytes) -> None:
        """Whole, or not at all."""
        self.objects.put(self.path, data)


def retried_letters_of(plan: Plan) -> KeptFile:
    """Where it is kept which dead letters were sent once more."""
    if plan.checkpoint_store is msgspec.UNSET:
        return FileOnDisk(checkpoint_of(plan) / "dead-letters" / "retried.json")
    return FileInBucket(_objects_of(plan.checkpoint_store), "retried.json")


def is_in_bucket(plan: Plan) -> bool:
    """Whether the directory of the checkpoint's files may be lost."""
    return plan.checkpoint_store is not msgspec.UNSET


def where_kept(plan: Plan) -> str:
    """The checkpoint in words: its URL or its directory."""
    return str(checkpoint_of(plan)) if plan.checkpoint_store is msgspec.UNSET else plan.checkpoint_store.url


def try_keeping(plan: Plan) -> None:
    """Whether the bucket of a checkpoint lets objects be made, refuses to make one twice, and gives and removes them.

    :raises PipelineError: what it does not do.
    """
    if plan.checkpoint_store is msgspec.UNSET:
        return
    from logboom.pipeline.checkpoint.bucket.bucket_mirror import check_conditions

    check_conditions(_objects_of(plan.checkpoint_store))
