"""The names of the files of a log. Files with other names are left alone."""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from logboom.base.ids import Offset
from logboom.base.ports import Disk
from logboom.storage import checkpoint, epochs, first_dirty
from logboom.storage.owner import OWNER_NAME
from logboom.storage.small_files import TEMPORARY_SUFFIX

_BY_OFFSET: Final = re.compile(r"([0-9]{20})\.(log|index|producers)")
_RANGE: Final = re.compile(r"([0-9]{20})-([0-9]{20})\.(cleaned|swap)")
_SINGLE: Final = (OWNER_NAME, checkpoint.NAME, epochs.NAME, first_dirty.NAME)
_OFFSET_MAX: Final = 2**63 - 1
_NAMES_KEPT: Final = 4_096
"""The first files of all logs have the same names, and a start looks at each of them a dozen times."""


class Replacement(NamedTuple):
    """A compacted file that replaces the segments from base `first` up to below `end`: see `compaction.swap`."""

    first: Offset
    end: Offset

    @property
    def cleaned_name(self) -> str:
        """Its name while it is written."""
        return f"{self.first:020d}-{self.end:020d}.cleaned"

    @property
    def swap_name(self) -> str:
        """Its name while it takes its place."""
        return f"{self.first:020d}-{self.end:020d}.swap"

    def covers(self, base: Offset) -> bool:
        """Whether it takes the place of the segment of this base."""
        return self.first <= base < self.end


@lru_cache(_NAMES_KEPT)
def is_cleaned(name: str) -> bool:
    """Whether it is a file that a cleaning did not finish."""
    match = _RANGE.fullmatch(name)
    return match is not None and match[3] == "cleaned"


@lru_cache(_NAMES_KEPT)
def replacement_in(name: str) -> Replacement | None:
    """What a `.swap` file replaces; None for any other name."""
    match = _RANGE.fullmatch(name)
    if match is None or match[3] != "swap" or not int(match[1]) < int(match[2]) <= _OFFSET_MAX:
        return None
    return Replacement(Offset(int(match[1])), Offset(int(match[2])))


@lru_cache(_NAMES_KEPT)
def offset_in(name: str, suffix: str) -> Offset | None:
    """The offset in the name of a file of one kind (`.log`, `.index`, `.producers`); None for any other name."""
    match = _BY_OFFSET.fullmatch(name)
    if match is None or f".{match[2]}" != suffix or int(match[1]) > _OFFSET_MAX:
        return None
    return Offset(int(match[1]))


@lru_cache(_NAMES_KEPT)
def is_known(name: str) -> bool:
    """Whether a file of this name belongs to a log."""
    stem = name.removesuffix(TEMPORARY_SUFFIX)
    if is_cleaned(name) or replacement_in(name) is not None:
        return True
    return stem in _SINGLE or any(offset_in(stem, suffix) is not None for suffix in (".log", ".index", ".producers"))


def is_temporary(name: str) -> bool:
    """Whether it is what an interrupted replacement of a file left."""
    return name.endswith(TEMPORARY_SUFFIX) and is_known(name)


def has_records(disk: Disk, directory: str) -> bool:
    """Whether a log's directory may hold records, or files that are not a log's. Opens no file."""
    names = disk.list(directory)
    segments = [name for name in names if offset_in(name, ".log") is not None]
    return not all(map(is_known, names)) or any(disk.size(f"{directory}/{name}") for name in segments)


def holds_no_batch(disk: Disk, directory: str) -> bool:
    """Whether a directory holds no more than a log's does before its first batch. Opens no file."""
    try:
        return epochs.NAME not in disk.list(directory) and not has_records(disk, directory)
    except NotADirectoryError:
        return False


def is_log(disk: Disk, directory: str) -> bool:
    """Whether a directory looks like a log's. Opens no file."""
    try:
        names = disk.list(directory)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return any(name == OWNER_NAME or offset_in(name, ".log") is not None for name in names)
