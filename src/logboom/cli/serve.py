"""`logboom serve`: a broker in the foreground."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from logboom.app.config import NodeConfig, load_node_config
from logboom.app.node import Ready
from logboom.app.process import run_node
from logboom.base.settings import YamlDocument, parse_yaml
from logboom.cli.common import fail, print_json, read_text

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar="LOGBOOM_CONFIG", metavar="FILE", help="Configuration, as YAML."),
]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as kafka.max_connections=100; may be repeated."),
]


def serve(
    config: ConfigFile = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where everything is kept. (default: logboom-data)")
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option("--kafka", metavar="HOST:PORT", help="Where Kafka clients come in. (default: 127.0.0.1:9092)"),
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
        "kafka.listen": kafka,
        "http.listen": http,
    }
    run_node(node_config(config, settings, flags), _announce_json if as_json else _announce)


def node_config(file: Path | None, settings: list[str] | None, flags: dict[str, Any]) -> NodeConfig:
    """The configuration of a command line. `flags`: by the name of their setting; None where the flag was not given."""
    given = [setting.partition("=") for setting in settings or []]
    for name, equals, _ in given:
        if not equals:
            fail(f"--set {name}: write it as KEY=VALUE, such as --set kafka.max_connections=100")
    set_flags = {name.strip(): value.strip() for name, _, value in given}
    # A flag that was not given must not hide what --set says of the same setting.
    given_flags = {name: value for name, value in flags.items() if value is not None}
    return load_node_config(read_document(file), os.environ, {**set_flags, **given_flags})


def read_document(file: Path | None) -> YamlDocument | None:
    """The configuration file, where one is named."""
    return None if file is None else parse_yaml(read_text(file), str(file))


def _announce_json(ready: Ready) -> None:
    print_json({**asdict(ready), "pid": os.getpid()})
    sys.stdout.flush()


def _announce(ready: Ready) -> None:
    typer.echo("Logboom is ready.")
    typer.echo(f"  Kafka  {ready.kafka}")
    typer.echo(f"  HTTP   http://{ready.http}/metrics" if ready.http else "  HTTP   none")
    if ready.peer:
        typer.echo(f"  peers  {ready.peer}")
    typer.echo(f"  data   {ready.data}")
    typer.echo(f"  stop   Ctrl-C, or kill {os.getpid()}")
    sys.stdout.flush()


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)
