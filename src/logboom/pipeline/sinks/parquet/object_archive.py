"""The archive in an object store, which knows no rename: staged objects are copied to their names behind a manifest.
HDFS, which does, has them moved.

As on a file system a batch is committed by one manifest that names its files, an object that appears whole or not at
all. Tasks write below `_logboom`, which readers leave alone; behind the manifest the store itself copies each object
to its own name, and the staged ones are removed. A crash before the manifest leaves nothing that a reader sees; one
behind it is made good at the next start, since copying again puts the same bytes under the same name. So a reader never
sees an event twice, and none of a batch that is repeated.

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
    """One delivery's hold on an archive. `owner` names the delivery: another checkpoint is another owner."""

    def __init__(self, store: StoreRef, owner: str) -> None:
        """:raises OSError: the store is not there, or does not let us in."""
        self.store = store
        self.owner = owner
        self._files, self.root = open_store(store)
        self._manifests = f"{self.root}/{HIDDEN}/manifests/{owner}"
        self._staging = f"{self.root}/{HIDDEN}/staging/{owner}"
        self._attempts = 0
        self._is_in_doubt = False
        """Whether the manifest of a batch may have come to the store although its request failed, or come still."""
        self._is_in_place = True
        """Whether the objects of the last manifest are."""
        self.state = self._recovered()

    def staging_for(self, batch: int) -> str:
        """Where an attempt at a batch puts its objects, relative to the root.

        What a broken attempt left is removed, unless a manifest that names it may be found after a crash.
        """
        self._attempts += 1
        if not self._is_in_doubt:
            self._remove(f"{self._staging}/{batch}")
        return f"{HIDDEN}/staging/{self.owner}/{batch}/{self._attempts}"

    def commit(self, batch: int, reports: Iterable[Report]) -> Manifest:
        """Makes a batch's objects part of the archive, once and for all."""
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
        """Puts the objects of the last batch in place where an attempt could not; returns what it did then."""
        if self._is_in_place:
            return None
        self._put_in_place(self.state)
        self._is_in_place = True
        return self.state

    def _recovered(self) -> Manifest:
        """The last manifest, its objects in place; staged objects of no manifest are removed."""
        kept = self._numbered()
        state = NOTHING
        if kept:
            with self._files.open_input_stream(kept[-1][1]) as file:
                state = msgspec.json.decode(file.read(), type=Manifest)
        self._put_in_place(state)
        self._remove(self._staging)
        return state

    def _put_in_place(self, manifest: Manifest) -> None:
        """Copies what is still staged. What is not is in place already, or was removed from the archive since."""
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
        """One request for each object: not every server removes many at once, as `delete_dir` does."""
        selector = FileSelector(directory, allow_not_found=True, recursive=True)
        objects = [(info.path,) for info in self._files.get_file_info(selector) if info.type == FileType.File]
        self._at_once(self._files.delete_file, objects)
        if objects:
            with contextlib.suppress(OSError):  # what is left has no bytes: the marks of directories
                self._files.delete_dir(directory)

    def _at_once(self, request: Callable[..., object], of: Sequence[tuple[str, ...]]) -> None:
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="archive") as pool:
            for done in [pool.submit(request, *arguments) for arguments in of]:
                done.result()


def try_store(store: StoreRef) -> None:
    """Writes a small object below `_logboom` and removes it; OSError says what does not let us."""
    files, root = open_store(store)
    path = f"{root}/{HIDDEN}/connect"
    with files.open_output_stream(path) as file:
        file.write(b"logboom pipeline check --connect\n")
    files.delete_file(path)
