"""`logboom config set`, `unset` and `describe`: the settings of a broker that runs.

Knows the Kafka client, which is not imported before it is needed: the other commands of `logboom config` do without.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from logboom.cli.common import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, fail, note, print_json, print_table

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only check whether it could be done.")]
Everywhere = Annotated[
    bool,
    typer.Option("--all", help="The default of all brokers, for those without a value of their own."),
]
OfNode = Annotated[
    int | None, typer.Option("--node", metavar="N", min=0, help="Of this broker. (default: the one that answers)")
]
_ALTER: Final = 44
_ALTER_VERSION: Final = 1
_BROKER_RESOURCE: Final = 4
_SET: Final = 0
_DELETE: Final = 1

_FROM = {
    "DYNAMIC_BROKER_CONFIG": "run time",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "run time, all brokers",
    "STATIC_BROKER_CONFIG": "start",
    "DEFAULT_CONFIG": "default",
}


def set_(
    settings: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE...", show_default=False, help="Such as log.retention.ms=7d.")
    ],
    node: OfNode = None,
    everywhere: Everywhere = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Change settings of a running broker; they outlive its restarts."""
    split = [setting.partition("=") for setting in settings]
    for name, equals, _ in split:
        if not equals:
            fail(f"{name}: write it as NAME=VALUE")
    values: dict[str, str | None] = {name.strip(): value.strip() for name, _, value in split}
    broker = _change(values, node, everywhere, dry_run, bootstrap)
    if as_json:
        print_json({"broker": broker, "set": values, "changed": not dry_run})
        return
    done = ", ".join(f"{name}={value}" for name, value in values.items())
    typer.echo(f"{'could change' if dry_run else 'changed'} on {_shown(broker)}: {done}")


def unset(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", show_default=False)],
    node: OfNode = None,
    everywhere: Everywhere = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Undo changes made on a running broker: the values it was started with apply again."""
    broker = _change(dict.fromkeys(names), node, everywhere, dry_run, bootstrap)
    if as_json:
        print_json({"broker": broker, "unset": names, "changed": not dry_run})
        return
    typer.echo(f"{'could unset' if dry_run else 'unset'} on {_shown(broker)}: {', '.join(names)}")


def _shown(broker: int | None) -> str:
    return "all brokers" if broker is None else f"broker {broker}"


def _change(
    values: dict[str, str | None], node: int | None, everywhere: bool, dry_run: bool, bootstrap: str
) -> int | None:
    """Set or, with None, delete a setting of one broker, or of all; the broker's id, None for all."""
    if everywhere and node is not None:
        fail("--all is every broker, and --node one of them: give one of the two")
    from logboom.cli import client
    from logboom.cli.asking import ask, check
    from logboom.kafka.wire.messages import make, nested, request_class

    broker, asked = (None, bootstrap) if everywhere else _broker(client.admin(bootstrap), bootstrap, node)
    cls = request_class(_ALTER, _ALTER_VERSION)
    resource = nested(cls, "resources")
    change = nested(resource, "configs")
    # Not through librdkafka, which refuses the empty name that stands for all brokers.
    one = make(
        resource,
        resource_type=_BROKER_RESOURCE,
        resource_name="" if broker is None else str(broker),
        configs=tuple(
            make(change, name=name, config_operation=_DELETE if value is None else _SET, value=value)
            for name, value in values.items()
        ),
    )
    reply = ask(asked, _ALTER, _ALTER_VERSION, make(cls, resources=(one,), validate_only=dry_run))
    (result,) = reply.responses
    check(result.error_code, result.error_message, f"cannot change {_shown(broker)}")
    return broker


def _broker(admin: "AdminClient", bootstrap: str, node: int | None) -> tuple[int, str]:
    """The id and the address of a broker, or of the one that answers: a broker knows no settings but its own."""
    from logboom.base.settings import join_address
    from logboom.cli import client

    known = client.metadata(admin, bootstrap)
    if node is None:
        node = int(known.orig_broker_id if known.orig_broker_id >= 0 else min(known.brokers))
    elif node not in known.brokers:
        fail(f"there is no broker {node}, or it is down; there are {', '.join(map(str, sorted(known.brokers)))}")
    broker = known.brokers[node]
    return node, join_address(str(broker.host), int(broker.port))


def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", show_default=False)] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not at its default.")] = False,
    node: OfNode = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show the settings of a running broker: value, source, and whether it can be changed while it runs."""
    found = _settings(bootstrap, node)
    if unknown := sorted(set(names or ()) - {row["setting"] for row in found}):
        fail(f"there is no setting {unknown[0]!r}; `logboom config describe` lists all")
    rows = [
        row for row in found if (not names or row["setting"] in names) and (not changed or row["from"] != "default")
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(("setting", "value", "from", "changes"), [tuple(row.values()) for row in rows])
    else:
        note("every setting is at its default")


def _settings(bootstrap: str, node: int | None) -> list[dict[str, Any]]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    from logboom.cli import client

    admin = client.admin(bootstrap)
    broker, _ = _broker(admin, bootstrap, node)
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    try:
        entries = admin.describe_configs([resource], request_timeout=client.ANSWER_TIMEOUT_S)[resource].result()
    except KafkaException as error:
        fail(f"{bootstrap} does not tell its settings: {client.sentence(error)}")
    return [
        {
            "setting": entry.name,
            "value": entry.value,
            "from": _FROM.get(ConfigSource(entry.source).name, "unknown"),
            "changes": "with a restart" if entry.is_read_only else "at run time",
        }
        for entry in sorted(entries.values(), key=lambda entry: entry.name)
    ]
