"""Finds where the content of a rotated file went: renamed beside its old place, or copied before it was truncated."""

import os
from collections.abc import Collection, Iterator

from logboom.collector.discover import FINISHED_SUFFIXES, Found, look
from logboom.collector.fingerprint import Fingerprint, digest
from logboom.collector.tail import Identity


def is_named_after(name: str, original: str) -> bool:
    """Whether a rotation of `original` may have this name: app.log.1, app.log-20261120, app.2026-11-20.log."""
    stem = original.rpartition(".")[0] or original
    return name != original and name.startswith(stem)


def find_renamed(path: str, identity: Identity, content: Fingerprint) -> Found | None:
    """The file itself, under another name in the directory of `path`."""
    for found in _siblings(path):
        if found.identity == identity and holds(found, content):
            return found
    return None


def find_copy(path: str, content: Fingerprint, *, besides: Collection[Identity]) -> Found | None:
    """Another file beside `path`, named after it, that begins with this content; the youngest of several."""
    if content.says_nothing:
        return None
    original = os.path.basename(path)
    candidates = [
        found
        for found in _siblings(path)
        if found.identity not in besides
        and found.status.st_size >= content.position
        and is_named_after(os.path.basename(found.path), original)
        and holds(found, content)
    ]
    return max(candidates, key=lambda found: found.status.st_mtime_ns, default=None)


def find_unseen_copies(path: str, since_ns: int, *, besides: Collection[Identity]) -> list[Found]:
    """Files that a rotation of `path` has left and that were written to since then, the oldest first.

    For a file that was empty when it was seen last: nothing tells a copy of it but the name and the time.
    """
    original = os.path.basename(path)
    candidates = [
        found
        for found in _siblings(path)
        if found.identity not in besides
        and found.status.st_size > 0
        and found.status.st_mtime_ns >= since_ns
        and _is_name_of_rotation(os.path.basename(found.path), original)
    ]
    return sorted(candidates, key=lambda found: found.status.st_mtime_ns)


def has_its_name(path: str, original: str) -> bool:
    """Whether a name goes on where the original's ends, as app.log.1 does; app-1.log may be a log of its own."""
    return os.path.basename(path).startswith(os.path.basename(original))


def _is_name_of_rotation(name: str, original: str) -> bool:
    """Whether a rotation of `original` has such a name, and hardly any other file: app.log.1, app.log-20261120,
    app-20261120.log, but not app-errors.log."""
    stem, dot, ending = original.rpartition(".")
    for head, tail in ((original, ""), (stem or original, dot + ending if stem else "")):
        if name.startswith(head) and name.endswith(tail):
            number = name[len(head) : len(name) - len(tail)]
            if number[:1] in (".", "-", "_") and number[1:2].isdigit():
                return True
    return False


def compressed_beside(path: str) -> str | None:
    """A compressed file that may hold what was not read; for the message that says so."""
    original = os.path.basename(path)
    for name in _names(os.path.dirname(path)):
        if name.endswith(FINISHED_SUFFIXES) and is_named_after(name, original):
            return os.path.join(os.path.dirname(path), name)
    return None


def holds(found: Found, content: Fingerprint) -> bool:
    """Whether the file holds this content at this place; False if it cannot be read."""
    if found.status.st_size < content.position:
        return False
    try:
        handle = os.open(found.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return content.matches(lambda position, length: os.pread(handle, length, position))
    except OSError:
        return False
    finally:
        os.close(handle)


def may_become_copy(found: Found, original: str, content: Fingerprint) -> bool:
    """Whether a file, whole or still being written, looks like a copy of what was read from `original`."""
    if content.says_nothing or not is_named_after(os.path.basename(found.path), os.path.basename(original)):
        return False
    if found.status.st_size >= content.position:
        return holds(found, content)
    return _has_prefix_of(found.path, original)


def _has_prefix_of(path: str, original: str) -> bool:
    """Whether a shorter file has the same head as the original, as far as it goes."""
    try:
        with open(path, "rb") as copy, open(original, "rb") as source:
            head = copy.read(1024)
            return bool(head) and digest(source.read(len(head))) == digest(head)
    except OSError:
        return False


def _siblings(path: str) -> Iterator[Found]:
    directory = os.path.dirname(os.path.realpath(path))
    for name in _names(directory):
        if not name.endswith(FINISHED_SUFFIXES) and (found := look(os.path.join(directory, name))) is not None:
            yield found


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
