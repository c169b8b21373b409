"""Which errors of a disk are retriable, so that a write is taken back and tried again, and which end all writing.

A lack of room or of file handles is retriable. A failed sync never is, whatever its errno: Linux marks the pages clean,
so a second sync would succeed without having written them.
"""

import errno
from typing import Final

from logboom.base.errors import DiskFullError, NoHandlesError, RetriableStorageError
from logboom.base.ports import SyncFailedError

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_SCARCE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def retriable_error_for(error: OSError, where: str) -> RetriableStorageError | None:
    """The error to raise where room or handles are lacking, which may be there again soon; None for any other error."""
    if isinstance(error, SyncFailedError):
        return None
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return DiskFullError(f"The disk is full: no room in {where} ({reason}).")
    if error.errno in _SCARCE:
        return NoHandlesError(f"No file of {where} can be opened at the moment ({reason}).")
    return None
