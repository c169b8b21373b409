"""The router's speed: JSON lines through five routes with masking, by the command a user would run.

The same lines are the load of `archive`, which measures what comes after the router.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from confluent_kafka import Producer

from logboom.bench.processes import cpu_by_role, family_cpu_s
from logboom.bench.spark_cluster import HOST, StandaloneCluster
from logboom.bench.wire import BenchError

DISTINCT_LINES = 20_000
WARM_UP_RECORDS = 1_000_000
"""What the JVM's compiler needs before it has settled."""
RECORDS_MIN = 1_500_000
"""With fewer, no whole batch might come behind the warming up."""

MASKED_EVENTS = """\
name: {stream}
batch: {{max_records: {batch_records}}}
sources:
  lines: {{type: stream, stream: {stream}}}
transforms:
  events:
    type: parse
    inputs: [lines]
    rules: [{{format: json}}]
  masked:
    type: mask
    inputs: [events]
    rules:
      - {{kind: email, action: redact}}
      - {{kind: card, action: keep_last, keep: 4}}
      - {{kind: ipv4, action: redact}}
"""
"""A stream of JSON lines, parsed and masked: what comes before `split` or a sink."""

PIPELINE = (
    MASKED_EVENTS
    + """\
  split:
    type: route
    inputs: [masked]
    routes:
      errors: severity_number >= 17
      warnings: severity_number BETWEEN 13 AND 16
      payments: service = 'payments'
      health: service = 'gateway'
sinks:
  to_errors: {{type: stream, inputs: [split.errors], stream: {stream}-errors}}
  to_warnings: {{type: stream, inputs: [split.warnings], stream: {stream}-warnings}}
  to_payments: {{type: stream, inputs: [split.payments], stream: {stream}-payments}}
  to_health: {{type: stream, inputs: [split.health], stream: {stream}-health}}
  to_rest: {{type: stream, inputs: [split.unmatched], stream: {stream}-rest}}
"""
)


Through = Literal[
    "aggregate", "dedupe", "encrypt", "enrich", "join", "limit", "patterns", "sample", "schema", "split", "tail_sample"
]
_IN_THE_WAY = "inputs: [masked]\n    routes:"
_THROUGH: dict[Through, str] = {
    "dedupe": "  passed: {{type: dedupe, inputs: [masked]}}\n",
    "encrypt": """\
  passed:
    type: encrypt
    inputs: [masked]
    fields: [attributes.url.path]
    key_name: bench
    key_file: bench.key
""",
    "enrich": """\
  passed:
    type: enrich
    inputs: [masked]
    table: {{type: csv, path: hosts.csv, key: host}}
    on: host
    fields: {{team: attributes.team, zone: attributes.zone}}
""",
    "join": """\
  sides: {{type: route, inputs: [masked], routes: {{paid: "service = 'payments'"}}}}
  passed:
    type: join
    left: sides.paid
    right: sides.unmatched
    on: trace_id
    into: other
    window: 1s
    unmatched: merged
""",
    "limit": "  passed: {{type: limit, inputs: [masked], bytes: 100GB, by: service}}\n",
    "patterns": "  passed: {{type: patterns, inputs: [masked]}}\n",
    "sample": "  passed: {{type: sample, inputs: [masked], per_second: 1000000, by: service}}\n",
    "schema": "  passed: {{type: reshape, inputs: [masked], schema: ocsf}}\n",
    "split": """\
  listed: {{type: reshape, inputs: [masked], set: {{attributes.part: "'[1,2]'"}}}}
  passed: {{type: reshape, inputs: [listed], cast: {{attributes.part: json}}, split: {{of: attributes.part}}}}
""",
    "tail_sample": """\
  passed: {{type: tail_sample, inputs: [masked], wait: 1s, keep: {{errors: severity_number >= 17}}, rate: 1}}
""",
    "aggregate": """\
  metrics:
    type: aggregate
    inputs: [masked]
    window: 10s
    time: arrival
    by: [service, host, attributes.http.response.status_code]
    metrics:
      requests: {{type: count}}
      duration: {{type: quantiles, of: attributes.duration_ms}}
      paths: {{type: unique, of: attributes.url.path}}
""",
}
"""More transforms in the pipeline: `passed` between the mask and the routes, `metrics` beside them."""
_METRICS_SINK = "  to_metrics: {{type: stream, inputs: [metrics], stream: {stream}-metrics}}\n"


