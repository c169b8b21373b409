"""`logboom bench cluster|processes|partitions|failover`: what several brokers need. Each starts its own."""

from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from logboom.bench.cluster import (
    FailoverLoad,
    IdleClusterLoad,
    PartitionsLoad,
    ProcessesLoad,
    run_failover,
    run_idle_cluster,
    run_partitions,
    run_processes,
)
from logboom.bench.compare import CLUSTERS, CompareLoad, run_compare, write_outcome
from logboom.bench.servers import LogboomNodes
from logboom.cli.bench_common import HERE, OUT, PREFIX, Data, Out, own_server, show_comparison, write_result
from logboom.cli.common import AsJson, note

_LATENCY = ((256, 3_000),)
_REPLICAS_MAX = 3
_INTERNAL_MAX = 1_000
"""Room for the partitions of internal streams beside those that are created."""


def cluster(
    quick: Annotated[bool, typer.Option(help="A few minutes: one short round, JVMs that are hardly warm.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each case for everybody.")] = None,
    data: Data = HERE,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Three brokers with three replicas and fsync, beside one replica and beside three nodes of Kafka without fsync.

    Kafka's ProducerPerformance with 100 B and 1,000 B, and the latency of 256 B at 3,000/s; processor time over all
    nodes, and what of it is the leader's and the followers'.
    """
    groups = ("produce", "latency")
    load = CompareLoad.quick(CLUSTERS, groups) if quick else CompareLoad(CLUSTERS, groups)
    load = replace(load, latencies=_LATENCY, rounds=rounds or load.rounds)
    outcome = run_compare(load, data, note)
    target, text = write_outcome(out, outcome)
    show_comparison(outcome, target, text, as_json=as_json)


def processes(
    count: Annotated[int, typer.Option("--processes", min=2, help="Processes of `serve --processes`.")] = 2,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the stream, spread over them.")] = 8,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of each measurement.")] = 5.0,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each; the medians count.")] = 3,
    core_share: Annotated[
        float | None,
        typer.Option(
            min=0.1, max=1.0, help="The most that each broker may use of a core, to leave the rest to the client."
        ),
    ] = None,
    data: Data = HERE,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """`serve --processes N` beside one process, in turns, under requests encoded beforehand over several partitions.

    The client needs a core of its own. Where there is none to spare, `--core-share` makes the brokers' cores smaller.
    """
    load = ProcessesLoad(count, partitions, seconds=seconds, rounds=rounds, core_share=core_share)
    with TemporaryDirectory(prefix=PREFIX, dir=data) as directory:
        result = run_processes(load, Path(directory), note)
    lines, bars = [], {}
    for size, both in result["samples"].items():
        for name, samples in both.items():
            rate = median(one["records_per_s"] for one in samples)
            cpu = median(one["cpu_s_per_million"] for one in samples)
            bars[f"{size} B, {name}"] = rate
            lines.append(f"{size} B, {name}: {rate:,.0f} records/s, {cpu:.3g} CPU s per million")
        ratios = result["ratios"][size]
        lines.append(f"{size} B: {ratios['records_per_s']} times the rate, {ratios['cpu_s_per_million']} times the CPU")
    write_result(
        lines, out, "processes", {"load": asdict(load), **result}, as_json=as_json, bars=bars, unit="records/s"
    )


def idle(nodes: int, count: int, seconds: float, data: Path, out: Path, *, as_json: bool) -> None:
    """`bench idle --nodes`: what each broker of a cluster takes that has nothing to do."""
    load = IdleClusterLoad(count, min(nodes, _REPLICAS_MAX), seconds)
    with own_server(data, lambda path: LogboomNodes(path, nodes)) as server:
        result = run_idle_cluster(server, load, note)
    lines, bars = [], {}
    for name, what in (("empty", "nothing in it"), ("partitions", f"{count:,} partitions of {load.replicas} replicas")):
        for number, one in enumerate(result[name], 1):
            bars[f"{what}, broker {number}"] = one["cpu_percent"]
            lines.append(
                f"{what}, broker {number}: {one['cpu_percent']} % of a core, {one['memory_mb']} MB, "
                f"{one['wakeups_per_s']} wake-ups/s"
            )
    write_result(
        lines, out, "idle-cluster", {"load": asdict(load), **result}, as_json=as_json, bars=bars, unit="% of a core"
    )


def partitions(
    count: Annotated[int, typer.Argument(min=1, help="How many.")] = 10_000,
    nodes: Annotated[int, typer.Option(min=1, help="Brokers.")] = 3,
    replicas: Annotated[int, typer.Option(min=1, help="Replicas of each partition.")] = 3,
    data: Data = HERE,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Seconds to create thousands of partitions, and to start a broker that has them, after a stop and a kill -9."""
    load = PartitionsLoad(count, replicas=min(replicas, nodes))
    settings: dict[str, object] = {"broker.max_partitions": count + _INTERNAL_MAX}
    with own_server(data, lambda path: LogboomNodes(path, nodes, settings)) as server:
        result = run_partitions(server, load, note)
    bars = {"created": result["created_s"], "created, all in sync": result["created_in_sync_s"]}
    lines = [f"created in {result['created_s']} s, all in sync after {result['created_in_sync_s']} s"]
    for how in ("stop", "kill"):
        one = result[f"after_{how}"]
        bars |= {f"start after {how}": one["served_s"], f"start after {how}, all in sync": one["in_sync_s"]}
        lines.append(
            f"start after {how}: serves after {one['served_s']} s ({one['served_cpu_s']} s of processor time), all in "
            f"sync after {one['in_sync_s']} s"
        )
    lines.append(f"memory of each broker: {', '.join(map(str, result['memory_mb']))} MB")
    write_result(lines, out, "partitions", {"load": asdict(load), **result}, as_json=as_json, bars=bars, unit="s")


def failover(
    count: Annotated[int, typer.Option("--partitions", min=1, help="Partitions of the stream.")] = 1,
    rate: Annotated[int, typer.Option(min=1, help="Messages a second over all of them.")] = 500,
    deaths: Annotated[int, typer.Option(min=1, help="How often each is killed.")] = 3,
    data: Data = HERE,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Seconds without acks after kill -9 of a leader, and without decisions after that of the controller."""
    load = FailoverLoad(count, rate, deaths)
    with own_server(data, lambda path: LogboomNodes(path, 3)) as server:
        result = run_failover(server, load, note)
    leaders, controllers = result["leader_gap_s"], result["controller_gap_s"]
    bars = {f"leader {number}": each for number, each in enumerate(leaders, 1)}
    bars |= {f"controller {number}": each for number, each in enumerate(controllers, 1)}
    lines = [f"until all {count:,} partitions acked again: {leaders} s", f"until a stream was created: {controllers} s"]
    write_result(lines, out, "failover", {"load": asdict(load), **result}, as_json=as_json, bars=bars, unit="s")


def register(bench: typer.Typer) -> None:
    """Add the commands to `bench`."""
    for command in (cluster, processes, partitions, failover):
        bench.command()(command)
