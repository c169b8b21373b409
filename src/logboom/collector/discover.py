"""Which files an input means: its globs, without what is excluded, compressed or the collector's own."""

import fnmatch
import glob
import os
import stat
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from logboom.collector.tail import Identity

FINISHED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")
"""Compressed files are finished: their lines were read before they were compressed."""


class Found(NamedTuple):
    """A file as it stood when it was looked at."""

    path: str
    status: os.stat_result

    @property
    def identity(self) -> Identity:
        """Device and inode."""
        return Identity(self.status.st_dev, self.status.st_ino)


def look(path: str) -> Found | None:
    """A regular file at this path; None if there is none or it may not be seen."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return Found(path, status) if stat.S_ISREG(status.st_mode) else None


class Discovery:
    """The include and exclude globs of one input. `own` are files that must never be read, such as the own log."""

    def __init__(
        self, include: Sequence[str], exclude: Sequence[str], *, own: frozenset[Identity], own_dir: str
    ) -> None:
        self._include = tuple(os.path.abspath(pattern) for pattern in include)
        self._exclude = tuple(exclude)
        self._own = own
        self._own_dir = os.path.realpath(own_dir)
        self._is_own = lru_cache(maxsize=1024)(self._lies_in_own_dir)

    def files(self, besides: Container[str] = ()) -> Iterator[Found]:
        """Every file there is now at a path not known yet, in the order of the paths, each path once."""
        self._is_own.cache_clear()
        paths = {path for pattern in self._include for path in glob.iglob(pattern, recursive=True, include_hidden=True)}
        for path in sorted(path for path in paths if path not in besides):
            if self._is_wanted(path) and (found := look(path)) is not None and found.identity not in self._own:
                yield found

    def is_wanted(self, path: str) -> bool:
        """Whether a path, there or not, is one that the globs mean."""
        return any(_glob_matches(path, pattern) for pattern in self._include) and self._is_wanted(path)

    def _is_wanted(self, path: str) -> bool:
        name = os.path.basename(path)
        if name.endswith(FINISHED_SUFFIXES) or self._is_own(os.path.dirname(path)):
            return False
        return not any(
            fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(name, pattern) for pattern in self._exclude
        )

    def _lies_in_own_dir(self, directory: str) -> bool:
        real = os.path.realpath(directory)
        return real == self._own_dir or real.startswith(self._own_dir + os.sep)


def _glob_matches(path: str, pattern: str) -> bool:
    """As glob sees it, part by part: `*` stops at a slash, `**` does not."""
    return _parts_match(path.split(os.sep), pattern.split(os.sep))


def _parts_match(parts: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_parts_match(parts[skipped:], patterns[1:]) for skipped in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], patterns[0]) and _parts_match(parts[1:], patterns[1:])
