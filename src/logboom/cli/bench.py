"""`logboom bench`: measure any server that speaks the Kafka protocol; data and a picture land in a folder."""

import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NoReturn

import typer

from logboom.bench import baseline, histogram, plots, report
from logboom.bench.compare import CASES, CONTESTANTS, CompareLoad, run_compare, write_outcome
from logboom.bench.consume import run_consume
from logboom.bench.goals import GoalsLoad, run_goals
from logboom.bench.latency import WELL_KNOWN, LatencyLoad, run_latency
from logboom.bench.produce import ProduceLoad, beside_the_first
from logboom.bench.produce import produce as run_produce
from logboom.bench.router import RECORDS_MIN, RouterLoad, Through, run_router
from logboom.bench.servers import NothingServer
from logboom.bench.soak import SoakLoad, run_soak, write_soak
from logboom.bench.streams import bench_stream
from logboom.bench.throughput import SIZES, ThroughputLoad, run_throughput
from logboom.bench.wire import BenchError
from logboom.cli import bench_cluster, bench_nats, bench_node
from logboom.cli.bench_common import OUT, PREFIX, Out, chosen, show_comparison
from logboom.cli.client import reach_brokers
from logboom.cli.common import AsJson, Bootstrap, fail, made_directory, note, print_json, print_table
from logboom.host import keep_buffers

ServerPid = Annotated[int | None, typer.Option("--server-pid", help="Process whose CPU time is reported, if local.")]
Probe = Annotated[Path, typer.Option("--probe-dir", help="Directory on the disk that the plain write loop uses.")]

bench = typer.Typer(no_args_is_help=True, help="Measure a broker, or the router.")


@bench.callback()
def _prepare() -> None:
    keep_buffers()  # the load generator must not be the limit
    if "--help" not in sys.argv and "-h" not in sys.argv:
        for warning in report.warnings():
            note(warning)
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, _ended)


def _ended(number: int, _frame: object) -> NoReturn:
    """A run that is ended takes down the servers it started."""
    raise SystemExit(128 + number)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    bench_node.register(bench)
    bench_cluster.register(bench)
    bench_nats.register(bench)
    app.add_typer(bench, name="bench")


