"""The Parquet archive: adds staged files batch by batch, each batch exactly once.

A batch is committed by one durable manifest that lists its files. They are renamed into place after that; if this is
interrupted, the next start completes it. Until then files are below `_logboom`, which readers of Parquet directories
ignore. The manifest also has, for each partition of origin, the highest delivered offset, by which repeats are
recognised, so that events which the router wrote twice are archived once.

Knows files and manifests. Must not know Spark.
"""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.checked import REPEATS, read_checked, write_checked
from logboom.pipeline.checkpoint.files import keep_last, make_dir, numbered, sync_dir
from logboom.pipeline.sinks.parquet.staging import Report, StagedFile
from logboom.pipeline.sinks.repeats.origins import marks_after

HIDDEN: Final = "_logboom"
_KEPT_MANIFESTS: Final = 50


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the archive after a delivery's batch."""

    batch: int
    files: tuple[StagedFile, ...]
    rows: int
    repeats: int
    high_water: dict[str, int]
    retried: frozenset[str] = frozenset()
    rows_total: int
    repeats_total: int = 0


NOTHING: Final = Manifest(batch=-1, files=(), rows=0, repeats=0, high_water={}, rows_total=0)


def next_manifest(state: Manifest, batch: int, reports: Sequence[Report]) -> Manifest:
    """The state after this batch, which follows `state`."""
    rows, repeats = sum(report.rows for report in reports), sum(report.repeats for report in reports)
    return Manifest(
        batch=batch,
        files=tuple(file for report in reports for file in report.files),
        rows=rows,
        repeats=repeats,
        high_water=marks_after(state.high_water, (report.high_water for report in reports)),
        retried=state.retried.union(*(report.retried for report in reports)),
        rows_total=state.rows_total + rows,
        repeats_total=state.repeats_total + repeats,
    )


class Archive:
    """The part of an archive directory that one delivery owns. `owner` identifies the delivery; another checkpoint is
    another owner."""

    def __init__(self, root: Path, owner: str) -> None:
        self.root = root
        self.owner = owner
        self._manifests = root / HIDDEN / "manifests" / owner
        self._staging = root / HIDDEN / "staging" / owner
        make_dir(self._manifests)
        make_dir(self._staging)
        self._attempts = 0
        self._is_in_doubt = False
        """Whether the manifest of a batch may be on disk although writing it failed."""
        self._is_in_place = True
        """Whether the files of the last manifest are in place."""
        self.state = self._recovered()

    def staging_for(self, batch: int) -> str:
        """Return the directory for the files of an attempt at a batch, relative to the root.

        Files of a failed attempt are removed, unless a manifest that lists them may be found after a crash.
        """
        self._attempts += 1
        directory = self._staging / str(batch)
        if not self._is_in_doubt:
            shutil.rmtree(directory, ignore_errors=True)
        attempt = directory / str(self._attempts)
        make_dir(attempt)
        return str(attempt.relative_to(self.root))

    def commit(self, batch: int, reports: Iterable[Report]) -> Manifest:
        """Commit a batch: add its files to the archive."""
        assert batch > self.state.batch
        assert self._is_in_place
        manifest = next_manifest(self.state, batch, list(reports))
        for directory in {Path(self.root, file.staged).parent for file in manifest.files}:
            sync_dir(directory)
        self._is_in_doubt = True
        write_checked(self._manifests / f"{batch}.json", manifest)
        self._is_in_doubt, self._is_in_place = False, False
        self.state = manifest
        self.settle()
        keep_last(self._manifests, _KEPT_MANIFESTS)
        shutil.rmtree(self._staging / str(batch), ignore_errors=True)
        return manifest

    def settle(self) -> Manifest | None:
        """Move the files of the last batch into place, if an attempt could not do this; returns its report then.

        No other batch may be committed before, because a start only repairs the last batch.
        """
        if self._is_in_place:
            return None
        self._put_in_place(self.state)
        self._is_in_place = True
        return self.state

    def _recovered(self) -> Manifest:
        """Load the last manifest and complete its renames. Staged files without a manifest are removed."""
        kept = numbered(self._manifests)
        state = read_checked(kept[-1][1], Manifest, REPEATS) if kept else NOTHING
        self._put_in_place(state)
        for leftover in self._staging.iterdir():
            shutil.rmtree(leftover)
        return state

    def _put_in_place(self, manifest: Manifest) -> None:
        for file in manifest.files:
            staged, final = self.root / file.staged, self.root / file.final
            if staged.exists():
                make_dir(final.parent)
                staged.rename(final)
        for directory in {(self.root / file.final).parent for file in manifest.files}:
            if directory.exists():
                sync_dir(directory)
