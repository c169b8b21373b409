"""The mark of a log's owner: a small file that the broker leaves in the directory to say which partition it holds.

Its content is the broker's. It is not durable at once, since thousands of logs are made together: a log makes it so
with its first leader epoch, before its first batch (`epochs`).
"""

from typing import Final

from logboom.base.ports import Disk
from logboom.storage.small_files import read_whole, replace_whole

OWNER_NAME: Final = "owner.json"


def read_owner(disk: Disk, directory: str) -> bytes | None:
    """The owner's mark, None where there is none."""
    try:
        return read_whole(disk, f"{directory}/{OWNER_NAME}")
    except NotADirectoryError:
        return None


def write_owner(disk: Disk, directory: str, mark: bytes) -> None:
    """Leave the owner's mark in the directory, which is there. Not durable on return. Raises OSError."""
    replace_whole(disk, directory, OWNER_NAME, mark, sync=False)


def sync_owner(disk: Disk, directory: str) -> None:
    """Make the content of the mark durable, if there is one; a sync of the directory has to follow. Raises OSError."""
    try:
        file = disk.open(f"{directory}/{OWNER_NAME}")
    except FileNotFoundError:
        return
    try:
        file.sync()
    finally:
        file.close()