def pipeline_text(through: Through | None = None) -> str:
    """The pipeline of the five routes, with one more transform; `stream` and `batch_records` are to be filled in."""
    if through is None:
        return PIPELINE
    text = PIPELINE.replace("  split:\n", f"{_THROUGH[through]}  split:\n")
    if through == "aggregate":
        return text + _METRICS_SINK
    return text.replace(_IN_THE_WAY, _IN_THE_WAY.replace("masked", "passed"))


def hosts_table() -> str:
    """The table of `enrich`, for all hosts of the lines but one in eight."""
    rows = (f"node-{number:03d}.eu-west.example.net,team-{number % 7},{number % 3}" for number in range(35))
    return "\n".join(("host,team,zone", *rows, ""))


@dataclass(frozen=True)
class RouterLoad:
    """How many lines go through the router, how many in one batch, and what else is in their way."""

    records: int = 2_500_000
    batch_records: int = 250_000
    through: Through | None = None
    workers: int = 0
    """Of a Spark cluster on this machine, with a core each; 0: inside the router's own process."""
    master: str | None = None
    """Of a Spark cluster that runs already."""


def json_lines(count: int, seed: int = 7) -> Iterator[bytes]:
    """`count` JSON log lines of some 400 bytes, the same for the same seed; a part carries addresses and cards."""
    rng = random.Random(seed)  # noqa: S311  # made-up input, nothing secret
    levels = (("info",) * 86, ("warn",) * 8, ("error",) * 4, ("debug",) * 2)
    flat = [level for group in levels for level in group]
    for number in range(count):
        body = f"request {number} took {rng.randrange(1, 900)} ms over shard {rng.randrange(64)} of the cluster"
        if number % 10 == 0:
            body += f", user.{rng.randrange(10_000)}@example.org from 203.0.113.{rng.randrange(255)}"
        if number % 50 == 0:
            body += ", paid with 4111 1111 1111 1111"
        clock = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}.{number % 1000:03d}"
        line = {
            "time": f"2026-11-20T{clock}Z",
            "level": rng.choice(flat),
            "service": rng.choice(("checkout", "payments", "gateway", "search")),
            "message": body,
            "trace_id": f"{rng.getrandbits(128) | 1:032x}",
            "span_id": f"{rng.getrandbits(64) | 1:016x}",
            "http.request.method": rng.choice(("GET", "POST")),
            "url.path": f"/v2/orders/{rng.randrange(1 << 32):08x}/items",
            "http.response.status_code": rng.choice((200, 201, 404, 500)),
            "duration_ms": rng.randrange(900),
            "host.name": f"node-{rng.randrange(40):03d}.eu-west.example.net",
        }
        yield json.dumps(line).encode()


def fill(bootstrap: str, stream: str, records: int) -> int:
    """Write `records` lines over the stream's partitions; bytes of all values. BenchError if one is not acked."""
    lines = list(json_lines(min(records, DISTINCT_LINES)))
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4", "log_level": 0})
    total = 0
    for number in range(records):
        line = lines[number % len(lines)]
        total += len(line)
        while True:
            try:
                producer.produce(stream, line, partition=number % 4)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(300):
        raise BenchError("the stream could not be filled within 300 s")
    return total


@dataclass(frozen=True)
class TimedBatch:
    """A batch that has ended."""

    records: int
    took_ms: int
    cpu_s: dict[str, float]
    """CPU seconds used until then, by process."""


def run_router(
    bootstrap: str,
    stream: str,
    load: RouterLoad,
    *,
    progress: Callable[[str], None],
    server_pid: int | None = None,
    data: Path | None = None,
) -> dict[str, Any]:
    """Fill `stream`, run `logboom pipeline run --once` over it and time its batches; the first ones warm the JVM.

    Rates count records in; MB are 10^6 bytes of their values. CPU seconds are those between the ends of batches.
    """
    progress(f"writing {load.records:,} lines ...")
    value_bytes = fill(bootstrap, stream, load.records)
    pipeline = pipeline_text(load.through)
    text = pipeline.format(stream=stream, batch_records=load.batch_records)
    progress("running the router ...")
    with ExitStack() as stack:
        executors, arguments = _cluster(stack, load, data)
        router = stack.enter_context(pipeline_process(text, bootstrap, data, *arguments))
        batches = list(router_batches(router.process, server_pid, progress, executors))
    return {
        "load": asdict(load),
        "bytes": value_bytes,
        "pipeline": pipeline,
        **rates(batches, load.records, value_bytes),
    }


