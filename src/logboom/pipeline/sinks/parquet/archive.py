"""The Parquet archive: staged files become part of it batch by batch, each batch once.

A batch is committed by one durable manifest that names its files; renaming them into place comes after and is done
again at the next start where it was cut short. Files on their way lie below `_logboom`, which readers of a Parquet
directory leave alone. The manifest also holds, per partition of origin, the highest offset delivered, by which repeats
are known, so what the router wrote twice is archived once.

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
    """The archive as one delivery left it after a batch."""

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
    """The archive as it is with this batch behind `state`."""
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
    """One delivery's hold on an archive directory. `owner` names the delivery: another checkpoint is another owner."""

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
        """Whether the files of the last manifest are."""
        self.state = self._recovered()

    def staging_for(self, batch: int) -> str:
        """Where an attempt at a batch puts its files, relative to the root.

        What a broken attempt left is removed, unless a manifest that names it may be found after a crash.
        """
        self._attempts += 1
        directory = self._staging / str(batch)
        if not self._is_in_doubt:
            shutil.rmtree(directory, ignore_errors=True)
        attempt = directory / str(self._attempts)
        make_dir(attempt)
        return str(attempt.relative_to(self.root))

    def commit(self, batch: int, reports: Iterable[Report]) -> Manifest:
        """Makes a batch's files part of the archive, once and for all."""
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
        """Puts the files of the last batch in place where an attempt could not; returns what it did then.

        Until it has, no other batch may be committed: a start makes good the last one alone.
        """
        if self._is_in_place:
            return None
        self._put_in_place(self.state)
        self._is_in_place = True
        return self.state

    def _recovered(self) -> Manifest:
        """The last manifest, its renames completed; staged files of no manifest are removed."""
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
