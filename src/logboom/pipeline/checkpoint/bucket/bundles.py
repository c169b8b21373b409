"""The contents of a bundle, and the files that result from a sequence of bundles. Pure.

A bundle is `claim` (a driver takes over and changes nothing), `delta` (what has changed) or `full` (all files, so that
no earlier bundle is needed). Each holds a digest of the resulting files: a sequence in which a bundle was replaced or
damaged is rejected.
"""

import hashlib
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

_MAGIC: Final = b"logboom checkpoint 1\n"
_DIGEST_BYTES: Final = 32
_LEVEL: Final = 1

Kind = Literal["claim", "full", "delta"]


class FileEntry(msgspec.Struct, frozen=True, array_like=True):
    """One file of the working directory. It holds either its content or the name of the object with the content."""

    digest: bytes
    """SHA-256 of the content."""
    size_bytes: int
    mtime_ns: int
    data: bytes | None = None
    object: str | None = None


Files = Mapping[str, FileEntry]
"""By path below the working directory, with '/' between names."""


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """One object below `bundles/`."""

    number: int
    kind: Kind
    writer: str
    """The identity of one ownership of the checkpoint; each start of a driver has a new one."""
    host: str
    place: str
    """The host and the working directory of the driver: a process that holds the lock of that directory knows that the
    driver has ended."""
    made_at: str
    ended: bool = False
    """Whether it is the driver's last bundle, stored when no batch was running any more."""
    base: int
    """The number of the last full bundle (its own for a full one); 0 if there is none, which means no files."""
    changed: dict[str, FileEntry] = {}
    removed: list[str] = []
    listing: bytes
    """`listing_digest` of all files after this bundle."""
    claims: list[int] = []
    """In a full bundle: the numbers of all earlier claims."""


class BundleError(ValueError):
    """A bundle or a sequence of bundles is not as it was written; the text is the end of a sentence about it."""


@dataclass(frozen=True, slots=True)
class State:
    """The state that results from all bundles up to a number."""

    number: int = 0
    base: int = 0
    files: Files = field(default_factory=dict)
    claims: tuple[int, ...] = ()
    place: str | None = None
    """The owner that wrote the last bundle; None if it has ended or there is no bundle."""

    def after(self, bundle: Bundle) -> "State":
        """The state after one more bundle; BundleError if that bundle does not follow."""
        if bundle.number != self.number + 1 or bundle.base != (bundle.number if bundle.kind == "full" else self.base):
            raise BundleError(f"is bundle {bundle.number} of {bundle.base}, and does not follow {self.number}")
        claims = (*self.claims, bundle.number) if bundle.kind == "claim" else self.claims
        before: Files = {} if bundle.kind == "full" else self.files
        return _checked(bundle, _with(before, bundle.changed, bundle.removed), claims)


def state_of(rows: Iterable[Bundle]) -> State:
    """The state after consecutive bundles, which begin with a full bundle or with the first of all."""
    state: State | None = None
    for bundle in rows:
        if state is None and bundle.kind == "full":
            state = _checked(bundle, bundle.changed, tuple(bundle.claims))
        else:
            state = (State() if state is None else state).after(bundle)
    return State() if state is None else state


def _checked(bundle: Bundle, files: Files, claims: tuple[int, ...]) -> State:
    if listing_digest(files) != bundle.listing:
        raise BundleError("does not result in the files for which it was written")
    return State(bundle.number, bundle.base, files, claims, None if bundle.ended else bundle.place)


def changes(before: Files, after: Files) -> tuple[dict[str, FileEntry], list[str]]:
    """The contents of a delta: files that are new or changed, and files that were removed."""
    changed = {path: entry for path, entry in after.items() if path not in before or not _same(before[path], entry)}
    return changed, [path for path in before if path not in after]


def _same(left: FileEntry, right: FileEntry) -> bool:
    return left.digest == right.digest and left.size_bytes == right.size_bytes


def _with(files: Files, changed: Files, removed: Iterable[str]) -> dict[str, FileEntry]:
    found = {**files, **changed}
    for path in removed:
        found.pop(path, None)
    return found


def listing_digest(files: Files) -> bytes:
    """Covers names and contents of all files, without their times."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{len(path.encode())}:{path}".encode() + files[path].digest)
    return digest.digest()


def objects_of(files: Files) -> set[str]:
    """The objects that hold the files."""
    return {entry.object for entry in files.values() if entry.object is not None}


def removable(state: State, there: Collection[int], expired: Collection[int], keep_from: int) -> list[int]:
    """Bundles that nothing needs: those before `keep_from`, a full bundle, except claims that are not `expired`."""
    kept = set(state.claims) - set(expired)
    return sorted(number for number in there if number < keep_from and number not in kept)


def encoded(bundle: Bundle) -> bytes:
    """The content of the object, with a checksum."""
    body = zlib.compress(msgspec.msgpack.encode(bundle), _LEVEL)
    return _MAGIC + hashlib.sha256(body).digest() + body


def decoded(data: bytes) -> Bundle:
    """What `encoded` wrote; BundleError for anything else."""
    begin = len(_MAGIC) + _DIGEST_BYTES
    if not data.startswith(_MAGIC):
        raise BundleError("is not a bundle of a checkpoint that this version of logboom can read")
    if hashlib.sha256(data[begin:]).digest() != data[len(_MAGIC) : begin]:
        raise BundleError("is damaged: its checksum does not match")
    try:
        bundle = msgspec.msgpack.decode(zlib.decompress(data[begin:]), type=Bundle)
    except (msgspec.DecodeError, zlib.error) as error:
        raise BundleError(f"cannot be read: {error}") from error
    if any(part in ("", ".", "..") for path in bundle.changed for part in path.split("/")):
        raise BundleError("names a file outside of the working directory")
    return bundle
