"""Tables of a state as files that never change: written once, synced, mapped into memory, shared from batch to batch.

A file's name has the checksum of what is in it, and says no more; which files are whose state, a batch's manifest says
(`checkpoint.states`). So a batch that fails leaves at most files that nobody names, and these are removed with the next
batch. Knows the disk and Arrow.
"""

import os
import re
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from logboom.base.units import MIB

_CHECKSUM: Final = re.compile(r"-([0-9a-f]{8})\.arrow\Z")


class SegmentDirectory:
    """The files of one transform's states, over all shards."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: dict[int, tuple[str, pa.Table]] = {}
        """By the identity of a table that was opened here: its file, and the table, so that no other gets its id."""

    def open(self, names: Sequence[str]) -> tuple[pa.Table, ...]:
        """The tables of these files, mapped: what is not looked at is not read."""
        found = []
        for name in names:
            with pa.memory_map(str(self._path / name)) as file:
                table = pa.ipc.open_file(file).read_all()
            self._names[id(table)] = (name, table)
            found.append(table)
        return tuple(found)

    def keep(self, tables: Sequence[pa.Table]) -> list[str]:
        """The files of these tables; those that were not opened here are written, and are durable on return."""
        kept = [self._names[id(table)][0] if id(table) in self._names else self._write(table) for table in tables]
        if any(id(table) not in self._names for table in tables):
            _sync(self._path, os.O_RDONLY | os.O_DIRECTORY)
        return kept

    def _write(self, table: pa.Table) -> str:
        token = uuid.uuid4().hex
        beside = self._path / f"{token}.arrow"
        with pa.OSFile(str(beside), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        _sync(beside, os.O_RDONLY)
        name = f"{token}-{file_checksum(beside):08x}.arrow"
        beside.rename(self._path / name)
        return name


def fault_of(path: Path) -> tuple[Path, str] | None:
    """The file, and what is wrong with it: it is gone, or what is in it is not what was written. None for a file that
    is whole, and for one of an earlier version, which wrote no checksums, that is there."""
    found = _CHECKSUM.search(path.name)
    try:
        if found is not None and file_checksum(path) != int(found[1], 16):
            return path, "its checksum does not match"
        path.stat()
    except OSError as error:
        return path, str(error.strerror)
    return None


def file_checksum(path: Path) -> int:
    """The CRC-32 of what is in a file."""
    checksum = 0
    with path.open("rb") as file:
        while data := file.read(MIB):
            checksum = zlib.crc32(data, checksum)
    return checksum


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
