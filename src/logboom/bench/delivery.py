"""The speed of a sink: lines that the router has parsed and masked, into a server, by the command a user would run.

`pipeline run --once` first lets the router write all lines to the edge, then starts the delivery, so the two can be
timed one after the other in one process. A batch of a sink that sends requests has ended when what was delivered is
durably noted (`delivered.json`): the modified time of the file is that moment, and it has the highest offset of each
partition of the lines, all of which are delivered in order.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from logboom.base.errors import LogboomError
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
from logboom.bench.wire import BenchError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.sinks.bulk.model import BulkSink
from logboom.pipeline.sinks.bulk.progress import read_progress
from logboom.pipeline.sinks.registry import type_of

_POLL_S: Final = 0.02
_NOTED: Final = "delivered.json"


def sink_type(keys: str) -> str:
    """The type of the sink that has these keys in a pipeline's file: `type: webhook, url: 'http://127.0.0.1:8080/'`.

    :raises BenchError: they are none of a sink that sends requests.
    """
    try:
        (sink,) = compile_pipeline(pipeline_text("lines", 1, _sink_line(keys)), "pipeline.yaml").sinks
    except LogboomError as error:
        raise BenchError(f"no sink has the keys {keys!r}: {error}") from None
    if not isinstance(sink, BulkSink):
        raise BenchError("only sinks that send requests are measured so, and --sink parquet")
    return type_of(sink).name


def _sink_line(keys: str) -> str:
    return f"measured: {{inputs: [masked], {keys}}}"


def pipeline_text(stream: str, batch_records: int, sink: str) -> str:
    """The pipeline of a stream of lines with one sink, a line of its file."""
    return f"{MASKED_EVENTS.format(stream=stream, batch_records=batch_records)}sinks:\n  {sink}\n"


def run_sink(
    bootstrap: str,
    stream: str,
    load: RouterLoad,
    keys: str,
    *,
    progress: Callable[[str], None],
    server_pid: int | None = None,
    data: Path | None = None,
) -> dict[str, Any]:
    """Fill `stream`, run a pipeline with the sink of these keys over it and time router and delivery, each by itself.

    :raises BenchError: the run failed.
    """

    def batches(running: PipelineProcess) -> Iterator[TimedBatch]:
        return noted_batches(running, server_pid, progress)

    line = _sink_line(keys)
    return run_delivery(bootstrap, stream, load, line, batches, progress=progress, server_pid=server_pid, data=data)


def run_delivery(
    bootstrap: str,
    stream: str,
    load: RouterLoad,
    sink: str,
    batches_of: Callable[[PipelineProcess], Iterable[TimedBatch]],
    *,
    progress: Callable[[str], None],
    server_pid: int | None,
    data: Path | None,
) -> dict[str, Any]:
    """Router and delivery of a pipeline with one sink. `batches_of`: the batches of the delivery until the run's end.

    Rates count events; MB are 10^6 bytes of the lines they were made from. `line_to_sink_events_per_s` is what both
    give one after the other: on a machine that both keep busy it is also what they give side by side.
    """
    progress(f"writing {load.records:,} lines ...")
    value_bytes = fill(bootstrap, stream, load.records)
    text = pipeline_text(stream, load.batch_records, sink)
    progress("running the router ...")
    with pipeline_process(text, bootstrap, data) as running:
        routed = []
        for batch in router_batches(running.process, server_pid, progress):
            routed.append(batch)
            if sum(one.records for one in routed) >= load.records:
                break
        progress("delivering ...")
        delivered = list(batches_of(running))
    router, delivery = (rates(batches, load.records, value_bytes) for batches in (routed, delivered))
    pace = sum(1 / one["warm_events_per_s"] for one in (router, delivery))
    return {
        "load": asdict(load),
        "bytes": value_bytes,
        "pipeline": text,
        "router": router,
        "delivery": delivery,
        "line_to_sink_events_per_s": round(1 / pace),
    }


def noted_batches(
    running: PipelineProcess, server_pid: int | None, progress: Callable[[str], None]
) -> Iterator[TimedBatch]:
    """The batches of a delivery by requests, until the process has ended."""
    before_ns, last, done = time.time_ns(), -1, 0
    ended = False
    while not ended:
        ended = running.process.poll() is not None  # asked first: what was written before is still looked for
        for path in (running.directory / "checkpoints").rglob(_NOTED):
            noted_ns = path.stat().st_mtime_ns
            noted = read_progress(path.parent)
            if noted.batch <= last:
                continue
            count = sum(offset + 1 for offset in noted.high_water.values())
            took_ms = (noted_ns - before_ns) // 1_000_000
            progress(f"delivery up to batch {noted.batch}: {count - done:,} events in {took_ms} ms")
            yield TimedBatch(count - done, took_ms, cpu_by_role(running.process.pid, server_pid))
            before_ns, last, done = noted_ns, noted.batch, count
        time.sleep(_POLL_S)
