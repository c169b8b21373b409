"""`logboom cluster`: a cluster on this machine, and what can be seen and done of any cluster."""

from pathlib import Path
from typing import Annotated

import typer

from logboom.app.supervisor.folder import FOLDER_DEFAULT
from logboom.app.supervisor.remote import ask_supervisor
from logboom.cli import cluster_admin, cluster_found, cluster_key, cluster_recover
from logboom.cli.cluster_status import Data, status
from logboom.cli.cluster_up import up
from logboom.cli.cluster_upgrade import upgrade
from logboom.cli.common import AsJson, print_json

cluster = typer.Typer(no_args_is_help=True, help="Run a cluster on this machine; show and change any cluster.")

cluster.command("up")(up)
cluster.command("status")(status)
cluster.command("upgrade")(upgrade)
cluster_key.register(cluster)
cluster_found.register(cluster)
cluster_admin.register(cluster)
cluster_recover.register(cluster)

NodeId = Annotated[int, typer.Argument(metavar="NODE", show_default=False, help="The id of a node.")]


def _do(what: str, node: int, data: Path | None, as_json: bool, done: str) -> None:
    answer = ask_supervisor(data or FOLDER_DEFAULT, what, node, None)["node"]
    if as_json:
        print_json(answer)
    else:
        process = "" if answer["pid"] is None else f", process {answer['pid']}"
        typer.echo(f"node {node} {done}{process}")


@cluster.command("kill")
def kill(node: NodeId, data: Data = None, as_json: AsJson = False) -> None:
    """Kill a node of the cluster on this machine (SIGKILL), as a crash would; `start` brings it back."""
    _do("kill", node, data, as_json, "was killed")


@cluster.command("pause")
def pause(node: NodeId, data: Data = None, as_json: AsJson = False) -> None:
    """Pause a node (SIGSTOP): it keeps its connections and answers nothing, as a machine that hangs."""
    _do("pause", node, data, as_json, "is paused")


@cluster.command("resume")
def resume(node: NodeId, data: Data = None, as_json: AsJson = False) -> None:
    """Let a paused node go on."""
    _do("resume", node, data, as_json, "goes on")


@cluster.command("stop")
def stop(node: NodeId, data: Data = None, as_json: AsJson = False) -> None:
    """Stop a node in order; `start` brings it back."""
    _do("stop", node, data, as_json, "is down")


@cluster.command("start")
def start(node: NodeId, data: Data = None, as_json: AsJson = False) -> None:
    """Start a node that is down, and return once it is ready."""
    _do("start", node, data, as_json, "is up")


@cluster.command("down")
def down(data: Data = None, as_json: AsJson = False) -> None:
    """Stop all nodes of the cluster on this machine, the controller last."""
    ask_supervisor(data or FOLDER_DEFAULT, "down", None, None)
    if as_json:
        print_json({"stopped": str(data or FOLDER_DEFAULT)})
    else:
        typer.echo("all nodes are down")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(cluster, name="cluster")
