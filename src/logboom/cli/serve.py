"""`logboom serve`: a broker in the foreground."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from logboom.app.node import Ready
from logboom.app.process import run_node
from logboom.cli.common import print_json
from logboom.cli.configuring import ConfigFile, Nats, Setting, node_config

Join = Annotated[
    list[str] | None,
    typer.Option(
        "--join", metavar="HOST:PORT", help="The peer address of a broker of the cluster to join; repeatable."
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        metavar="N",
        min=1,
        max=64,
        help="Run this many brokers; their ids, ports and folders are numbered from those of the first.",
    ),
]


def serve(
    config: ConfigFile = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where everything is kept. (default: logboom-data)")
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option("--kafka", metavar="HOST:PORT", help="The address for Kafka clients. (default: 127.0.0.1:9092)"),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http", metavar="HOST:PORT", help="Metrics and health; null for none. (default: 127.0.0.1:9644)"
        ),
    ] = None,
    node_id: Annotated[
        int | None,
        typer.Option("--node-id", metavar="N", min=0, help="The broker's number in its cluster. (default: 1)"),
    ] = None,
    peer: Annotated[
        str | None,
        typer.Option(
            "--peer", metavar="HOST:PORT", help="The address for other brokers. (default: none, it runs alone)"
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="The cluster's key; `logboom cluster key` makes one."),
    ] = None,
    join: Join = None,
    nats: Nats = None,
    rack: Annotated[
        str | None, typer.Option("--rack", metavar="NAME", help="The broker's rack: replicas are spread over racks.")
    ] = None,
    observer: Annotated[
        bool,
        typer.Option("--observer", help="Hold only copies for readers; it joins a cluster, and stays an observer."),
    ] = False,
    processes: Processes = None,
    settings: Setting = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON when ready, for scripts.")] = False,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM.

    Port 0 picks a free port. Settings come from the file, then LOGBOOM_SECTION__KEY variables, then flags: the last
    one wins. `logboom config reference` describes them all.
    """
    flags = {
        "broker.broker_id": node_id,
        "broker.data_dir": data and str(data),
        "broker.join": join or None,
        "broker.rack": rack,
        "broker.observer": observer or None,
        "kafka.listen": kafka,
        "http.listen": http,
        "peer.listen": peer,
        "peer.key_file": key and str(key),
        "nats.servers": nats,
    }
    if processes is None:
        run_node(node_config(config, settings, flags), _announce_json if as_json else _announce)
        return
    from logboom.cli.serve_processes import serve_processes  # one broker needs none of it

    shared = [f"broker.rack={rack}"] if rack is not None else []
    shared += ["broker.observer=true"] if observer else []
    serve_processes(config, [*(settings or []), *shared], flags, processes, as_json=as_json)


def _announce_json(ready: Ready) -> None:
    print_json({**asdict(ready), "pid": os.getpid()})
    sys.stdout.flush()


def _announce(ready: Ready) -> None:
    typer.echo("Logboom is ready.")
    elsewhere = "" if ready.advertised == ready.kafka else f", as {ready.advertised} to clients (kafka.advertised)"
    typer.echo(f"  Kafka  {ready.kafka}{elsewhere}")
    typer.echo(f"  HTTP   http://{ready.http}/metrics" if ready.http else "  HTTP   none")
    if ready.nats:
        typer.echo(f"  NATS   {ready.nats}")
    if ready.peer:
        typer.echo(f"  peers  {ready.peer}")
    typer.echo(f"  data   {ready.data}")
    typer.echo(f"  stop   Ctrl-C, or kill {os.getpid()}")
    sys.stdout.flush()


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)
