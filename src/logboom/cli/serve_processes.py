"""`logboom serve --processes N`: several brokers on one machine under one supervisor.

A broker uses one core. Several of them on one machine are brokers of one cluster as any others, but they fail together,
so no partition has two of its replicas on them. Knows what they share; `serve` is what each of them runs.
"""

import socket
from pathlib import Path
from typing import Any, Final

from logboom.app.supervisor.folder import Folder, Listeners
from logboom.app.supervisor.run import ClusterPlan
from logboom.base.settings import join_address, split_address
from logboom.cli import cluster_nodes
from logboom.cli.cluster_found import found_in
from logboom.cli.cluster_nodes import Common, Shown
from logboom.cli.configuring import node_config

_PEER_PORT: Final = 9192


def serve_processes(
    file: Path | None, settings: list[str], flags: dict[str, Any], count: int, *, as_json: bool
) -> None:
    """Run `count` brokers until Ctrl-C or SIGTERM; the options are those of the first one."""
    alone = node_config(file, settings, {**flags, "peer.listen": "null"})  # listening asks for a key, made below
    folder = Folder.open(alone.broker.data_dir)
    try:
        key = alone.peer.key_file or folder.key_file()
        config = node_config(file, settings, {**flags, "peer.key_file": str(key)})
        host, _ = split_address(config.kafka.listen)
        listeners = Listeners(
            config.kafka.listen, config.peer.listen or join_address(host, _PEER_PORT), config.http.listen
        )
        node_ids = range(config.broker.broker_id, config.broker.broker_id + count)
        folder.lay_out(node_ids, listeners, keep=False)
        places = [folder.place(node_id) for node_id in node_ids]
        cluster_nodes.hold_ports(folder, places)
        if not folder.founded and not config.broker.join:
            found_in(folder, node_ids[0], config.broker, config.log)
    except BaseException:  # an interrupt, too: the folder's lock is released
        folder.close()
        raise
    shared = [f"broker.failure_domain={config.broker.failure_domain or socket.gethostname()}"]
    nats = cluster_nodes.embedded_nats(config, folder, free_port=False)
    reached = ",".join(config.nats.servers) or None
    if nats is None and reached is not None:
        shared.append(f"nats.servers={reached}")
    given = {"kafka.advertised": config.kafka.advertised, "peer.advertised": config.peer.advertised}
    common = Common(
        config=file,
        settings=[*settings, *shared, *cluster_nodes.log_settings(config.log)],
        key=key,
        join=config.broker.join,
        nats=nats,
        advertised={name: address for name, address in given.items() if address is not None},
    )
    plan = ClusterPlan(
        folder=folder,
        node_ids=node_ids,
        command=cluster_nodes.command(common, folder),
        joins=bool(config.broker.join),
        restarts=True,
        ready_max_s=None,
        missing=_nothing_missing,
        controller=cluster_nodes.controller(places),
        nats=nats,
    )
    shown = Shown(folder, config.log, nats=lambda: nats.url if nats else reached, as_json=as_json)
    cluster_nodes.run(plan, shown)


async def _nothing_missing() -> None:
    """Each broker is ready by itself, and the rest of the cluster may be on other machines."""
