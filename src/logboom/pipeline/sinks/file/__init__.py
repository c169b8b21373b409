"""The sink `file`: events as lines of files, each event once, rotated by size and age.

`lines` runs on executors: it skips events that were delivered before, and writes the lines of each file, optionally
compressed, into staged pieces. `appending` runs on the driver, where the files are: it appends the pieces to the files
and rotates them. It first records every step in a journal, so that a failed attempt or a crash is undone exactly.
`delivery` connects the two. `paths` handles event fields in a path.

This module has the sink's keys and plan node and must stay cheap to import: Arrow and Spark are imported when the sink
is opened.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from logboom.base.settings import DurationMs, Settings, SizeBytes
from logboom.base.units import DAY_MS, KIB, SECOND_MS
from logboom.pipeline.plan.nodes import Sink
from logboom.pipeline.sinks.base import CommonFields, SinkContext, SinkModel, SinkReport, SinkType, SinkWriter
from logboom.pipeline.sinks.file.paths import PARTS, form_fault, unknown_parts

FileCompression = Literal["none", "gzip", "zstd"]
FileEncoding = Literal["json", "body"]


class RotateModel(Settings):
    """When a file is rotated, and how many rotated files are kept."""

    size: SizeBytes | None = Field(default=None, ge=64 * KIB)
    """A file of this size is rotated. It may exceed the size by up to a MiB, or by one long line."""

    every: DurationMs | None = Field(default=None, ge=SECOND_MS, le=366 * DAY_MS)
    """A file that was last written in an earlier period of this length (counted from 1970, UTC) is rotated."""

    keep: int | None = Field(default=None, ge=1)
    """Number of rotated files to keep, the newest ones; default: all."""


class FileSinkModel(SinkModel):
    """Lines in files."""

    type: Literal["file"]
    path: str
    """The file, on the machine of the driver. `{date}`, `{hour}` (of the event, UTC), `{service}`, `{host}`, `{source}`
    and `{stream}` are replaced by the event's values."""

    encoding: FileEncoding = "json"
    """`json`: the event, one JSON object per line; `body`: its message, which may have several lines."""

    compression: FileCompression = "none"
    rotate: RotateModel | None = None


class FileSink(Sink, frozen=True, kw_only=True, tag="file"):
    """Lines in files on the driver's machine."""

    path: str
    encoding: FileEncoding = "json"
    compression: FileCompression = "none"
    rotate_bytes: int | None = None
    rotate_every_ms: int | None = None
    keep_files: int | None = None

    @property
    def output_file(self) -> str:
        return self.path


def _compile(model: FileSinkModel, common: CommonFields, report: SinkReport) -> FileSink:
    for part in unknown_parts(model.path):
        report.unknown("path", "part", part, PARTS)
    if (fault := form_fault(model.path)) is not None:
        report.problem("path", f"{model.path!r} {fault}")
    rotate = model.rotate or RotateModel()
    if model.rotate is not None and rotate.size is None and rotate.every is None:
        report.problem("rotate", "needs a size, or every, or both")
    return FileSink(
        **common,
        path=model.path,
        encoding=model.encoding,
        compression=model.compression,
        rotate_bytes=rotate.size,
        rotate_every_ms=rotate.every,
        keep_files=rotate.keep,
    )


def _open(sink: FileSink, context: SinkContext) -> SinkWriter:
    from logboom.pipeline.sinks.file.delivery import open_files

    return open_files(sink, context)


SINK: Final = SinkType("file", FileSinkModel, FileSink, _compile, _open)
