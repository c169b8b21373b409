"""`logboom bench nats`: the way of messages of NATS into a stream, beside JetStream; it starts its own servers."""

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from logboom.bench.nats import CASES, CONTESTANTS, AttachedLoad, NatsLoad, run_attached, run_nats, write_outcome
from logboom.cli.bench_common import HERE, OUT, PREFIX, Data, Out, chosen, show_comparison, write_result
from logboom.cli.common import AsJson, note


def nats(
    only: Annotated[str, typer.Option(help=f"Loads, separated by commas: {', '.join(CASES)}.")] = "",
    peers: Annotated[
        str, typer.Option(help=f"Systems to compare, separated by commas: {', '.join(CONTESTANTS)}.")
    ] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each load for everybody; the medians count.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.2, help="Length of each measurement.")] = 5.0,
    message_bytes: Annotated[
        list[int] | None, typer.Option(min=1, help="Bytes of a message; repeatable. (default: 100 and 1024)")
    ] = None,
    window: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Messages that may wait for an ack; repeatable. (default: 1000, 4000)"),
    ] = None,
    streams: Annotated[
        int,
        typer.Option(min=0, help="Instead, measure how this many streams, each attached to a subject, start and idle."),
    ] = 0,
    data: Data = HERE,
    out: Out = OUT,
    as_json: AsJson = False,
) -> None:
    """Messages of NATS into a stream, fsynced, beside JetStream and beside a subscriber that does nothing, in turns."""
    if streams:
        _attached(AttachedLoad(streams, seconds, rounds), data, out, as_json=as_json)
        return
    load = NatsLoad(
        chosen("--peers", peers, CONTESTANTS) or NatsLoad.contestants,
        chosen("--only", only, CASES) or NatsLoad.only,
        tuple(message_bytes or NatsLoad.sizes),
        tuple(window or NatsLoad.windows),
        rounds,
        seconds,
    )
    outcome = run_nats(load, data, note)
    target, text = write_outcome(out, outcome)
    show_comparison(outcome, target, text, as_json=as_json)


def _attached(load: AttachedLoad, data: Path, out: Path, *, as_json: bool) -> None:
    with TemporaryDirectory(prefix=PREFIX, dir=data) as directory:
        result: dict[str, Any] = run_attached(load, Path(directory), note)
    lines = [f"attached and subscribed {result['subscribed_s']} s after the request that made them"]
    lines += [
        f"start of the broker: serves after {one['served_s']} s, all subscribed after {one['subscribed_s']} s, "
        f"{one['cpu_s']} s of a processor"
        for one in result["starts"]
    ]
    for key, word in (("idle_without", "no stream"), ("idle_bare", "not attached"), ("idle_attached", "attached")):
        one = result[key]
        lines.append(
            f"idle, {word}: broker {one['broker_cpu_percent']} % of a core, {one['broker_memory_mb']} MB; nats-server "
            f"{one['nats_cpu_percent']} %"
        )
    write_result(lines, out, "nats-attached", {"load": asdict(load), **result}, as_json=as_json)


def register(bench: typer.Typer) -> None:
    """Add the command to `bench`."""
    bench.command()(nats)
