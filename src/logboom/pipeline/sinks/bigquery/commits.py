"""The durable state of a delivery's commits, in two files of its checkpoint.

`commit.json` describes a commit whose outcome is not known; it is written before the commit is requested.
`committed.json` lists what was committed of a batch that is not complete yet. Knows files. Must not know BigQuery.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.checked import read_checked, write_checked
from logboom.pipeline.checkpoint.files import make_dir
from logboom.pipeline.sinks.bulk.progress import DeliveredOrigins
from logboom.pipeline.sinks.repeats.ranges import Done

_ADVICE: Final = "remove the file: rows of one batch may then be written twice"


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that is about to be requested."""

    batch: int
    streams: tuple[str, ...]
    rows: int
    done: Done
    """The part of the batch that is done when the commit succeeds."""
    progress: DeliveredOrigins | None = None
    """The delivered state when the commit completes the batch."""


class Committed(msgspec.Struct, frozen=True):
    """What was committed of a batch."""

    batch: int
    done: Done


class Commits:
    """The files of one delivery."""

    def __init__(self, checkpoint: Path) -> None:
        self._directory = checkpoint
        self.path = checkpoint / "commit.json"
        self._done_path = checkpoint / "committed.json"
        self.open = read_checked(self.path, Commit, _ADVICE) if self.path.exists() else None
        """The commit whose outcome is not known, if any."""

    def done(self, batch: int) -> Done:
        """What earlier attempts have committed of a batch."""
        if not self._done_path.exists():
            return Done()
        known = read_checked(self._done_path, Committed, _ADVICE)
        return known.done if known.batch == batch else Done()

    def begin(self, commit: Commit) -> None:
        """Record durably that the commit will be requested."""
        make_dir(self._directory)
        write_checked(self.path, commit)
        self.open = commit

    def made(self, commit: Commit) -> None:
        """Record that the commit succeeded; durably if the batch is not complete yet."""
        if commit.progress is None:
            write_checked(self._done_path, Committed(commit.batch, commit.done))
        self.forget()

    def forget(self) -> None:
        """Record that the commit failed for good, or that its batch is finished."""
        self.open = None
        self.path.unlink(missing_ok=True)
