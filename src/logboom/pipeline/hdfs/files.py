"""HDFS as a file system of Arrow, with the operations that archives and checkpoints use.

The other operations of Arrow's interface raise NotImplementedError, as Arrow's own file systems do for those that they
do not support. A file is written to a local temporary file first and sent when it is closed, because the request
contains its length. It is renamed last, so that it appears completely or not at all. Knows Arrow's interface and the
client. Must not know archives.
"""

from __future__ import annotations

import io
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType

from logboom.base.units import MIB
from logboom.pipeline.hdfs.client import HdfsError, Status, WebHdfs

_MEMORY_MAX: Final = 4 * MIB
_NOT_SUPPORTED: Final = "archives and checkpoints do not use this operation of a file system"


class HdfsHandler(FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Implements `pyarrow.fs.PyFileSystem`."""

    def __init__(self, client: WebHdfs) -> None:
        self._client = client

    def get_type_name(self) -> str:
        return "webhdfs"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[FileInfo]:
        return [_info(path, self._client.status(path)) for path in paths]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        try:
            found = list(self._client.list(selector.base_dir.rstrip("/"), recursive=selector.recursive))
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        return [_info(one.path, one) for one in found]

    def create_dir(self, path: str, recursive: bool) -> None:
        assert recursive, _NOT_SUPPORTED
        self._client.make_directory(path)

    def delete_dir(self, path: str) -> None:
        self._client.delete(path, recursive=True)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError(_NOT_SUPPORTED)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError(_NOT_SUPPORTED)

    def delete_file(self, path: str) -> None:
        self._client.delete(path)

    def move(self, source: str, target: str) -> None:
        """Rename. Creates the directory of the target if it does not exist."""
        self._client.make_directory(target.rpartition("/")[0])
        self._client.rename(source, target)

    def copy_file(self, source: str, target: str) -> None:
        raise NotImplementedError(_NOT_SUPPORTED)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        status = self._client.status(path)
        if status is None or status.is_directory:
            raise FileNotFoundError(path)
        return pa.PythonFile(_Remote(self._client, status), mode="r")

    def open_output_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> pa.NativeFile:
        return pa.PythonFile(_Upload(self._client, path), mode="w")

    def open_append_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> pa.NativeFile:
        raise NotImplementedError(_NOT_SUPPORTED)


class _Remote(io.RawIOBase):
    """A file that is read by ranges."""

    def __init__(self, client: WebHdfs, status: Status) -> None:
        self._client = client
        self._status = status
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._status.size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._status.size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        data = self._client.read(self._status.path, self._at, wanted) if wanted else b""
        if len(data) != wanted:
            raise HdfsError(f"{self._status.path} ended at {self._at + len(data)} of {self._status.size} bytes")
        self._at += wanted
        return data


class _Upload(io.RawIOBase):
    """A file that is there, whole, once it is closed."""

    def __init__(self, client: WebHdfs, path: str) -> None:
        self._client = client
        self._path = path
        self._content: Any = tempfile.SpooledTemporaryFile(_MEMORY_MAX)  # noqa: SIM115 - `close` closes it

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._content.tell())

    def write(self, data: Any) -> int:
        return int(self._content.write(data))

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        directory, _, name = self._path.rpartition("/")
        sent = f"{directory}/.{name}.{uuid.uuid4().hex}"
        with self._content:
            self._client.create(sent, self._content)
        self._client.replace(sent, self._path)


def _info(path: str, status: Status | None) -> FileInfo:
    if status is None:
        return FileInfo(path, FileType.NotFound)
    kind = FileType.Directory if status.is_directory else FileType.File
    modified = datetime.fromtimestamp(status.modified_ms / 1_000, UTC)
    return FileInfo(path, kind, size=None if status.is_directory else status.size, mtime=modified)