@bench.command()
def produce(
    bootstrap: Bootstrap = "127.0.0.1:9092",
    record_bytes: Annotated[int, typer.Option(help="Bytes of a record's value.")] = 100,
    request_bytes: Annotated[
        int, typer.Option(help="Bytes of a request's batch; one record where that is larger.")
    ] = 65_536,
    connections: int = 4,
    in_flight: Annotated[int, typer.Option(help="Requests under way over all connections.")] = 16,
    partitions: int = 1,
    seconds: float = 10.0,
    warm_up: Annotated[float, typer.Option(help="Seconds before counting starts.")] = 2.0,
    replicas: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Replicas of the stream's partitions; repeatable, for one stream after the other. [default: 1]",
        ),
    ] = None,
    flush: Annotated[str, typer.Option(help="The stream's logboom.flush, for a Logboom server: commit or none.")] = "",
    server_pid: Annotated[
        list[int] | None, typer.Option(help="Process whose CPU time is reported, if local; repeatable: their sum.")
    ] = None,
    probe_dir: Probe = Path(),
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Acked records a second, beside a plain loop of 1 MiB write + fdatasync on the same machine."""
    reach_brokers(bootstrap)
    load = ProduceLoad(record_bytes, request_bytes, connections, in_flight, partitions, seconds, warm_up)
    counts, config = replicas or [1], {"logboom.flush": flush} if flush else {}
    takes_s = (warm_up + seconds) * len(counts)
    note(f"plain write + fdatasync for {seconds / 2:.0f} s, then {takes_s:.0f} s of requests ...")
    before = baseline.write_and_sync(probe_dir, seconds / 4)
    results = [_produced(bootstrap, load, count, config, server_pid or []) for count in counts]
    after = baseline.write_and_sync(probe_dir, seconds / 4)
    plain = (_number(before["mb_per_s"]) + _number(after["mb_per_s"])) / 2
    for result in results:
        result |= {"flush": flush or "the server's own", "plain_write_fdatasync": [before, after]}
        result["ratio_to_plain_write"] = round(_number(result["mb_per_s"]) / plain, 3)
    outcome = results[0] if len(results) == 1 else {"runs": results, "beside_the_first": beside_the_first(results)}
    target = report.write(out, "produce", {"result": outcome})
    bars = {f"acked, {one['replicas']} replicas": _number(one["mb_per_s"]) for one in results}
    title = f"Produce, {record_bytes} B records, {request_bytes} B requests"
    plots.bars(target, title, {**bars, "plain write + fdatasync": plain}, "MB/s")
    lines = [
        f"{one['replicas']} replica{'s' if one['replicas'] != 1 else ''}: {_rate(one)}, "
        f"{one['ratio_to_plain_write']:.0%} of a plain write loop; the load generator used "
        f"{one['client_cpu_share']:.0%} of a core"
        for one in results
    ]
    _print_outcome("\n".join(lines), target, outcome, as_json)


def _produced(
    bootstrap: str, load: ProduceLoad, replicas: int, config: dict[str, str], pids: list[int]
) -> dict[str, Any]:
    """The load on a stream of its own, with the processor time of some servers."""
    with bench_stream(bootstrap, partitions=load.partitions, replicas=replicas, config=config) as stream:
        used = sum(map(report.cpu_seconds, pids))
        result = {"replicas": replicas, **run_produce(bootstrap, stream, load)}
        if pids:
            took_s = sum(map(report.cpu_seconds, pids)) - used
            result["server_cpu_s_per_million_records"] = _per_million(took_s, result)
    return result


@bench.command()
def consume(
    bootstrap: Bootstrap = "127.0.0.1:9092",
    record_bytes: int = 100,
    fill_seconds: Annotated[float, typer.Option(help="How long the stream is filled before it is read.")] = 4.0,
    max_bytes: Annotated[int, typer.Option(help="Bytes asked for in one fetch.")] = 1_048_576,
    rounds: Annotated[int, typer.Option(help="How often the stream is read, and copied beside it.")] = 5,
    server_pid: ServerPid = None,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Records a second that one consumer reads from the page cache, beside a plain loopback copy of the same bytes."""
    reach_brokers(bootstrap)
    note(f"filling a stream for {fill_seconds:.0f} s, then reading and copying it in turns ...")
    with bench_stream(bootstrap) as stream:
        fill = ProduceLoad(record_bytes=record_bytes, seconds=fill_seconds, warm_up_s=0.0)
        filled = run_produce(bootstrap, stream, fill)
        used = report.cpu_seconds(server_pid) if server_pid else 0.0
        result = run_consume(bootstrap, stream, int(_number(filled["records"])), max_bytes, rounds=rounds)
        if server_pid:
            passes = (report.cpu_seconds(server_pid) - used) / (rounds + 1)
            result["server_cpu_s_per_million_records"] = _per_million(passes, result)
    target = report.write(out, "consume", {"result": result})
    bars = {"consume": result["mb_per_s"], "plain loopback copy": result["plain_loopback_copy_mb_per_s"]}
    values = {name: _number(value) for name, value in bars.items()}
    plots.bars(target, f"Consume, {record_bytes} B records, one connection", values, "MB/s")
    _print_outcome(f"{_rate(result)}, {result['ratio_to_plain_copy']:.0%} of a plain copy", target, result, as_json)


