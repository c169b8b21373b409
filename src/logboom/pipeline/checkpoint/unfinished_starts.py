"""How often a router has been started with one batch begun and not finished: such a batch may be what ends it.

Knows one small file of the checkpoint. Must not know what is done about it.
"""

from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.checked import read_checked, write_checked

_ADVICE: Final = "remove the file: how often the pipeline was started is counted anew then"


class _Starts(msgspec.Struct, frozen=True):
    batch: int
    starts: int


def count_start(path: Path, unfinished: int | None) -> int:
    """Counts one start; how many found this batch unfinished, this one included. 0 where none is."""
    if unfinished is None:
        return 0
    before = read_checked(path, _Starts, _ADVICE) if path.exists() else None
    starts = before.starts + 1 if before is not None and before.batch == unfinished else 1
    write_checked(path, _Starts(unfinished, starts))
    return starts
