"""Objects of a checkpoint as files of HDFS.

An object must be created only once. The name node guarantees that: it refuses to rename a file to a name that exists.
The bytes are sent first, under a temporary name among the objects. If a driver is killed then, the file is removed with
the objects that no bundle names.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from logboom.pipeline.checkpoint.bucket.objects import Listed, StoreError, TakenError
from logboom.pipeline.hdfs.client import HdfsError, WebHdfs
from logboom.pipeline.plan.stores import StoreRef


class HdfsObjects:
    """`Objects` in HDFS."""

    def __init__(self, store: StoreRef, sent_to: str) -> None:
        """Sends no request yet. `sent_to`: the directory for temporary names; its unused objects may be removed."""
        self.url = store.url
        self._client = WebHdfs(store.url)
        self._root = urlsplit(store.url).path.rstrip("/")
        self._sent_to = sent_to
        self._made: set[str] = set()

    def put_new(self, path: str, data: bytes) -> None:
        with self._requests("put", path):
            sent = self._send(path, data)
            try:
                is_done = self._client.rename(sent, self._whole(path)) or self._has(path, data)
            except FileExistsError as error:
                self._client.delete(sent)
                raise TakenError(path) from error
        if not is_done:
            raise TakenError(path)

    def put(self, path: str, data: bytes) -> None:
        with self._requests("put", path):
            if not (self._client.replace(self._send(path, data), self._whole(path)) or self._has(path, data)):
                raise HdfsError("the file was removed before it could be renamed")

    def put_file(self, path: str, file: Path) -> None:
        with self._requests("put", path), file.open("rb") as content:
            self._client.replace(self._send(path, content), self._whole(path))

    def get(self, path: str) -> bytes:
        with self._requests("get", path):
            return self._client.read(self._whole(path))

    def list(self, directory: str) -> Sequence[Listed]:
        with self._requests("list", directory):
            try:
                found = list(self._client.list(self._whole(directory), recursive=True))
            except FileNotFoundError:
                return []
            return [
                Listed(one.path.removeprefix(f"{self._root}/"), datetime.fromtimestamp(one.modified_ms / 1_000, UTC))
                for one in found
                if not one.is_directory
            ]

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self._requests("delete", path):
                self._client.delete(self._whole(path))

    def _has(self, path: str, data: bytes) -> bool:
        """Whether the file has the bytes that were sent: a driver that takes over removes the temporary files of the
        previous one."""
        return self._client.read(self._whole(path)) == data

    def _whole(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _send(self, path: str, content: bytes | BinaryIO) -> str:
        """Sends the bytes of the future object. Returns the path of the temporary file; also creates the object's
        directory."""
        directory = self._whole(path).rpartition("/")[0]
        if directory not in self._made:
            self._client.make_directory(directory)
            self._made.add(directory)
        sent = self._whole(f"{self._sent_to}/{uuid.uuid4().hex}")
        self._client.create(sent, content)
        return sent

    @contextmanager
    def _requests(self, what: str, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if what == "get":
                raise
            raise StoreError(f"{self.url}: {what} {path}: {error}") from error
        except HdfsError as error:
            raise StoreError(f"{self.url}: {what} {path}: {error}") from error