@bench.command()
def latency(
    bootstrap: Bootstrap = "127.0.0.1:9092",
    record_bytes: int = 256,
    rate: Annotated[int, typer.Option(help="Messages a second, held whatever the server does.")] = 3_000,
    seconds: float = 20.0,
    well_known: Annotated[bool, typer.Option(help="The four sizes and rates of the published benchmark.")] = False,
    idempotent: bool = False,
    reader: Annotated[
        str, typer.Option(help="raw: long polls of one fetch; librdkafka: its consumer, with its queues and threads.")
    ] = "raw",
    partitions: Annotated[
        int, typer.Option(help="Each message goes to the next one; more than one need --reader librdkafka.", min=1)
    ] = 1,
    replicas: Annotated[int, typer.Option(help="Replicas of each partition.", min=1)] = 1,
    alone: Annotated[
        bool, typer.Option(help="Also run against a server that only hands on: the client's share.")
    ] = False,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """End-to-end latency by librdkafka with linger 0, from the intended send time of each message."""
    if reader not in ("raw", "librdkafka"):
        fail(f"--reader: {reader!r} is neither raw nor librdkafka")
    if partitions > 1 and reader == "raw":
        fail("--reader raw reads one partition: add --reader librdkafka")
    reach_brokers(bootstrap)
    results: dict[str, Any] = {}
    for size, per_second in WELL_KNOWN if well_known else ((record_bytes, rate),):
        note(f"{size} B at {per_second}/s for {seconds:.0f} s ...")
        load = LatencyLoad(size, per_second, seconds, idempotent=idempotent, reader=reader, partitions=partitions)
        config = {"max.message.bytes": "2000000"}
        with bench_stream(bootstrap, partitions=partitions, replicas=replicas, config=config) as stream:
            measured = run_latency(bootstrap, stream, load)
        results[f"{size} B, {per_second}/s"] = {"replicas": replicas, **measured}
        if alone:
            results[f"{size} B, {per_second}/s, the client alone"] = run_alone(load)
    target = report.write(out, "latency", {"results": results})
    ends = {name: one["end_to_end"] for name, one in results.items()}
    plots.curves(target, "End to end", {name: one["curve_ms"] for name, one in ends.items()})
    heading, *rows = histogram.table(ends)
    note("milliseconds end to end; in brackets where no message of its own lies behind the percentile")
    if not as_json:
        print_table(heading, rows)
    for name, one in results.items():
        held = "the rate was held" if one["held"] else "THE RATE WAS NOT HELD"
        shares = f"{one['producer_cpu_share']:.0%} and {one['consumer_cpu_share']:.0%}"
        late = one["sent_late"]["percentiles_ms"]
        note(f"{name}: {held}; sent {late['50.0']} ms late (p99: {late['99.0']} ms) by a producer and a")
        note(f"  consumer that used {shares} of a core")
    _print_outcome(f"{len(results)} runs", target, results, as_json)


@bench.command()
def throughput(
    bootstrap: Bootstrap = "127.0.0.1:9092",
    messages: Annotated[int, typer.Option(min=1, help="Messages of each size from 256 B to 1 MB.")] = 100_000,
    size_max_mib: Annotated[
        int, typer.Option(min=1, help="The most that one size writes; fewer messages are sent beyond it.")
    ] = 2_048,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """A fixed number of messages of each size from 256 B to 1 MB, written and read back."""
    reach_brokers(bootstrap)
    load = ThroughputLoad(messages, size_max_mib * 1024**2)
    results: dict[int, dict[str, Any]] = {}
    for size in SIZES:
        note(f"{load.count(size):,} messages of {size:,} B ...")
        with bench_stream(bootstrap, config={"max.message.bytes": "2000000"}) as stream:
            results[size] = run_throughput(bootstrap, stream, size, load.count(size))
    target = report.write(out, "throughput", {"results": results})
    lines = {
        title: {"this server": {size: one[key] for size, one in results.items()}}
        for title, key in (("written and acked", "produce_mb_per_s"), ("read from the page cache", "consume_mb_per_s"))
    }
    colours = {"this server": plots.COLOURS[0]}
    plots.size_lines(target / "picture.png", "Throughput over the size of a message", lines, colours)
    if not as_json:
        heading = ("bytes", "messages", "written MB/s", "read MB/s", "generator's share of a core")
        keys = ("records", "produce_mb_per_s", "consume_mb_per_s", "client_cpu_share")
        print_table(heading, [(size, *(one[key] for key in keys)) for size, one in results.items()])
    _print_outcome(f"{len(results)} sizes", target, {str(size): one for size, one in results.items()}, as_json)


def _of_sink(sink: str) -> tuple[str, Callable[..., dict[str, Any]]]:
    """The name of a measurement of a pipeline, and what takes it. Raises BenchError."""
    if sink == "stream":
        return "pipeline", run_router
    # These load the pipeline's model and pyarrow, which takes longer than all that the other measurements load.
    from logboom.bench.archive import run_archive
    from logboom.bench.delivery import run_sink, sink_type

    if sink == "parquet":
        return "pipeline-parquet", run_archive
    return f"pipeline-{sink_type(sink)}", partial(run_sink, keys=sink)


@bench.command()
def pipeline(
    bootstrap: Bootstrap = "127.0.0.1:9092",
    sink: Annotated[
        str,
        typer.Option(
            metavar="stream|parquet|KEYS",
            help="stream: five routes to streams; parquet: files; or the keys of a sink that sends requests, "
            "as in \"type: webhook, url: 'http://127.0.0.1:8080/'\".",
        ),
    ] = "stream",
    through: Annotated[
        Through | None, typer.Option(help="With stream: one more transform, on the way to the routes or beside them.")
    ] = None,
    records: Annotated[
        int, typer.Option(min=RECORDS_MIN, help="JSON lines of some 400 bytes; the first million warms up.")
    ] = 2_500_000,
    workers: Annotated[
        int, typer.Option(min=0, help="On a Spark cluster of this many local workers, a core each; 0: in the router.")
    ] = 0,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="On a Spark cluster that runs already, over the same files.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="For checkpoint and archive meanwhile.", callback=made_directory)
    ] = None,
    server_pid: ServerPid = None,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Events a second through the router, or of a sink's delivery, out of a stream of four partitions."""
    is_cluster = workers > 0 or master is not None
    if sink != "stream" and (through is not None or is_cluster):
        fail("--through, --workers and --master go with --sink stream")
    if workers and master is not None:
        fail("--workers makes a cluster, --master names one: choose one of them")
    try:
        kind, run = _of_sink(sink)
    except BenchError as error:
        fail(str(error))
    reach_brokers(bootstrap)
    load = RouterLoad(records, through=through, workers=workers, master=master)
    with bench_stream(bootstrap, partitions=4) as stream:
        result = run(bootstrap, stream, load, progress=note, server_pid=server_pid, data=data)
    where = f"{workers}-workers" if workers else None if master is None else "cluster"
    name = "-".join(filter(None, (kind, through, where)))
    target = report.write(out, name, {"result": result})
    measured = {"router": result} if sink == "stream" else {"router": result["router"], "delivery": result["delivery"]}
    bars, lines = {}, []
    for name, rates in measured.items():
        bars[f"{name}, whole run"] = _number(rates["events_per_s"])
        bars[f"{name}, warm batches"] = _number(rates["warm_events_per_s"])
        used = ", ".join(f"{role} {seconds}" for role, seconds in rates["warm_cpu_s_per_million_events"].items())
        speed = f"{rates['warm_events_per_s']:,} events/s, {rates['warm_mb_per_s']} MB/s warm"
        lines.append(f"{name}: {speed}; CPU s per million events: {used}")
    if sink != "stream":
        bars["line to sink"] = _number(result["line_to_sink_events_per_s"])
        lines.append(f"line to sink: {result['line_to_sink_events_per_s']:,} events/s")
    title = (
        f"Router: five routes with masking{f' and {through}' if through else ''}"
        if sink == "stream"
        else f"From lines to {kind.removeprefix('pipeline-')}"
    )
    plots.bars(target, title, bars, "events/s")
    _print_outcome("\n".join(lines), target, result, as_json)


@bench.command()
def compare(
    quick: Annotated[
        bool, typer.Option(help="Some minutes in all: one short round, a JVM that is hardly warm.")
    ] = False,
    only: Annotated[str, typer.Option(help=f"Cases, separated by commas: {', '.join(CASES)}.")] = "",
    peers: Annotated[
        str, typer.Option(help=f"Systems to compare, separated by commas: {', '.join(CONTESTANTS)}.")
    ] = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each case for every server.")] = None,
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the servers keep their data meanwhile.", callback=made_directory)
    ] = Path(),
    size_max_mib: Annotated[
        int | None, typer.Option(min=1, help="The most that one size of the throughput case writes.")
    ] = None,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Logboom beside Kafka and JetStream, in turns, with the same load: JSON, a table and pictures.

    Kafka comes from Maven, nats-server from PATH or through Go; what cannot be had is named and left out.
    """
    names = chosen("--peers", peers, CONTESTANTS) or CompareLoad.contestants
    groups = chosen("--only", only, CASES) or CASES
    load = CompareLoad.quick(names, groups) if quick else CompareLoad(names, groups)
    changes: dict[str, Any] = {"rounds": rounds, "size_max_bytes": size_max_mib and size_max_mib * 1024**2}
    load = replace(load, **{key: value for key, value in changes.items() if value is not None})
    outcome = run_compare(load, data, note)
    target, text = write_outcome(out, outcome)
    show_comparison(outcome, target, text, as_json=as_json)


@bench.command()
def soak(
    minutes: Annotated[
        float, typer.Option(min=0.05, help="Length of the load; restarts fall into its first half.")
    ] = 60.0,
    rate: Annotated[float, typer.Option(min=0.01, help="Factor on the rate of every producer.")] = 1.0,
    restart_every: Annotated[float, typer.Option(min=1.0, help="Seconds between ends of the broker, about.")] = 120.0,
    seed: Annotated[int, typer.Option(help="When the broker ends and how long group members live.")] = 1,
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the broker keeps its data meanwhile.", callback=made_directory)
    ] = Path(),
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Mixed load on a new broker that is stopped and killed meanwhile: nothing is lost, nothing grows.

    The exit code is 1 where the verdict is that it did not hold.
    """
    load = SoakLoad(minutes=minutes, rate=rate, restart_every_s=restart_every, seed=seed)
    outcome = run_soak(load, data, note)
    target = write_soak(out, outcome)
    if as_json:
        print_json({"held": outcome.held, "verdict": outcome.verdict(), "folder": str(target)})
    else:
        typer.echo("\n".join([*outcome.verdict(), f"{target}/result.json", f"{target}/picture.png"]))
    if not outcome.held:
        raise typer.Exit(1)


@bench.command()
def goals(
    seconds: Annotated[float, typer.Option(min=0.5, help="Seconds of each rate.")] = 5.0,
    rounds: Annotated[int, typer.Option(min=1, help="How often each ratio is taken; the median counts.")] = 3,
    latency_seconds: Annotated[float, typer.Option(min=0.5, help="Seconds of each latency run.")] = 20.0,
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the broker keeps its data meanwhile.", callback=made_directory)
    ] = Path(),
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """The goals of one broker that take minutes to check: goal, figure, wanted, met. Starts its own broker."""
    load = GoalsLoad(seconds, rounds, latency_seconds, idle_s=2 * seconds)
    reached = list(run_goals(load, data, note))
    target = report.write(out, "goals", {"load": asdict(load), "goals": [goal.as_json() for goal in reached]})
    if as_json:
        print_json({"goals": [goal.as_json() for goal in reached], "folder": str(target)})
        return
    print_table(("goal", "got", "wanted", "held"), [goal.row() for goal in reached])
    typer.echo(f"{sum(goal.held for goal in reached)} of {len(reached)} held\n{target}/result.json")


def run_alone(load: LatencyLoad) -> dict[str, Any]:
    """A latency run against a relay without a log."""
    with TemporaryDirectory(prefix=PREFIX) as directory:
        server = NothingServer(Path(directory))
        server.start()
        try:
            return run_latency(server.address, "alone", load)
        finally:
            server.stop()


def _rate(result: dict[str, object]) -> str:
    return f"{result['records_per_s']:,} records/s, {result['mb_per_s']} MB/s"


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _per_million(cpu_s: float, result: dict[str, object]) -> float:
    return round(cpu_s / (_number(result["records"]) / 1e6), 4)


def _print_outcome(line: str, target: Path, result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json({**result, "folder": str(target)})
    else:
        typer.echo(f"{line}\n{target}/result.json\n{target}/picture.png")
