"""The archive's speed: events of an edge into Parquet files, by the command a user would run.

`pipeline run --once` first lets the router write all lines to the edge, then starts the delivery, so the two can be
timed one after the other in one process. A batch of the delivery has ended when its manifest is durable: the modified
time of the manifest is that moment, and the number of rows is in it.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from logboom.bench.delivery import run_delivery
from logboom.bench.processes import cpu_by_role
from logboom.bench.router import PipelineProcess, RouterLoad, TimedBatch
from logboom.pipeline.checkpoint.files import numbered
from logboom.pipeline.sinks.parquet.archive import HIDDEN, Manifest

_POLL_S: Final = 0.02
_ARCHIVE: Final = "archive"

SINK: Final = "archive: {type: parquet, inputs: [masked], path: archive}"


def run_archive(
    bootstrap: str,
    stream: str,
    load: RouterLoad,
    *,
    progress: Callable[[str], None],
    server_pid: int | None = None,
    data: Path | None = None,
) -> dict[str, Any]:
    """Fill `stream`, run a pipeline with a Parquet sink over it and time router and delivery, each by itself.

    Beside what `run_delivery` gives: how many bytes of its files an event takes.
    """
    sizes: list[int] = []

    def batches(running: PipelineProcess) -> Iterator[TimedBatch]:
        yield from delivery_batches(running, server_pid, progress)
        sizes.extend(path.stat().st_size for path in (running.directory / _ARCHIVE).glob("date=*/hour=*/*.parquet"))

    result = run_delivery(bootstrap, stream, load, SINK, batches, progress=progress, server_pid=server_pid, data=data)
    delivery = {**result["delivery"], "file_bytes_per_event": round(sum(sizes) / load.records, 1)}
    return {**result, "delivery": delivery}


def delivery_batches(
    running: PipelineProcess, server_pid: int | None, progress: Callable[[str], None]
) -> Iterator[TimedBatch]:
    """The batches of the delivery, until the process has ended."""
    before, last = time.time_ns(), -1
    ended = False
    while not ended:
        ended = running.process.poll() is not None  # asked first: what was written before is still looked for
        for number, path in _manifests(running.directory / _ARCHIVE):
            if number <= last:
                continue
            manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
            committed = path.stat().st_mtime_ns
            took_ms = (committed - before) // 1_000_000
            last, before = number, committed
            progress(f"delivery of batch {number}: {took_ms} ms")
            yield TimedBatch(manifest.rows, took_ms, cpu_by_role(running.process.pid, server_pid))
        time.sleep(_POLL_S)


def _manifests(archive: Path) -> list[tuple[int, Path]]:
    """The manifests that are there: of one owner, since the archive is new."""
    return [found for owner in (archive / HIDDEN / "manifests").glob("*") for found in numbered(owner)]
