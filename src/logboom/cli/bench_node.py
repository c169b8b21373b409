"""`logboom bench fanout|idle|restart|collector|compact`: what one broker needs; each starts its own and removes it."""

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import typer

from logboom.bench.collector import CollectorLoad, run_collector
from logboom.bench.compact import BesideLoad, SpeedLoad, run_beside, run_speed, servers_of
from logboom.bench.fanout import FanoutLoad, run_fanout
from logboom.bench.idle import IdleLoad, run_idle
from logboom.bench.restart import RestartLoad, run_restart
from logboom.bench.servers import LogboomServer
from logboom.cli import bench_cluster
from logboom.cli.bench_common import HERE, OUT, PREFIX, Data, Out, own_server, write_result
from logboom.cli.common import AsJson, note

Peers = Literal["both", "logboom", "kafka"]


def fanout(
    consumers: Annotated[int, typer.Option(help="Consumers of the one partition.")] = 1_000,
    stream_mb: Annotated[int, typer.Option(help="Megabytes that each of them reads.")] = 8,
    total_mb: Annotated[int, typer.Option(help="Megabytes that one alone reads.")] = 512,
    rounds: Annotated[int, typer.Option(help="How often each is measured; the medians count.")] = 3,
    tail_seconds: Annotated[float, typer.Option(help="How long they wait at the end while batches come.")] = 3.0,
    data: Data = HERE,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Broker CPU for each megabyte of one partition: read by one consumer, and by a thousand."""
    load = FanoutLoad(
        consumers=consumers, stream_mb=stream_mb, total_mb=total_mb, tail_seconds=tail_seconds, rounds=rounds
    )
    with own_server(data, LogboomServer) as server:
        server.start()
        result: dict[str, Any] = run_fanout(server, load, note)
    lines = [
        f"{name}: {result[key]['one_us_per_mb']} us/MB for one consumer, {result[key]['many_us_per_mb']} us/MB for "
        f"{consumers:,}: {result[key]['ratio_per_byte']:.2f} times"
        for name, key in (("catching up", "catching_up"), ("tailing", "tailing"))
    ]
    write_result(lines, out, "fanout", {"load": asdict(load), **result}, as_json=as_json)


def idle(
    partitions: Annotated[int, typer.Option(help="Partitions without traffic.")] = 100,
    connections: Annotated[int, typer.Option(help="Idle connections.")] = 2_000,
    trickle_partitions: Annotated[int, typer.Option(help="Partitions that get a message a minute each.")] = 1_000,
    seconds: Annotated[float, typer.Option(help="How long each step is measured.")] = 20.0,
    nodes: Annotated[
        int, typer.Option(min=1, help="More than one: a cluster, whose partitions have up to three replicas.")
    ] = 1,
    data: Data = HERE,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Memory and processor time of a broker that has little to do; and how long it takes to start."""
    if nodes > 1:
        bench_cluster.idle(nodes, partitions, seconds, data, out, as_json=as_json)
        return
    load = IdleLoad(partitions, connections, trickle_partitions, seconds)
    with own_server(data, LogboomServer) as server:
        result: dict[str, Any] = run_idle(server, load, note)
    lines = [f"start {result['start_s']} s ({result['start_cpu_s']} s of processor time)"]
    for name in ("empty", "partitions", "connections", "trickle", "trickle_followed"):
        one = result[name]
        lines.append(
            f"{name.replace('_', ', ')}: {one['cpu_percent']} % of a core, {one['memory_mb']} MB, "
            f"{one['wakeups_per_s']} wake-ups/s"
        )
    lines.append(f"a connection takes {result['connection_bytes']:,} B")
    write_result(lines, out, "idle", {"load": asdict(load), **result}, as_json=as_json)


def restart(
    gigabytes: Annotated[float, typer.Option(help="Data in the log when the broker is killed.")] = 6.0,
    partitions: Annotated[int, typer.Option(help="Partitions that it lies in.")] = 1,
    kills: Annotated[int, typer.Option(help="How often it is killed and started again.")] = 3,
    data: Data = HERE,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Seconds until a broker serves again after kill -9 under load, with real data; nothing acked may be missing."""
    load = RestartLoad(gigabytes, partitions, kills=kills)
    with own_server(data, LogboomServer) as server:
        result: dict[str, Any] = run_restart(server, load, note)
    after_kill = f"{result['after_kill_s']} s ({result['after_kill_cpu_s']} s of processor time)"
    lines = [
        f"{gigabytes} GB in {partitions:,} partitions: after kill -9 {after_kill}",
        f"after a clean stop {result['after_clean_stop_s']} s, with nothing in it {result['empty_s']} s",
    ]
    write_result(lines, out, "restart", {"load": asdict(load), **result}, as_json=as_json)


def collector(
    line_bytes: Annotated[
        list[int] | None, typer.Option(help="Bytes of a line with its end; repeatable. (default: 118 and 1025)")
    ] = None,
    megabytes: Annotated[int, typer.Option(help="Megabytes of lines, for each size.")] = 300,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that each client takes; the medians count.")] = 3,
    data: Data = HERE,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Log lines a second out of a file into the broker: whole batches of our own beside librdkafka, in turns."""
    sizes = tuple(line_bytes) if line_bytes else CollectorLoad.line_bytes
    with own_server(data, LogboomServer) as server:
        server.start()
        result = run_collector(server, CollectorLoad(sizes, megabytes, rounds), note)
    lines, bars = [], {}
    for size, clients in result["lines"].items():
        for client, one in clients.items():
            bars[f"{size} B, {client}"] = one["mb_per_s"]
            lines.append(
                f"{size} B lines, {client}: {one['mb_per_s']:.1f} MB/s, {one['lines_per_s']:,.0f} lines/s; CPU for a "
                f"million lines: collector {one['collector_cpu_s_per_million']:.2f} s, "
                f"broker {one['broker_cpu_s_per_million']:.2f} s"
            )
    title = "Collector: lines of a file into the broker"
    write_result(lines, out, "collector", result, as_json=as_json, bars=bars, unit="MB/s", title=title)


def compact(
    keys: Annotated[
        int, typer.Option(min=1, help="Keys of the table, each once in the part compacted before.")
    ] = 100_000,
    megabytes: Annotated[
        int, typer.Option(min=1, help="Updates to be compacted; with --beside, for each second of a measurement.")
    ] = 400,
    record_bytes: Annotated[int, typer.Option(min=1, help="Bytes of a record's value.")] = 1_000,
    segment_mib: Annotated[int, typer.Option(min=1, help="segment.bytes of the stream.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that each broker takes; the medians count.")] = 3,
    peers: Annotated[Peers, typer.Option(help="Who: Logboom, and Kafka from Maven.")] = "both",
    beside: Annotated[
        bool, typer.Option("--beside", help="Measure clients with and without a compaction instead of its speed.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0.5, help="With --beside: length of each measurement.")] = 5.0,
    data: Data = HERE,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Key compaction, beside Kafka's on the same records in turns; or what clients lose meanwhile."""
    names = ("logboom", "kafka") if peers == "both" else (peers,)
    load: SpeedLoad | BesideLoad = SpeedLoad(keys, megabytes, record_bytes, segment_mib, rounds)
    if beside:
        load = BesideLoad(max(1, int(megabytes * seconds)), seconds, rounds)
    with (
        TemporaryDirectory(prefix=PREFIX, dir=data) as directory,
        servers_of(names, Path(directory), note) as (cleaners, left_out),
    ):
        run = run_speed(load, cleaners, note) if isinstance(load, SpeedLoad) else run_beside(load, cleaners, note)
        servers = {
            name: {"version": one.server.version(), "settings": one.server.settings()} for name, one in cleaners.items()
        }
    result = {"load": asdict(load), "servers": servers, "left_out": left_out, **run}
    lines, bars, unit = _beside_lines(result) if beside else _speed_lines(result)
    title = "Clients beside a compaction, as a multiple of without" if beside else "Key compaction"
    write_result(lines, out, "compact", result, as_json=as_json, bars=bars, unit=unit, title=title)


def _speed_lines(result: dict[str, Any]) -> tuple[list[str], dict[str, float], str]:
    lines, bars = [], {}
    for kind, brokers in result["medians"].items():
        for name, one in brokers.items():
            bars[f"{kind}, {name}"] = one["mb_per_cpu_s"]
            lines.append(
                f"{kind}, {name}: {one['mb']:,.0f} MB in {one['seconds']} s, {one['mb_per_s']:,.0f} MB/s; "
                f"{one['mb_per_cpu_s']:,.0f} MB for each CPU second of the broker; {one['left_mb']:,.0f} MB are left"
            )
    return lines, bars, "MB for each CPU second of the broker"


def _beside_lines(result: dict[str, Any]) -> tuple[list[str], dict[str, float], str]:
    lines, bars = [], {}
    for measure, brokers in result["samples"].items():
        for name, both in brokers.items():
            for key, ratio in result["ratios"][measure][name].items():
                bars[f"{measure}, {key}, {name}"] = ratio
                without, beside = ([one[key] for one in both[side]] for side in ("without", "with"))
                lines.append(f"{measure}, {name}: {key} {without} without, {beside} with: {ratio} times")
            over = [(one["compacted_share"], one["compacted_mb_per_s"]) for one in both["with"]]
            rates = ", ".join(f"{rate:,.0f} MB/s over {share:.0%} of the time" for share, rate in over)
            lines.append(f"  compacted meanwhile: {rates}")
    return lines, bars, "times"


def register(bench: typer.Typer) -> None:
    """Add the commands to `bench`."""
    for command in (fanout, idle, restart, collector, compact):
        bench.command()(command)
