"""How often a router was started with the same unfinished batch: such a batch may be the cause of the crashes.

Knows one small file of the checkpoint. Must not know how the count is used.
"""

from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.checked import read_checked, write_checked

_ADVICE: Final = "remove the file: starts of the pipeline are then counted from 0"


class _Starts(msgspec.Struct, frozen=True):
    batch: int
    starts: int


def count_start(path: Path, unfinished: int | None) -> int:
    """Counts one start; returns how many starts found this batch unfinished, including this one. 0 if no batch is
    unfinished."""
    if unfinished is None:
        return 0
    before = read_checked(path, _Starts, _ADVICE) if path.exists() else None
    starts = before.starts + 1 if before is not None and before.batch == unfinished else 1
    write_checked(path, _Starts(unfinished, starts))
    return starts
