"""Small JSON files with a checksum, so that a flipped bit on a disk is detected.

Such a file is one JSON object whose last member, `crc32`, is the checksum of everything before it. Files of earlier
versions have no checksum and are accepted as they are.

Knows the disk and JSON. Must not know what the files mean.
"""

import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from logboom.pipeline.checkpoint.files import write_durably
from logboom.pipeline.errors import PipelineError

Value = TypeVar("Value")

REPEATS: Final = "remove the file: records that the router wrote twice after a crash may then also be delivered twice"
"""The advice for files by which a delivery recognises repeats."""
_MEMBER: Final = re.compile(rb',?"crc32":"([0-9a-f]{8})"}\Z')


class DamagedError(PipelineError):
    """A file of a checkpoint does not hold what was written: continuing with it could lose or repeat events
    unnoticed."""

    def __init__(self, path: Path, what: str, advice: str) -> None:
        super().__init__(f"{path} is damaged ({what}): put the checkpoint back from a copy; without one, {advice}")
        self.damage = what


def write_checked(path: Path, value: msgspec.Struct | Mapping[str, object]) -> None:
    """Writes a file atomically and durably."""
    write_durably(path, with_checksum(msgspec.json.encode(value)))


def read_checked(path: Path, kind: type[Value], advice: str) -> Value:
    """The content that `write_checked` wrote. `advice`: what to do if the file is damaged and there is no copy, and
    what that costs.

    :raises DamagedError: the file is not as it was written.
    :raises FileNotFoundError:
    """
    try:
        return msgspec.json.decode(checked(path, path.read_bytes(), advice), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedError(path, str(error), advice) from error


def with_checksum(text: bytes) -> bytes:
    """A JSON object with the checksum as its last member.

    >>> with_checksum(b'{"a":1}'), with_checksum(b"{}")
    (b'{"a":1,"crc32":"a702fc6e"}', b'{"crc32":"15d54739"}')
    """
    begin = text.rstrip()[:-1]
    comma = b"" if begin == b"{" else b","
    return begin + comma + b'"crc32":"%08x"}' % zlib.crc32(begin)


def checked(path: Path, text: bytes, advice: str) -> bytes:
    """The object that a file holds, without its checksum; DamagedError if they do not match."""
    found = _MEMBER.search(text)
    if found is None:
        return text
    begin = text[: found.start()]
    if zlib.crc32(begin) != int(found[1], 16):
        raise DamagedError(path, "its checksum does not match", advice)
    return begin + b"}"
