"""Reads the bundles of a checkpoint, from which the working directory is restored. Knows objects and bundles."""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from logboom.pipeline.checkpoint.bucket.bundles import Bundle, BundleError, FileEntry, State, decoded, state_of
from logboom.pipeline.checkpoint.bucket.objects import Listed, Objects
from logboom.pipeline.errors import PipelineError

BUNDLES: Final = "bundles"
OBJECTS: Final = "objects"
_NUMBER: Final = re.compile(r"(?:.*/)?(\d{12})")
_AT_ONCE: Final = 16
_TRIES: Final = 5
Found = TypeVar("Found")
Asked = TypeVar("Asked")


class DamagedBucketError(PipelineError):
    """An object of a checkpoint is missing, or has other contents than were written."""

    def __init__(self, url: str, path: str, what: str) -> None:
        super().__init__(
            f"{url}/{path} {what}: put it back from a copy or an earlier version of the object; without one, give "
            "the "
            "pipeline another checkpoint, and deliver what its sinks lack with `logboom pipeline replay`"
        )


def bundle_path(number: int) -> str:
    """
    >>> bundle_path(7)
    'bundles/000000000007'
    """
    return f"{BUNDLES}/{number:012}"


def object_path(name: str) -> str:
    """Where the content of a larger file is."""
    return f"{OBJECTS}/{name}"


def numbers(listed: Iterable[Listed]) -> dict[int, Listed]:
    """The bundles of a listing, by number."""
    found = ((_NUMBER.fullmatch(one.path), one) for one in listed)
    return {int(match[1]): one for match, one in found if match is not None}


def newest_state(objects: Objects) -> State:
    """The current state of the bucket.

    :raises DamagedBucketError: a bundle is missing or damaged.
    """
    for attempt in range(_TRIES):
        there = numbers(objects.list(BUNDLES))
        if not there:
            return State()
        try:
            return _state(objects, max(there))
        except FileNotFoundError as error:  # its newest full bundle may replace bundles just removed
            if attempt == _TRIES - 1 or max(numbers(objects.list(BUNDLES))) == max(there):
                raise DamagedBucketError(objects.url, str(error.args[0]), "is not there") from error
    raise AssertionError("the last attempt raises or returns")


def _state(objects: Objects, number: int) -> State:
    last = bundle_at(objects, number)
    if last.kind == "full":
        rows: Sequence[Bundle] = (last,)
    else:
        earlier = range(max(last.base, 1), number)
        rows = (*at_once(lambda one: bundle_at(objects, one), earlier), last)
    try:
        return state_of(rows)
    except BundleError as error:
        raise DamagedBucketError(objects.url, bundle_path(number), str(error)) from error


def bundle_at(objects: Objects, number: int) -> Bundle:
    """One bundle. :raises FileNotFoundError: with its path."""
    path = bundle_path(number)
    try:
        data = objects.get(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(path) from error
    try:
        return decoded(data)
    except BundleError as error:
        raise DamagedBucketError(objects.url, path, str(error)) from error


def content_of(objects: Objects, entry: FileEntry) -> bytes:
    """The content of a file. :raises DamagedBucketError: its object is missing or damaged."""
    if entry.data is not None:
        return entry.data
    assert entry.object is not None, "an entry has either its content or an object"
    path = object_path(entry.object)
    try:
        data = objects.get(path)
    except FileNotFoundError as error:
        raise DamagedBucketError(objects.url, path, "is not there") from error
    if hashlib.sha256(data).digest() != entry.digest:
        raise DamagedBucketError(objects.url, path, "is damaged: its checksum does not match")
    return data


def at_once(request: Callable[[Asked], Found], of: Iterable[Asked]) -> list[Found]:
    """The answers in order; if some calls fail, the first error is raised after all have ended."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="checkpoint") as pool:
        return [done.result() for done in [pool.submit(request, one) for one in of]]
