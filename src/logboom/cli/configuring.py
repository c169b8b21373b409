"""The options of commands that configure a broker, and the configuration that comes of them.

Knows which options there are; what a setting means is in the package that declares it.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from logboom.app.config import NodeConfig, load_node_config
from logboom.base.settings import YamlDocument, parse_yaml
from logboom.cli.common import fail, read_text

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar="LOGBOOM_CONFIG", metavar="FILE", help="Configuration, as YAML."),
]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as kafka.max_connections=100; may be repeated."),
]

Nats = Annotated[
    str | None,
    typer.Option(
        "--nats",
        metavar="URL",
        help="Take messages from NATS: nats://HOST:PORT[,...], or `embedded` for a nats-server started here.",
    ),
]


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
