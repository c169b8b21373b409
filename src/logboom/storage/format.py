"""The version of a data directory's format, and the refusal of a newer one by name.

It knows one small JSON file at the root of the data directory; each newer format adds its way of upgrading here.
"""

import json
from typing import Final

from logboom.base.errors import FormatVersionError
from logboom.base.ports import Disk
from logboom.storage.small_files import read_whole, replace_whole

NAME: Final = "format.json"
_REMEDY: Final = "Restore it from a backup, or from the directory of a broker of the same version."
FORMAT_VERSION: Final = 2
"""The format this program writes. 1, of November 2026: the metadata is one log of records. 2, of the same month: it is
that of a member of a group (`broker.raft.migration`)."""


def claim_format(disk: Disk, program: str) -> None:
    """Check that the data directory is in a format this program knows, or mark a new one as its own.

    `program` is its name and version, which the error of an older program names. FormatVersionError where it is
    newer than this program or the file cannot be understood; nothing is touched then.
    """
    if not check_format(disk, program):
        raise_format(disk, program, FORMAT_VERSION)


def check_format(disk: Disk, program: str) -> bool:
    """Whether there is a mark of a format that this program knows; raises as `claim_format`, and touches nothing."""
    data = read_whole(disk, NAME)
    if data is None:
        return False
    version, writer = _parse(data)
    if version > FORMAT_VERSION:
        raise FormatVersionError(
            f"The data directory is in format {version}, written by {writer}; {program} knows formats up to "
            f"{FORMAT_VERSION}. Start it with {writer} or newer."
        )
    return True


def format_of(disk: Disk) -> int:
    """The format of a data directory that `claim_format` has checked or marked."""
    data = read_whole(disk, NAME)
    assert data is not None, "the format was not claimed"
    return _parse(data)[0]


def raise_format(disk: Disk, program: str, version: int) -> None:
    """Mark the data directory as one of a newer format, which older programs refuse. Durable on return."""
    content = json.dumps({"format": version, "written_by": program}) + "\n"
    replace_whole(disk, ".", NAME, content.encode(), sync=True)


def _parse(data: bytes) -> tuple[int, str]:
    try:
        content = json.loads(data)
        version, writer = content["format"], str(content.get("written_by", "an unknown program"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatVersionError(f"{NAME} in the data directory is damaged: {error!r}. {_REMEDY}") from error
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise FormatVersionError(f"{NAME} in the data directory names the format {version!r}, which is none. {_REMEDY}")
    return version, writer
