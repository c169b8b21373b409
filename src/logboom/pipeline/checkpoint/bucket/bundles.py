"""What a bundle says, and which files a row of bundles comes to. Pure.

A bundle is `claim` (a driver takes over and changes nothing), `delta` (what has changed) or `full` (all files, so that
nothing before it is needed). Each says how the whole comes out, as a digest: a row with a bundle that is not the one
that was written is not believed.
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
    """One file of the working directory. It has its content, or the object that has it."""

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
    """The identity of the driver's hold on the checkpoint; another start has another."""
    host: str
    place: str
    """The host and the working directory of the driver: who has the lock of that directory knows it has ended."""
    made_at: str
    ended: bool = False
    """Whether the driver has put it as its last, with nothing of its own under way any more."""
    base: int
    """The number of the last full bundle, its own for a full one; 0 for none, which stands for no files."""
    changed: dict[str, FileEntry] = {}
    removed: list[str] = []
    listing: bytes
    """`listing_digest` of all files as of this bundle."""
    claims: list[int] = []
    """In a full bundle: the numbers of all claims below it."""


class BundleError(ValueError):
    """A bundle, or a row of them, is not what was written; the text ends a sentence about it."""


@dataclass(frozen=True, slots=True)
class State:
    """What the bundles up to one come to."""

    number: int = 0
    base: int = 0
    files: Files = field(default_factory=dict)
    claims: tuple[int, ...] = ()
    place: str | None = None
    """Of the driver that wrote the last one; None for one that has ended, or where there was none."""

    def after(self, bundle: Bundle) -> "State":
        """The state behind one more bundle; BundleError where it does not fit."""
        if bundle.number != self.number + 1 or bundle.base != (bundle.number if bundle.kind == "full" else self.base):
            raise BundleError(f"is bundle {bundle.number} of {bundle.base}, and does not follow {self.number}")
        claims = (*self.claims, bundle.number) if bundle.kind == "claim" else self.claims
        before: Files = {} if bundle.kind == "full" else self.files
        return _checked(bundle, _with(before, bundle.changed, bundle.removed), claims)


def state_of(rows: Iterable[Bundle]) -> State:
    """The state behind bundles that follow each other, the first of which is full or the first of all."""
    state: State | None = None
    for bundle in rows:
        if state is None and bundle.kind == "full":
            state = _checked(bundle, bundle.changed, tuple(bundle.claims))
        else:
            state = (State() if state is None else state).after(bundle)
    return State() if state is None else state


def _checked(bundle: Bundle, files: Files, claims: tuple[int, ...]) -> State:
    if listing_digest(files) != bundle.listing:
        raise BundleError("does not come to the files that it was written for")
    return State(bundle.number, bundle.base, files, claims, None if bundle.ended else bundle.place)


def changes(before: Files, after: Files) -> tuple[dict[str, FileEntry], list[str]]:
    """What a delta has to say: files that are new or have another content, and those that are gone."""
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
    """Of names and contents of all files; times do not count."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{len(path.encode())}:{path}".encode() + files[path].digest)
    return digest.digest()


def objects_of(files: Files) -> set[str]:
    """The objects that the files are in."""
    return {entry.object for entry in files.values() if entry.object is not None}


def removable(state: State, there: Collection[int], expired: Collection[int], keep_from: int) -> list[int]:
    """Bundles that nobody needs: those before `keep_from`, a full one, but for claims that are not `expired`."""
    kept = set(state.claims) - set(expired)
    return sorted(number for number in there if number < keep_from and number not in kept)


def encoded(bundle: Bundle) -> bytes:
    """The content of the object, which says whether it is whole."""
    body = zlib.compress(msgspec.msgpack.encode(bundle), _LEVEL)
    return _MAGIC + hashlib.sha256(body).digest() + body


def decoded(data: bytes) -> Bundle:
    """What `encoded` wrote; BundleError for anything else."""
    begin = len(_MAGIC) + _DIGEST_BYTES
    if not data.startswith(_MAGIC):
        raise BundleError("is no bundle of a checkpoint that this version of logboom can read")
    if hashlib.sha256(data[begin:]).digest() != data[len(_MAGIC) : begin]:
        raise BundleError("is damaged: its checksum does not fit")
    try:
        bundle = msgspec.msgpack.decode(zlib.decompress(data[begin:]), type=Bundle)
    except (msgspec.DecodeError, zlib.error) as error:
        raise BundleError(f"cannot be read: {error}") from error
    if any(part in ("", ".", "..") for path in bundle.changed for part in path.split("/")):
        raise BundleError("names a file outside of the working directory")
    return bundle
