"""`logboom cluster up`: a cluster of several brokers on this machine, in the foreground."""

from pathlib import Path
from typing import Annotated, Final

import typer

from logboom.app.supervisor.folder import FOLDER_DEFAULT, Folder, Listeners
from logboom.app.supervisor.run import ClusterPlan
from logboom.cli import cluster_nodes
from logboom.cli.cluster_found import found_in
from logboom.cli.cluster_nodes import Common, Shown
from logboom.cli.common import fail
from logboom.cli.configuring import ConfigFile, Nats, Setting, node_config

_NODES_DEFAULT: Final = 3
_HOST: Final = "127.0.0.1"
_KAFKA_PORT: Final = 9092
_PEER_PORT: Final = 9192
_HTTP_PORT: Final = 9644
_READY_MAX_S: Final = 120.0
"""Recovery after a crash may take a minute, a start without it takes a second."""


def up(
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", "-n", min=1, max=64, help="How many brokers. (default: 3, or as many as there are)"),
    ] = None,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Where everything is kept: a folder for each broker.")
    ] = FOLDER_DEFAULT,
    config: ConfigFile = None,
    settings: Setting = None,
    kafka_port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Of the first broker for Kafka clients. (default: 9092)"),
    ] = None,
    peer_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Of the first broker for other brokers. (default: 9192)")
    ] = None,
    http_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Of the first broker for metrics. (default: 9644)")
    ] = None,
    free_ports: Annotated[
        bool, typer.Option("--free-ports", help="Choose ports that are free, and keep them.")
    ] = False,
    nats: Nats = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON when ready, for scripts.")] = False,
) -> None:
    """Run a cluster on this machine until Ctrl-C: one command, one folder, a process for each broker.

    Its ports follow each other, and stay the same from one start to the next. A file and settings hold for every
    broker, as for `serve`. In another terminal: `logboom cluster status`, `kill`, `pause`, `resume`, `start`, `stop`.
    """
    checked = node_config(config, settings, {"nats.servers": nats})
    folder = Folder.open(data)
    try:
        known = len(folder.places)
        count = nodes or known or _NODES_DEFAULT
        if count < known:
            fail(f"{folder.path} has {known} nodes: `logboom cluster remove` makes it smaller, --data names another")
        listeners = _listeners(kafka_port, peer_port, http_port, free_ports)
        keep = not free_ports and kafka_port is None and peer_port is None and http_port is None
        node_ids = range(1, count + 1)
        folder.lay_out(node_ids, listeners, keep=keep)
        cluster_nodes.hold_ports(folder, folder.places)
        if not folder.founded:
            found_in(folder, node_ids[0], checked.broker, checked.log)
    except BaseException:  # an interrupt, too: the folder's lock is released
        folder.close()
        raise
    server = cluster_nodes.embedded_nats(checked, folder, free_port=free_ports)
    given = [*(settings or []), *cluster_nodes.log_settings(checked.log)]
    if nats is not None and server is None:
        given.append(f"nats.servers={nats}")
    common = Common(config, given, folder.key_file(), nats=server)
    # The first node made them alone. A new cluster is to survive the death of any node from its first moment.
    replicas = 0 if folder.founded else min(count, checked.broker.groups.offsets_replication_factor)
    plan = ClusterPlan(
        folder=folder,
        node_ids=node_ids,
        command=cluster_nodes.command(common, folder),
        joins=False,
        restarts=False,
        ready_max_s=_READY_MAX_S,
        missing=cluster_nodes.missing(folder.places, internal_replicas=replicas),
        controller=cluster_nodes.controller(folder.places),
        nats=server,
    )
    reached = ",".join(checked.nats.servers) or None
    shown = Shown(folder, checked.log, _tries(folder), nats=lambda: server.url if server else reached, as_json=as_json)
    cluster_nodes.run(plan, shown)


def _listeners(kafka_port: int | None, peer_port: int | None, http_port: int | None, free_ports: bool) -> Listeners:
    def address(given: int | None, usual: int) -> str:
        return f"{_HOST}:{given if given is not None else 0 if free_ports else usual}"

    return Listeners(address(kafka_port, _KAFKA_PORT), address(peer_port, _PEER_PORT), address(http_port, _HTTP_PORT))


def _tries(folder: Folder) -> list[str]:
    where = cluster_nodes.data_option(folder)
    commands = ("status --watch", "kill 1", "start 1")
    return [f"logboom cluster {command}{where}" for command in commands]
