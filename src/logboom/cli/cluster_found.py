"""`logboom cluster found`: the first broker of a new cluster, by somebody's word.

Works on the data directory of a broker that has never been started; no broker is asked.
"""

from pathlib import Path
from typing import Annotated

import typer

from logboom.app.config import LogConfig
from logboom.app.log import open_log
from logboom.app.supervisor.folder import Folder
from logboom.base.ids import BrokerId
from logboom.broker.cluster_identity import found_cluster
from logboom.broker.config import BrokerConfig
from logboom.broker.disk.data_dir import Identity
from logboom.broker.raft.migration import has_member
from logboom.broker.runtime import Runtime
from logboom.cli.common import AsJson, fail, print_json
from logboom.cli.configuring import ConfigFile, Setting, node_config
from logboom.host import OsDisk


def found(
    config: ConfigFile = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where everything is kept. (default: logboom-data)")
    ] = None,
    node_id: Annotated[
        int | None,
        typer.Option("--node-id", metavar="N", min=0, help="The broker's number in its cluster. (default: 1)"),
    ] = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Make an empty data directory that of the first broker of a new cluster. Once, on that broker alone.

    Then start it with `serve`, and the other brokers with `serve --join`. A broker of a cluster that loses its disk
    must not found another one, so no start does it by itself.
    """
    flags = {"broker.broker_id": node_id, "broker.data_dir": data and str(data)}
    checked = node_config(config, settings, flags)
    identity = _found(checked.broker, checked.log)
    if as_json:
        print_json({"cluster": identity.cluster_id, "node": identity.broker_id, "data": str(checked.broker.data_dir)})
    else:
        typer.echo(f"cluster {identity.cluster_id} is founded; start its first broker, node {identity.broker_id}")


def found_in(folder: Folder, node_id: int, config: BrokerConfig, log: LogConfig) -> None:
    """Found the cluster of a folder, whose first node has not been started yet. What an interrupted call has left is
    finished."""
    path = folder.place(node_id).data
    if not Path(path).exists() or not has_member(OsDisk(path)):
        _found(config.model_copy(update={"data_dir": Path(path), "broker_id": node_id}), log)


def _found(config: BrokerConfig, log: LogConfig) -> Identity:
    try:
        return found_cluster(
            config.data_dir,
            OsDisk(str(config.data_dir)),
            broker_id=BrokerId(config.broker_id),
            cluster_id=config.cluster_id,
            ids=Runtime().ids,
            log=open_log(log),
        )
    except OSError as error:
        fail(f"cannot use the data directory {config.data_dir}: {error.strerror or error}")


def register(app: typer.Typer) -> None:
    """Add the command to those of `logboom cluster`."""
    app.command("found")(found)
