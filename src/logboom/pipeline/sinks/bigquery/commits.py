"""What a delivery knows durably of its commits, in two files of its checkpoint.

`commit.json` tells of a commit whose outcome is not known: it is written before BigQuery is asked for the commit.
`committed.json` tells what commits have done of a batch that is not whole yet. Knows files. Must not know BigQuery.
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
    """A commit that is asked for."""

    batch: int
    streams: tuple[str, ...]
    rows: int
    done: Done
    """What is done of the batch once it is made."""
    progress: DeliveredOrigins | None = None
    """What is delivered then, where that is all of the batch."""


class Committed(msgspec.Struct, frozen=True):
    """What is done of a batch."""

    batch: int
    done: Done


class Commits:
    """The files of one delivery."""

    def __init__(self, checkpoint: Path) -> None:
        self._directory = checkpoint
        self.path = checkpoint / "commit.json"
        self._done_path = checkpoint / "committed.json"
        self.open = read_checked(self.path, Commit, _ADVICE) if self.path.exists() else None
        """The commit whose outcome is not known."""

    def done(self, batch: int) -> Done:
        """What commits of earlier attempts have done of a batch."""
        if not self._done_path.exists():
            return Done()
        known = read_checked(self._done_path, Committed, _ADVICE)
        return known.done if known.batch == batch else Done()

    def begin(self, commit: Commit) -> None:
        """Durably: it will be asked for."""
        make_dir(self._directory)
        write_checked(self.path, commit)
        self.open = commit

    def made(self, commit: Commit) -> None:
        """It is made; durably so, where the batch is not whole with it."""
        if commit.progress is None:
            write_checked(self._done_path, Committed(commit.batch, commit.done))
        self.forget()

    def forget(self) -> None:
        """It was not made and never will be, or its batch is over."""
        self.open = None
        self.path.unlink(missing_ok=True)
