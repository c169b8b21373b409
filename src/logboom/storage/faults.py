"""Which faults of a disk pass, so that a write is taken back and may be tried again, and which end all writing.

A lack of room or of file handles passes. A sync that failed never does, whatever its errno says: the bytes may be gone.
"""

import errno
from typing import Final

from logboom.base.errors import DiskFullError, NoHandlesError, RetriableStorageError
from logboom.base.ports import SyncFailedError

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_SCARCE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def retriable_error_for(error: OSError, where: str) -> RetriableStorageError | None:
    """The error to tell where something is lacking that may be there again soon; None for any other fault."""
    if isinstance(error, SyncFailedError):
        return None
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return DiskFullError(f"The disk is full: no room in {where} ({reason}).")
    if error.errno in _SCARCE:
        return NoHandlesError(f"No file of {where} can be opened at the moment ({reason}).")
    return None
