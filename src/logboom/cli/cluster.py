"""`logboom cluster`: what can be seen of a cluster, and its key."""

import typer

from logboom.cli import cluster_key
from logboom.cli.cluster_status import status

cluster = typer.Typer(no_args_is_help=True, help="Show a cluster, and make its key.")
cluster.command("status")(status)
cluster_key.register(cluster)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(cluster, name="cluster")
