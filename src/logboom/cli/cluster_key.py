"""`logboom cluster key`: makes the key by which the brokers of a cluster know each other."""

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from logboom.cli.common import fail, note
from logboom.peer.key import KEY_BYTES, format_cluster_key

_MODE = 0o600


def key(
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write it there, readable by you alone. (default: print it)"),
    ] = None,
) -> None:
    """Make a key for a cluster: 32 random bytes in hexadecimal digits.

    Every broker of a cluster needs the same one (peer.key_file). Whoever has it can act as a broker.
    """
    text = format_cluster_key(secrets.token_bytes(KEY_BYTES))
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    except FileExistsError:
        fail(f"{out} is there already, and a cluster whose key is lost cannot be joined: name another file")
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror}")
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    note(f"The key is in {out}. Give every broker of the cluster a copy (peer.key_file), and nobody else.")


def register(app: typer.Typer) -> None:
    """Add the command to those of `logboom cluster`."""
    app.command("key")(key)
