"""`logboom config`: show, check and explain the broker's configuration. For a running broker: `cli.settings`."""

from pathlib import Path
from typing import Annotated

import typer

from logboom.app.config import NodeConfig
from logboom.app.reference import Section, reference_page
from logboom.app.stream_reference import stream_settings
from logboom.base.settings import Settings
from logboom.cli.common import AsJson, print_json
from logboom.cli.configuring import ConfigFile, Setting, node_config
from logboom.cli.settings import describe, set_, unset

config = typer.Typer(no_args_is_help=True, help="Show, check and change the broker's configuration.")

_INTRODUCTION = """\
Written from the models by `logboom config reference`; a test keeps it current.

A file is YAML. An unknown key is an error that names the nearest known one, and all errors of a file are shown at once,
with their lines. A duration is written `250ms`, `30s`, `15m`, `12h` or `7d`, a size `512B`, `64KiB`, `16MiB` or
`1GiB`; a bare number is in the unit that ends the setting's name.
"""

_NODE = """\
`logboom serve --config logboom.yaml`. Any setting can also be given by an environment variable, `LOGBOOM_` and the path
in capitals with two underscores between its parts (`LOGBOOM_KAFKA__LISTEN=0.0.0.0:9092`), or by a flag
(`--set kafka.listen=0.0.0.0:9092`, and the flags of `serve` for the most common). Flags win over the environment, the
environment wins over the file. `logboom config show` prints what comes of them, `logboom config check FILE` checks a
file without starting anything.

Settings that change at run time are marked so, with the name that clients know them by: `logboom config set NAME=VALUE`
changes one while the broker runs, and so do Kafka's tools (`kafka-configs --entity-type brokers`, with `--entity-name`
or `--entity-default`, which is `--all` here). Such a change is kept with the data and wins over file, environment and
flags, until `logboom config unset NAME` takes it back; `logboom config describe` tells what is in force and where from.
A value on the wire is in the unit that ends its name, and -1 where there is none.
"""

_COLLECTOR = """\
`logboom collect collector.yaml`; `logboom collect --check collector.yaml` checks it. [collector.md](collector.md) says
how to use it.
"""

_PIPELINE = """\
`logboom pipeline run pipeline.yaml`; `logboom pipeline check pipeline.yaml` checks it. [pipeline.md](pipeline.md) says
how to use it.
"""


@config.command("show")
def show(file: ConfigFile = None, settings: Setting = None, as_json: AsJson = False) -> None:
    """Print the configuration that `serve` would run with, as YAML."""
    values = node_config(file, settings, {}).model_dump(mode="json")
    if as_json:
        print_json(values)
        return
    typer.echo(_yaml(values), nl=False)


def _yaml(values: object) -> str:
    from io import StringIO

    from ruamel.yaml import YAML

    text = StringIO()
    YAML().dump(values, text)
    return text.getvalue()


@config.command("check")
def check(file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)]) -> None:
    """Print every error of a configuration file, or that there is none."""
    node_config(file, None, {})
    typer.echo(f"{file} is valid")


@config.command("reference")
def reference() -> None:
    """Print every setting with its default and its meaning, as Markdown."""
    typer.echo(page(), nl=False)


def page() -> str:
    """docs/configuration.md."""
    return reference_page("Configuration", _INTRODUCTION, _sections())


def _sections() -> list[Section | str]:
    # Neither the broker nor its configuration needs these rooms; the page does.
    from logboom.collector.config import CollectorConfig
    from logboom.pipeline.config.model import SOURCES, PipelineModel, TestModel
    from logboom.pipeline.sinks.registry import sink_types
    from logboom.pipeline.transforms.registry import transform_types

    parts: list[Section] = [
        *(Section("", "", model, ("sources", "NAME")) for model in SOURCES.values()),
        *(part for kind in transform_types().values() for part in _transform(kind.model)),
        *(Section("", "", kind.model, ("sinks", "NAME")) for kind in sink_types().values()),
        Section("", "", TestModel, ("tests[]",)),
    ]
    return [
        Section("The broker", _NODE, NodeConfig),
        stream_settings(),
        Section("The collector", _COLLECTOR, CollectorConfig),
        Section("The pipeline", _PIPELINE, PipelineModel),
        *parts,
    ]


def _transform(model: type[Settings]) -> list[Section]:
    """A transform; behind a parse also its rules, whose keys depend on their format."""
    from logboom.pipeline.parse.formats.base import RuleModel
    from logboom.pipeline.parse.formats.registry import format_types
    from logboom.pipeline.transforms.parse import ParseModel

    path = ("transforms", "NAME")
    section = Section("", "", model, path)
    if model is not ParseModel:
        return [section]
    rule = (*path, "rules[]")
    own_keys = [kind.model for kind in format_types().values() if kind.model is not RuleModel]
    return [section, Section("", "", RuleModel, rule), *(Section("", "", each, rule, RuleModel) for each in own_keys)]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for name, command in (("set", set_), ("unset", unset), ("describe", describe)):
        config.command(name)(command)
    app.add_typer(config, name="config")
