"""The working directory: which of its files are kept in the bucket, what they contain, and how they are restored.

Knows the disk. Must not know the bucket: the caller supplies the content of missing files.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from logboom.pipeline.checkpoint.bucket.bundles import FileEntry, Files
from logboom.pipeline.checkpoint.files import make_dir

INLINE_BYTES_MAX: Final = 64 * 1024
"""Larger files become objects of their own."""
DELIVERIES: Final = "deliveries"
ROUTER_AREA: Final = ""
"""The area of all files that do not belong to a delivery."""
_SCRATCH: Final = re.compile(
    r"lock|reload\.(request|answer)"  # concerns only the run on this machine
    r"|(replays|dead-letters|state/exchange)/.*"
    r"|deliveries/[^/]*/file/staging/.*"
    r"|(.*/)?\..*\.(new|tmp)"  # not in place yet
    r"|state/segments/[^/]*/[0-9a-f]*\.arrow"  # not in place yet: it has no checksum in its name
)
_UNSETTLED_NS: Final = 1_000_000_000
"""If a file changed within this time before it was read, a further change may leave the same modification time: the
file is read again."""

_FILES_AT_ONCE: Final = 8

Mark = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Read:
    """What is in a file."""

    digest: bytes
    size_bytes: int
    mtime_ns: int
    data: bytes | None
    """None if it is larger than `INLINE_BYTES_MAX`."""


class WorkingTree:
    """The files below one directory; remembers the digests of files that it has read."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._known: dict[str, tuple[Mark, bytes]] = {}
        """Digest by path, and the state of the file when it was read."""

    def changed(self, area: str | None, known: Files) -> tuple[dict[str, Read], list[str]]:
        """Files of an area whose content differs from the known one, and files that were removed. None: of all
        areas."""
        found: dict[str, Read] = {}
        there = set()
        for path, file in self._files(area):
            try:
                read = self._read(path, file, known.get(path))
            except FileNotFoundError:
                continue  # Spark may remove its old files at any time
            there.add(path)
            if read is not None:
                found[path] = read
        return found, [path for path in known if in_area(path, area) and path not in there]

    def make(self, files: Files, content: Callable[[FileEntry], bytes]) -> None:
        """Makes the directory hold exactly these files, besides scratch files. `content`: gives the content of a
        missing file.

        If it is interrupted, the next call completes the work.
        """
        make_dir(self.directory)
        for path, file in self._files(None):
            if path not in files:
                file.unlink(missing_ok=True)
        with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="checkpoint") as pool:
            for done in [pool.submit(self._put_back, path, entry, content) for path, entry in files.items()]:
                done.result()

    def _put_back(self, path: str, entry: FileEntry, content: Callable[[FileEntry], bytes]) -> None:
        file = self.directory / path
        try:
            is_here = _digest(file) == entry.digest
        except FileNotFoundError:
            is_here = False
        if not is_here:
            file.parent.mkdir(parents=True, exist_ok=True)
            beside = file.with_name(f".{file.name}.new")
            beside.write_bytes(content(entry))
            beside.replace(file)
        os.utime(file, ns=(entry.mtime_ns, entry.mtime_ns))

    def _read(self, path: str, file: Path, known: FileEntry | None) -> Read | None:
        """The file; None if its content is the known one."""
        found = file.stat()
        mark = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        kept = self._known.get(path)
        if kept is not None and kept[0] == mark and known is not None and kept[1] == known.digest:
            return None
        data = file.read_bytes() if found.st_size <= INLINE_BYTES_MAX else None
        digest = _digest(file) if data is None else hashlib.sha256(data).digest()
        size_bytes = found.st_size if data is None else len(data)
        if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > _UNSETTLED_NS:
            self._known[path] = (mark, digest)
        else:
            self._known[path] = ((0, 0, 0, 0), digest)
        return (
            None if known is not None and known.digest == digest else Read(digest, size_bytes, found.st_mtime_ns, data)
        )

    def _files(self, area: str | None) -> Iterator[tuple[str, Path]]:
        root = self.directory if area is None or area == ROUTER_AREA else self.directory / area
        for directory, names, files in os.walk(root):
            below = PurePosixPath(Path(directory).relative_to(self.directory).as_posix())
            if area == ROUTER_AREA and str(below) == ".":
                names[:] = [name for name in names if name != DELIVERIES]
            for name in files:
                path = str(below / name)
                if _SCRATCH.fullmatch(path) is None:
                    yield path, Path(directory) / name


def area_of(delivery: str) -> str:
    """The area of a sink's delivery."""
    return f"{DELIVERIES}/{delivery}"


def in_area(path: str, area: str | None) -> bool:
    """Whether a file is of an area; None stands for all of them.

    >>> in_area("deliveries/a/id", "deliveries/a"), in_area("deliveries/a/id", ""), in_area("pins/x", "")
    (True, False, True)
    """
    if area is None:
        return True
    if area == ROUTER_AREA:
        return not path.startswith(f"{DELIVERIES}/")
    return path.startswith(f"{area}/")


def _digest(file: Path) -> bytes:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def newest_number(paths: Iterable[str], directory: str) -> int | None:
    """The file with the highest number among those of a directory that are named by numbers."""
    found = (PurePosixPath(path) for path in paths if path.startswith(f"{directory}/"))
    return max(
        (int(path.name) for path in found if str(path.parent) == directory and path.name.isdigit()), default=None
    )


def entries_of(found: Mapping[str, Read], objects: Mapping[str, str]) -> dict[str, FileEntry]:
    """The entries of a bundle for these files; `objects` has the object names of files that are not stored inline."""
    return {
        path: FileEntry(read.digest, read.size_bytes, read.mtime_ns, read.data, objects.get(path))
        for path, read in found.items()
    }
