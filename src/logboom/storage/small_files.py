"""Auxiliary files: small, with a checksum, either replaced whole or overwritten in place.

All of them can be made again from the log. One that is missing, cut, garbled or unreadable counts as missing, and is
reported. What prevents it from being made again, a directory of its name for example, is moved aside and never removed.
"""

import contextlib
from collections.abc import Callable
from itertools import count
from struct import Struct
from typing import Final, TypeVar

from crc32c import crc32c

from logboom.base.ports import Disk
from logboom.storage.config import Notice
from logboom.storage.faults import retriable_error_for

_HEADER: Final = Struct(">4sIII")  # tag, version, length, CRC-32C of the payload
TEMPORARY_SUFFIX: Final = ".tmp"
_ASIDE_SUFFIX: Final = ".unreadable"

Content = TypeVar("Content")
ReportNotice = Callable[[Notice], None]
"""Takes what was found wrong with a file that is then made again."""


def frame(tag: bytes, version: int, payload: bytes) -> bytes:
    """The bytes of a small file: a tag of four letters, version, length, CRC, payload."""
    return _HEADER.pack(tag, version, len(payload), crc32c(payload)) + payload


def unframe(tag: bytes, version: int, data: bytes) -> bytes | None:
    """The payload, or None if tag, version, length or CRC do not match."""
    if len(data) < _HEADER.size:
        return None
    found_tag, found_version, length, crc = _HEADER.unpack_from(data)
    payload = data[_HEADER.size : _HEADER.size + length]
    if (found_tag, found_version) != (tag, version) or len(payload) != length or crc32c(payload) != crc:
        return None
    return payload


def read_whole(disk: Disk, path: str) -> bytes | None:
    """All bytes of a file, None where there is none."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def read_auxiliary(
    disk: Disk, path: str, parse: Callable[[bytes], Content | None], report: ReportNotice | None
) -> Content | None:
    """The parsed content of a file; None where it is missing or cannot be used. Raises OSError for a lack of handles.

    With `report`, an unusable one is reported, and moved aside where it cannot even be read. Without, nothing is done.
    """
    try:
        data = read_whole(disk, path)
    except OSError as error:
        if retriable_error_for(error, path) is not None:
            raise
        if report is not None:
            moved = f"was moved to {set_aside(disk, path)}" if disk.exists(path) else "is not there"
            report(Notice(path, f"cannot be read ({error.strerror or error}), {moved} and is made again"))
        return None
    content = None if data is None else parse(data)
    if content is None and data is not None and report is not None:
        report(Notice(path, "is garbled, cut or of another version, and is made again"))
    return content


def set_aside(disk: Disk, path: str) -> str:
    """Rename it to an unused name, which is returned."""
    aside = next(name for n in count() if not disk.exists(name := f"{path}{_ASIDE_SUFFIX}{n or ''}"))
    disk.rename(path, aside)
    return aside


def remove_auxiliary(disk: Disk, path: str) -> None:
    """Remove a file that can be made again; a directory of that name is moved aside."""
    try:
        disk.unlink(path)
    except (IsADirectoryError, PermissionError):
        set_aside(disk, path)


def replace_whole(disk: Disk, directory: str, name: str, data: bytes, *, sync: bool) -> None:
    """Write a file under another name and rename it into place, so that either the old or the new one is there."""
    path = name if directory == "." else f"{directory}/{name}"
    temporary = path + TEMPORARY_SUFFIX
    if disk.exists(temporary):
        # Its old bytes may be durable: written over without a sync, they could come back under the new name.
        remove_auxiliary(disk, temporary)
    try:
        file = disk.open(temporary, create=True)
        try:
            file.write(0, [data])
            if sync:
                file.sync()
        finally:
            file.close()
        disk.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            disk.unlink(temporary)  # it may be what fills the disk
        raise
    if sync:
        disk.sync_dir(directory)
