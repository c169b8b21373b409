"""The archive in an object store without rename: staged objects are copied to their names after the manifest is
written. In HDFS, which has rename, they are moved.

As on a file system, a batch is committed by one manifest that lists its files; an object appears atomically. Tasks
write below `_logboom`, which readers ignore. After the manifest, the store copies each object to its final name, and
the staged objects are deleted. A crash before the manifest leaves nothing visible. After a crash behind the manifest,
the next start repeats the copies, which writes the same bytes to the same names. So a reader never sees an event twice,
and no events of a batch that will be repeated.

Knows Arrow's file systems and manifests. Must not know Spark.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from pyarrow.fs import FileSelector, FileType

from logboom.pipeline.plan.stores import StoreRef, is_in_hdfs
from logboom.pipeline.sinks.parquet.archive import HIDDEN, NOTHING, Manifest, next_manifest
from logboom.pipeline.sinks.parquet.staging import Report
from logboom.pipeline.sinks.parquet.stores import open_store

_KEPT_MANIFESTS: Final = 20
_REQUESTS_AT_ONCE: Final = 16
_MANIFEST: Final = re.compile(r"(\d+)\.json")


class ObjectArchive:
    """The part of an archive that one delivery owns. `owner` identifies the delivery; another checkpoint is another
    owner."""

    def __init__(self, store: StoreRef, owner: str) -> None:
        """Open the archive.

        :raises OSError: the store is not reachable or refuses access.
        """
        self.store = store
        self.owner = owner
        self._files, self.root = open_store(store)
        self._manifests = f"{self.root}/{HIDDEN}/manifests/{owner}"
        self._staging = f"{self.root}/{HIDDEN}/staging/{owner}"
        self._attempts = 0
        self._is_in_doubt = False
        """Whether the manifest of a batch may be in the store although its request failed, or may still arrive."""
        self._is_in_place = True
        """Whether the objects of the last manifest are in place."""
        self.state = self._recovered()

    def staging_for(self, batch: int) -> str:
        """Return the prefix for the objects of an attempt at a batch, relative to the root.

        Objects of a failed attempt are removed, unless a manifest that lists them may be found after a crash.
        """
        self._attempts += 1
        if not self._is_in_doubt:
            self._remove(f"{self._staging}/{batch}")
        return f"{HIDDEN}/staging/{self.owner}/{batch}/{self._attempts}"

    def commit(self, batch: int, reports: Iterable[Report]) -> Manifest:
        """Commit a batch: add its objects to the archive."""
        assert batch > self.state.batch
        assert self._is_in_place
        manifest = next_manifest(self.state, batch, list(reports))
        self._is_in_doubt = True
        with self._files.open_output_stream(f"{self._manifests}/{batch:012}.json") as file:
            file.write(msgspec.json.encode(manifest))
        self._is_in_doubt, self._is_in_place = False, False
        self.state = manifest
        self.settle()
        self._remove(f"{self._staging}/{batch}")
        for number, path in self._numbered()[:-_KEPT_MANIFESTS]:
            assert number < batch
            self._files.delete_file(path)
        return manifest

    def settle(self) -> Manifest | None:
        """Copy the objects of the last batch into place, if an attempt could not do this; returns its report then."""
        if self._is_in_place:
            return None
        self._put_in_place(self.state)
        self._is_in_place = True
        return self.state

    def _recovered(self) -> Manifest:
        """Load the last manifest and complete its copies. Staged objects without a manifest are removed."""
        kept = self._numbered()
        state = NOTHING
        if kept:
            with self._files.open_input_stream(kept[-1][1]) as file:
                state = msgspec.json.decode(file.read(), type=Manifest)
        self._put_in_place(state)
        self._remove(self._staging)
        return state

    def _put_in_place(self, manifest: Manifest) -> None:
        """Copy the objects that are still staged. The others are in place, or were deleted from the archive later."""
        staged = [f"{self.root}/{file.staged}" for file in manifest.files]
        there = [info.type == FileType.File for info in self._files.get_file_info(staged)] if staged else []
        left = [
            (source, f"{self.root}/{file.final}")
            for source, file, is_there in zip(staged, manifest.files, there, strict=True)
            if is_there
        ]
        self._at_once(self._files.move if is_in_hdfs(self.store.url) else self._files.copy_file, left)

    def _numbered(self) -> list[tuple[int, str]]:
        selector = FileSelector(self._manifests, allow_not_found=True)
        found = [(_MANIFEST.fullmatch(info.base_name), info.path) for info in self._files.get_file_info(selector)]
        return sorted((int(match[1]), path) for match, path in found if match is not None)

    def _remove(self, directory: str) -> None:
        """Delete objects one by one: not every server supports deleting many at once, as `delete_dir` does."""
        selector = FileSelector(directory, allow_not_found=True, recursive=True)
        objects = [(info.path,) for info in self._files.get_file_info(selector) if info.type == FileType.File]
        self._at_once(self._files.delete_file, objects)
        if objects:
            with contextlib.suppress(OSError):  # the rest are empty objects that mark directories
                self._files.delete_dir(directory)

    def _at_once(self, request: Callable[..., object], of: Sequence[tuple[str, ...]]) -> None:
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="archive") as pool:
            for done in [pool.submit(request, *arguments) for arguments in of]:
                done.result()


def try_store(store: StoreRef) -> None:
    """Write and delete a small object below `_logboom`, to check access; OSError if that fails."""
    files, root = open_store(store)
    path = f"{root}/{HIDDEN}/connect"
    with files.open_output_stream(path) as file:
        file.write(b"logboom pipeline check --connect\n")
    files.delete_file(path)
