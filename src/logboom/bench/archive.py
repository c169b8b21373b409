"""The archive's speed: events of an edge into Parquet files, by the command a user would run.

`pipeline run --once` first lets the router write all lines to the edge, then starts the delivery, so the two can be
timed one after the other in one process. A batch of the delivery has ended when its manifest is durable: the modified
time of the manifest is that moment, and the number of rows is in it.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec

from logboom.bench.processes import cpu_by_role
from logboom.bench.router import (
    MASKED_EVENTS,
    PipelineProcess,
    RouterLoad,
    TimedBatch,
    fill,
    pipeline_process,
    rates,
    router_batches,
)
from logboom.pipeline.checkpoint.files import numbered
from logboom.pipeline.sinks.parquet.archive import HIDDEN, Manifest

_POLL_S: Final = 0.02
_ARCHIVE: Final = "archive"

PIPELINE: Final = (
    MASKED_EVENTS
    + """\
sinks:
  archive: {{type: parquet, inputs: [masked], path: archive}}
"""
)


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

    Rates count events; MB are 10^6 bytes of the lines they were made from. `line_to_file_events_per_s` is what both
    give one after the other: on a machine that both keep busy it is also what they give side by side.
    """
    progress(f"writing {load.records:,} lines ...")
    value_bytes = fill(bootstrap, stream, load.records)
    text = PIPELINE.format(stream=stream, batch_records=load.batch_records)
    progress("running the router ...")
    with pipeline_process(text, bootstrap, data) as running:
        routed = []
        for batch in router_batches(running.process, server_pid, progress):
            routed.append(batch)
            if sum(one.records for one in routed) >= load.records:
                break
        progress("delivering ...")
        delivered = list(delivery_batches(running, server_pid, progress))
        files = [path.stat().st_size for path in (running.directory / _ARCHIVE).glob("date=*/hour=*/*.parquet")]
    router, delivery = (rates(batches, load.records, value_bytes) for batches in (routed, delivered))
    pace = sum(1 / one["warm_events_per_s"] for one in (router, delivery))
    return {
        "load": asdict(load),
        "bytes": value_bytes,
        "pipeline": PIPELINE,
        "router": router,
        "delivery": {**delivery, "file_bytes_per_event": round(sum(files) / load.records, 1)},
        "line_to_file_events_per_s": round(1 / pace),
    }


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
