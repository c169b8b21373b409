"""What Spark's own checkpoint of a query says: which batches were planned and committed, and up to which offsets.

Knows the files of Spark's offset log and commit log (version 1 of the source API's JSON, with or without the names of
sources). Must not know what a query does.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from logboom.pipeline.checkpoint.files import sync_dir

Offsets = Mapping[str, Mapping[int, int]]
"""Stream -> partition -> offset."""


def last_committed(query: Path) -> int | None:
    """The newest batch that is done; None before the first."""
    return _newest(query / "commits")


def unfinished_batch(query: Path) -> int | None:
    """The batch that runs again at the next start; None where the last one that was planned is done."""
    planned, committed = _newest(query / "offsets"), last_committed(query)
    return None if planned is None or planned == committed else planned


def offsets_of(query: Path, batch: int) -> Offsets:
    """Where a batch ends in its sources; empty for a batch that Spark has forgotten or never planned."""
    path = query / "offsets" / str(batch)
    found: dict[str, Mapping[int, int]] = {}
    if not path.exists():
        return found
    for line in path.read_text().splitlines()[2:]:  # behind the version and the settings
        _, brace, rest = line.partition("{")
        if brace:  # the name of the source stands before it; a source that has read nothing has none
            found.update(by_partition(json.loads(brace + rest)))
    return found


def durably_committed(query: Path) -> Offsets | None:
    """Where the last committed batch ended, once that is on disk for good; None before the first.

    Spark does not sync these files: after a power cut they might say less than what others relied on.
    """
    last = last_committed(query)
    if last is None:
        return None
    _sync(query / "offsets" / str(last))
    _sync(query / "commits" / str(last))
    return offsets_of(query, last)


def by_partition(tree: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[int, int]]:
    """Offsets as JSON has them, whose keys are texts."""
    return {stream: {int(number): offset for number, offset in ends.items()} for stream, ends in tree.items()}


def _newest(directory: Path) -> int | None:
    return max((int(path.name) for path in directory.glob("*") if path.name.isdigit()), default=None)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    sync_dir(path.parent)
