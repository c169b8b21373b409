"""Small files with a checksum, either replaced whole or overwritten in place.

A file that is missing, cut or garbled reads as None; nothing here is fatal.
"""

from struct import Struct
from typing import Final

from crc32c import crc32c

from logboom.base.ports import Disk

_HEAD: Final = Struct(">4sIII")  # tag, version, length, CRC-32C of the payload
TEMPORARY_SUFFIX: Final = ".tmp"


def frame(tag: bytes, version: int, payload: bytes) -> bytes:
    """The bytes of a small file: four letters, version, length, CRC, payload."""
    return _HEAD.pack(tag, version, len(payload), crc32c(payload)) + payload


def unframe(tag: bytes, version: int, data: bytes) -> bytes | None:
    """The payload, or None where tag, version, length or CRC are not as they must be."""
    if len(data) < _HEAD.size:
        return None
    found_tag, found_version, length, crc = _HEAD.unpack_from(data)
    payload = data[_HEAD.size : _HEAD.size + length]
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


def replace_whole(disk: Disk, directory: str, name: str, data: bytes, *, sync: bool) -> None:
    """Write a file under another name and rename it into place, so that either the old or the new one is there."""
    path = name if directory == "." else f"{directory}/{name}"
    temporary = path + TEMPORARY_SUFFIX
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write(0, [data])
        if sync:
            file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    if sync:
        disk.sync_dir(directory)
