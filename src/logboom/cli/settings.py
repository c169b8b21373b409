"""`logboom config set`, `unset` and `describe`: the settings of a broker that runs.

Knows the Kafka client, which is not imported before it is needed: the other commands of `logboom config` do without.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from logboom.cli.common import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, fail, note, print_json, print_table

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say whether it could be done.")]

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
    broker = _change(values, dry_run, bootstrap)
    if as_json:
        print_json({"broker": broker, "set": values, "changed": not dry_run})
        return
    done = ", ".join(f"{name}={value}" for name, value in values.items())
    typer.echo(f"{'could change' if dry_run else 'changed'} on broker {broker}: {done}")


def unset(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", show_default=False)],
    dry_run: DryRun = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Take back what was changed on a running broker: what it was started with counts again."""
    broker = _change(dict.fromkeys(names), dry_run, bootstrap)
    if as_json:
        print_json({"broker": broker, "unset": names, "changed": not dry_run})
        return
    typer.echo(f"{'could take back' if dry_run else 'took back'} on broker {broker}: {', '.join(names)}")


def _change(values: dict[str, str | None], dry_run: bool, bootstrap: str) -> int:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    from logboom.cli import client

    admin = client.admin(bootstrap)
    broker = _broker(admin, bootstrap)
    changes = [
        # librdkafka wants a text with every change and sends none with a deletion.
        ConfigEntry(
            name,
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=changes)
    timeout_s = client.ANSWER_TIMEOUT_S
    try:
        admin.incremental_alter_configs([resource], validate_only=dry_run, request_timeout=timeout_s)[resource].result()
    except KafkaException as error:
        fail(f"cannot change broker {broker}: {error.args[0].str() or client.sentence(error)}")
    return broker


def _broker(admin: "AdminClient", bootstrap: str) -> int:
    """The number of the broker asked."""
    from logboom.cli import client

    known = client.metadata(admin, bootstrap)
    return int(known.orig_broker_id if known.orig_broker_id >= 0 else min(known.brokers))


def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", show_default=False)] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not at its default.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show the settings of a running broker: what is in force, where it comes from, and whether it may change."""
    told = _settings(bootstrap)
    if unknown := sorted(set(names or ()) - {row["setting"] for row in told}):
        fail(f"there is no setting {unknown[0]!r}; `logboom config describe` lists all")
    rows = [row for row in told if (not names or row["setting"] in names) and (not changed or row["from"] != "default")]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(("setting", "value", "from", "changes"), [tuple(row.values()) for row in rows])
    else:
        note("every setting is at its default")


def _settings(bootstrap: str) -> list[dict[str, Any]]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    from logboom.cli import client

    admin = client.admin(bootstrap)
    resource = ConfigResource(ResourceType.BROKER, str(_broker(admin, bootstrap)))
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
