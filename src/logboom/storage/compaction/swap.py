"""Puts a cleaned file in the place of the segments it was made from, so that a crash leaves either the old ones or the
new one.

    FIRST-END.cleaned   being written; if the process stops before it is complete, the next start removes it
    FIRST-END.swap      complete and synced: the log consists of it from the moment when this name is durable
    FIRST.log           its final name

The name says which offsets the file covers, so that a start that finds a `.swap` can finish what was begun: remove the
segments that it replaces, then give it its final name. Each step is durable before the next one relies on it. (Kafka
does the same in UnifiedLog.replaceSegments and LogLoader, with one suffix more.)
"""

import contextlib
from collections.abc import Sequence

from logboom.base.ids import Offset
from logboom.base.ports import Disk
from logboom.storage.files import Replacement
from logboom.storage.small_files import remove_auxiliary


def commit(disk: Disk, directory: str, replacement: Replacement) -> None:
    """Make the compacted file, which is synced, part of the log: `complete` must follow, now or at the next start.

    Raises OSError; unless it is a failed sync, the log is then as it was, and the file is removed.
    """
    swap_path = f"{directory}/{replacement.swap_name}"
    try:
        disk.rename(f"{directory}/{replacement.cleaned_name}", swap_path)
        disk.sync_dir(directory)
    except OSError:
        # The new name is not durable, and the next sync of the directory, which any change of the segments needs,
        # makes its removal durable.
        with contextlib.suppress(OSError):
            disk.unlink(swap_path)
        raise


def complete(disk: Disk, directory: str, replacement: Replacement, bases: Sequence[Offset]) -> None:
    """Remove the files of the replaced segments, which have these bases, and give the new file its final name.

    `commit` was done before, perhaps by another process. The final name need not be durable on return: a start that
    finds the `.swap` does this again, and whatever changes the log's segments syncs the directory first. Raises
    OSError; the call can be repeated then.
    """
    stem = f"{directory}/{replacement.first:020d}"
    # The index tells where batches lie in the old file, and how new they are. Without one it is made again.
    for base in (replacement.first, *bases):
        if base != replacement.first and disk.exists(log_path := f"{directory}/{base:020d}.log"):
            disk.unlink(log_path)
        if disk.exists(index_path := f"{directory}/{base:020d}.index"):
            remove_auxiliary(disk, index_path)
    # Were the new file found under its own name beside a segment it replaces, their offsets would be there twice.
    disk.sync_dir(directory)
    disk.rename(f"{directory}/{replacement.swap_name}", f"{stem}.log")
