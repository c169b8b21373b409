"""Checks the files and directories that a pipeline names: the paths are usable, and each archive has a directory of its
own.

Knows paths of the plan and, for the checks of this machine, its files and environment. Must not know streams or Spark.

An archive is committed by renaming whole files, so its path must be one of a mounted file system: URLs are refused.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from logboom.base.settings import KeyPath
from logboom.pipeline.enrich.sources import is_file, table_faults
from logboom.pipeline.findings import Findings
from logboom.pipeline.mask.keys import MaskKeyError, load_keys
from logboom.pipeline.plan.locations import path_fault
from logboom.pipeline.plan.nodes import Sink, Transform
from logboom.pipeline.plan.stores import StoreRef
from logboom.pipeline.sinks.file.paths import fixed_directory

_A_FILE: Final = "and a table is read from a file: write its path"
_NO_UNNAMED_FILES: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
"""The errors of file systems that do not support O_TMPFILE."""


class DirectoryCheck:
    """The paths of one pipeline; relative ones are relative to its file. `checkpoint` is None if the key is invalid."""

    def __init__(
        self,
        findings: Findings,
        file: str,
        checkpoint: str | None,
        sinks: Sequence[Sink],
        checkpoint_key: KeyPath = ("checkpoint",),
    ) -> None:
        """`checkpoint`: the directory of its files; `checkpoint_key`: its key path in the document."""
        self._checkpoint_key = checkpoint_key
        self._findings = findings
        self._directory = Path(file).parent
        self._sinks = sinks
        self._archives = [
            (sink, found)
            for sink in sinks
            if sink.output_directory is not None
            and (found := self._resolved(("sinks", sink.name, "path"), sink.output_directory))
        ]
        self._files = [
            (sink, found)
            for sink in sinks
            if sink.output_file is not None
            and (found := self._resolved(("sinks", sink.name, "path"), sink.output_file))
        ]
        self._checkpoint = None if checkpoint is None else self._resolved(checkpoint_key, checkpoint)

    def _resolved(self, path: KeyPath, text: str) -> Path | None:
        fault = path_fault(text)
        if fault is not None:
            self._findings.problem(path, f"{text!r} {fault}")
            return None
        try:
            return (self._directory / text).resolve()
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, up to Python 3.12
            self._findings.problem(path, f"{text!r} cannot be resolved: {getattr(error, 'strerror', None) or error}")
            return None

    def check_overlaps(self) -> None:
        """Reports archives that share a directory: they would list, merge and repair each other's files."""
        for number, (sink, found) in enumerate(self._archives):
            at: KeyPath = ("sinks", sink.name, "path")
            for other, taken in self._archives[:number]:
                how = _overlap(found, taken)
                if how is not None:
                    self._findings.problem(
                        at, f"{how} of the sink {other.name!r} (line {other.line}): {taken}; give each its own"
                    )
            how = None if self._checkpoint is None else _overlap(found, self._checkpoint)
            if how is not None:
                self._findings.problem(at, f"{how} of the checkpoint: {self._checkpoint}; keep the two apart")

    def check_files(self) -> None:
        """A file of lines belongs to one sink only, and must not be inside an archive or the checkpoint."""
        for number, (sink, found) in enumerate(self._files):
            at: KeyPath = ("sinks", sink.name, "path")
            if found == Path(self._findings.document.name).resolve():
                self._findings.problem(at, f"is the file of this pipeline: {found}; write the path of another file")
            elif found.is_dir():
                self._findings.problem(at, f"{found} is a directory; write the path of a file")
            elif found.exists() and not found.is_file():
                self._findings.problem(at, f"{found} is a device, pipe or socket; write the path of a file")
            for other, taken in self._files[:number]:
                if found == taken or _is_same(found, taken):
                    self._findings.problem(
                        at, f"is the file of the sink {other.name!r} (line {other.line}): {taken}; give each its own"
                    )
            owned = [(f"the archive of the sink {other.name!r}", taken) for other, taken in self._archives]
            owned += [] if self._checkpoint is None else [("the checkpoint", self._checkpoint)]
            for owner, directory in owned:
                if found.is_relative_to(directory):
                    self._findings.problem(at, f"is inside the directory of {owner}: {directory}; keep the two apart")

    def check_stores(self, checkpoint: StoreRef | None = None) -> None:
        """As `check_overlaps`, for archives and the checkpoint in object stores."""
        placed = [(sink, sink.output_url) for sink in self._sinks if sink.output_url is not None]
        for number, (sink, url) in enumerate(placed):
            for other, taken in placed[:number]:
                if _overlap_of_urls(url, taken):
                    self._findings.problem(
                        ("sinks", sink.name, "path"),
                        f"uses the same location as the sink {other.name!r} (line {other.line}): {taken}; give each "
                        "its own",
                    )
            if checkpoint is not None and _overlap_of_urls(url, checkpoint.url):
                self._findings.problem(
                    ("sinks", sink.name, "path"),
                    f"uses the same location as the checkpoint: {checkpoint.url}; keep the two apart",
                )

    def check_writable(self) -> None:
        """Whether the directories can be created and written on this machine; creates nothing."""
        for sink, found in self._archives:
            self._check_writable(("sinks", sink.name, "path"), found)
        for sink, found in self._files:
            self._check_writable(("sinks", sink.name, "path"), Path(fixed_directory(str(found))))
        if self._checkpoint is not None:
            self._check_writable(self._checkpoint_key, self._checkpoint)

    def _check_writable(self, path: KeyPath, directory: Path) -> None:
        there = next(each for each in (directory, *directory.parents) if os.path.lexists(each))
        fault = _write_fault(there)
        if fault is not None:
            self._findings.problem(path, f"{directory} cannot be written: {there} {fault}")


