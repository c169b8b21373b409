"""`logboom cluster`: what can be seen of a cluster."""

import typer

from logboom.cli.cluster_status import status

cluster = typer.Typer(no_args_is_help=True, help="Show a cluster.")
cluster.callback()(lambda: None)  # with it, one command alone is still a command of a group
cluster.command("status")(status)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(cluster, name="cluster")