def _cluster(stack: ExitStack, load: RouterLoad, data: Path | None) -> tuple[list[int], tuple[str, ...]]:
    """The processes of the workers that a load asks for, started, and the options of `run` that name the cluster."""
    if load.master is not None:
        return [], ("--master", load.master)
    if not load.workers:
        return [], ()
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="logboom-bench-", dir=data))
    cluster = stack.enter_context(StandaloneCluster(Path(directory), load.workers))
    settings = ("--spark", f"spark.driver.host={HOST}", "--spark", "spark.executor.memory=768m")
    return [worker.pid for worker in cluster.workers], ("--master", cluster.master, *settings)


@contextmanager
def pipeline_process(text: str, bootstrap: str, data: Path | None, *arguments: str) -> Iterator["PipelineProcess"]:
    """`logboom pipeline run --once` over a pipeline's text, with more arguments; BenchError where it fails.

    Its checkpoint, and what it writes below the file's directory, is in `data` (None: the system's temporary
    directory) until the end.
    """
    with tempfile.TemporaryDirectory(prefix="logboom-bench-", dir=data) as name:
        file = Path(name, "pipeline.yaml")
        file.write_text(text)
        Path(name, "hosts.csv").write_text(hosts_table())
        Path(name, "bench.key").write_text("a key that guards nothing")
        command = [sys.executable, "-m", "logboom.cli", "pipeline", "run", str(file), "--once", "--json"]
        command += ["--bootstrap", bootstrap, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield PipelineProcess(process, file.parent)
            except BaseException:  # Ctrl-C too: the process must not outlive the measurement
                process.terminate()
                raise
        if process.returncode != 0:
            raise BenchError("the pipeline failed; run `logboom pipeline run` by hand to see why")


@dataclass(frozen=True)
class PipelineProcess:
    """A pipeline that runs, and the directory of its file."""

    process: "subprocess.Popen[str]"
    directory: Path


def router_batches(
    process: "subprocess.Popen[str]",
    server_pid: int | None,
    progress: Callable[[str], None],
    executors: Sequence[int] = (),
) -> Iterator[TimedBatch]:
    """The batches of the router as the process prints them. `executors`: processes of workers elsewhere."""
    assert process.stdout is not None
    last, before = -1, 0
    for line in process.stdout:
        shown = json.loads(line)
        if shown.get("batch", -1) <= last:
            continue
        last, count = shown["batch"], sum(shown["now"]["records_in"].values())
        progress(f"batch {last}: {shown['batch_ms']} ms")
        used = cpu_by_role(process.pid, server_pid)
        if executors:
            used["executors"] = sum(map(family_cpu_s, executors))
        yield TimedBatch(count - before, shown["batch_ms"], used)
        before = count


def rates(batches: list[TimedBatch], records: int, value_bytes: int) -> dict[str, Any]:
    """Events and MB a second over all batches and over the warm ones; CPU seconds for a million events of these.

    BenchError where not all records were processed, or no batch was warm.
    """
    read = _read(batches)
    warm_from = next((at for at in range(1, len(batches)) if _read(batches[:at]) >= WARM_UP_RECORDS), len(batches))
    warm = batches[warm_from:]
    if read != records or not warm:
        told = f"{read:,} of {records:,} records were processed in {len(batches)} batches"
        raise BenchError(f"{told}; a figure needs all, and a batch behind the first {WARM_UP_RECORDS:,}")
    warm_s, all_s = (sum(batch.took_ms for batch in some) / 1_000 for some in (warm, batches))
    bytes_each = value_bytes / records
    used = {role: after - batches[warm_from - 1].cpu_s[role] for role, after in warm[-1].cpu_s.items()}
    per_million = {role: round(seconds / _read(warm) * 1e6, 2) for role, seconds in used.items()}
    return {
        "batches": [{"records": batch.records, "ms": batch.took_ms} for batch in batches],
        "events_per_s": round(read / all_s),
        "mb_per_s": round(value_bytes / all_s / 1e6, 1),
        "warm_events_per_s": round(_read(warm) / warm_s),
        "warm_mb_per_s": round(_read(warm) * bytes_each / warm_s / 1e6, 1),
        "bytes_per_event": round(bytes_each),
        "warm_cpu_s_per_million_events": {**per_million, "all": round(sum(per_million.values()), 2)},
    }


def _read(batches: list[TimedBatch]) -> int:
    return sum(batch.records for batch in batches)