def check_keys(findings: Findings, file: str, transforms: Sequence[Transform], environ: Mapping[str, str]) -> None:
    """Whether the keys of masks exist. A variable may be set only on the machine that runs the pipeline, so a missing
    variable is a warning; a missing file is a problem."""
    for node in transforms:
        for ref in node.key_refs:
            path: KeyPath = ("transforms", node.name, "key_file" if ref.env is None else "key_env")
            if ref.env is not None and ref.env not in environ:
                findings.warning(path, f"the environment variable {ref.env} is not set here; 'run' needs it")
                continue
            try:
                load_keys((ref,), environ, Path(file).parent)
            except MaskKeyError as error:
                findings.problem(path, str(error))


def check_tables(findings: Findings, file: str, transforms: Sequence[Transform]) -> None:
    """Whether tables that are files can be read, and have the columns that the pipeline uses."""
    for node in transforms:
        for ref in node.table_refs:
            place: KeyPath = ("transforms", node.name, "table")
            if is_file(ref) and (fault := path_fault(ref.location, _A_FILE)) is not None:
                findings.problem((*place, "path"), f"{ref.location!r} {fault}")
                continue
            for fault in table_faults(ref, Path(file).parent):
                findings.problem(place, fault)


def _overlap(path: Path, other: Path) -> str | None:
    """How two directories overlap, as the start of a sentence; None if they do not."""
    if path == other or _is_same(path, other):
        return "is the directory"
    if path.is_relative_to(other):
        return "is inside the directory"
    return "contains the directory" if other.is_relative_to(path) else None


def _overlap_of_urls(url: str, other: str) -> bool:
    return f"{url}/".startswith(f"{other}/") or f"{other}/".startswith(f"{url}/")


def _is_same(path: Path, other: Path) -> bool:
    """True also for one directory that is mounted twice."""
    try:
        return path.samefile(other)
    except OSError:
        return False


def _write_fault(directory: Path) -> str | None:
    """Why nothing can be created in an existing directory, or None.

    It opens a temporary file without a name, which leaves no trace. If the file system does not support that, it checks
    the permissions (which do not restrict root) and whether the file system stores files at all (/proc and similar ones
    do not).
    """
    if not directory.is_dir():
        return "is not a directory"
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_WRONLY, 0o600))
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            return f"does not allow it ({error.strerror})"
        if not os.access(directory, os.W_OK | os.X_OK):
            return "does not allow it (permission denied)"
        if os.statvfs(directory).f_blocks == 0:
            return "keeps no files"
    return None
