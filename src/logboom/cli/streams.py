"""`logboom streams`: create, list, describe, alter and delete streams."""

import sys
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    PartitionMetadata,
    ResourceType,
    TopicMetadata,
)

from logboom.cli.client import ANSWER_TIMEOUT_S, Bounds, admin, bounds, find_stream, metadata, sentence
from logboom.cli.cluster_view import ask_replicas, from_all
from logboom.cli.common import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, fail, note, plural, print_json, print_table
from logboom.metadata import attachment
from logboom.metadata.observers import OBSERVERS

streams = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter and delete streams.")

Name = Annotated[str, typer.Argument(metavar="STREAM", show_default=False)]
_NATS = "NATS"
Subject = Annotated[
    list[str] | None,
    typer.Option(
        "--subject",
        help="A subject whose messages the stream takes, such as 'orders.>'; repeatable.",
        rich_help_panel=_NATS,
    ),
]
Service = Annotated[
    list[str] | None,
    typer.Option(
        "--service",
        help="A subject that services answer: requests on it are recorded, and their replies; repeatable.",
        rich_help_panel=_NATS,
    ),
]
Group = Annotated[
    str | None, typer.Option(help="Split the messages with the streams of this group.", rich_help_panel=_NATS)
]
Ack = Annotated[str | None, typer.Option(help="What an ack waits for: commit, leader or none.", rich_help_panel=_NATS)]
Key = Annotated[
    str | None, typer.Option(help="The key: header, envelope, subject, token:N or none.", rich_help_panel=_NATS)
]
Partitioner = Annotated[
    str | None,
    typer.Option(
        help="The partition: by key, subject, token:N+N, range:N:BOUND:BOUND, round_robin.", rich_help_panel=_NATS
    ),
]


@streams.command("create")
def create(
    stream: Name,
    partitions: Annotated[int | None, typer.Option(min=1, help="How many. (default: the broker's)")] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Replicas of each partition. (default: the broker's)")
    ] = None,
    observers: Annotated[
        int | None,
        typer.Option(
            min=0, help="Additional copies of each partition that only serve readers. (default: the broker's)"
        ),
    ] = None,
    subject: Subject = None,
    service: Service = None,
    group: Group = None,
    ack: Ack = None,
    key: Key = None,
    partitioner: Partitioner = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="A setting, such as segment.bytes=16777216; repeatable."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if it exists, whatever its settings.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Create a stream. It is no error if one exists that has everything that is asked for."""
    client = admin(bootstrap)
    settings = attachment_settings(subject, service, group, ack, key, partitioner) | split_settings(config)
    if observers is not None:
        settings[OBSERVERS] = str(observers)
    topic = NewTopic(stream, num_partitions=partitions or -1, replication_factor=replicas or -1, config=settings)
    try:
        client.create_topics([topic], request_timeout=ANSWER_TIMEOUT_S)[stream].result()
        created = True
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            fail(f"cannot create stream {stream!r}: {_reason(error)}")
        created = False
    found = find_stream(client, bootstrap, stream)
    if not created and (others := _differences(client, bootstrap, found, topic, settings)):
        differs = f"stream {stream!r} exists, with {' and '.join(others)}"
        if not if_not_exists:
            fail(f"{differs}: `logboom streams alter` changes settings, --if-not-exists leaves the stream as it is")
        note(f"{differs}; it is left as it is")
    count = len(found.partitions)
    if as_json:
        print_json({"stream": stream, "partitions": count, "created": created})
    else:
        typer.echo(f"{'created' if created else 'exists:'} {stream} ({plural(count, 'partition')})")


def _differences(
    client: AdminClient, bootstrap: str, found: TopicMetadata, wanted: NewTopic, settings: dict[str, str]
) -> list[str]:
    """What a stream has that is not as wanted; what was left to the broker does not count."""
    name = wanted.topic
    counts = {"partition": (len(found.partitions), wanted.num_partitions)}
    if wanted.replication_factor > 0:
        held = _replicas(bootstrap, name).get((name, 0), tuple(found.partitions[0].replicas))
        counts["replica"] = len(held), wanted.replication_factor
    others = [f"{plural(has, what)} (not {want})" for what, (has, want) in counts.items() if want not in (has, -1)]
    entries = _config(client, name) if settings else {}
    has = {key: entries[key]["value"] if key in entries else None for key in settings}
    return others + [f"{key}={has[key]} (not {value})" for key, value in settings.items() if has[key] != value]


def split_settings(pairs: list[str] | None) -> dict[str, str]:
    """What `--config KEY=VALUE` options say."""
    split = [pair.partition("=") for pair in pairs or []]
    for key, equals, _ in split:
        if not equals:
            fail(f"--config {key}: write it as KEY=VALUE")
    return {key.strip(): value.strip() for key, _, value in split}


def attachment_settings(
    subjects: list[str] | None,
    services: list[str] | None,
    group: str | None,
    ack: str | None,
    key: str | None,
    partitioner: str | None,
) -> dict[str, str]:
    """The settings of an attachment to NATS that options give."""
    given = {
        attachment.SUBJECTS: None if subjects is None else ",".join(subjects),
        attachment.SERVICES: None if services is None else ",".join(services),
        attachment.GROUP: group,
        attachment.ACK: ack,
        attachment.KEY: key,
        attachment.PARTITIONER: partitioner,
    }
    return {name: value for name, value in given.items() if value is not None}


def _reason(error: KafkaException) -> str:
    """The broker's own words where it sent some: they name the setting or the limit."""
    text: str = error.args[0].str()
    known = sentence(error)
    return known if error.args[0].name() in ("TOPIC_ALREADY_EXISTS", "_TIMED_OUT", "_TRANSPORT") else text or known


@streams.command("list")
def list_(
    everything: Annotated[bool, typer.Option("--all", help="Internal streams too.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List streams with their partitions and records.

    Records are counted by their offsets: a stream that is or was compacted, or has transactions, holds fewer.
    """
    client = admin(bootstrap)
    topics = metadata(client, bootstrap).topics
    names = sorted(name for name in topics if everything or not name.startswith("__"))
    held = bounds(client, {name: len(topics[name].partitions) for name in names})
    rows = [
        {
            "stream": name,
            "partitions": len(topics[name].partitions),
            "records": sum(each.records for (stream, _), each in held.items() if stream == name),
        }
        for name in names
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(("stream", "partitions", "records"), [tuple(row.values()) for row in rows])
    else:
        note("there are no streams yet: `logboom streams create NAME` makes one, and so does publishing to it")


@streams.command("describe")
def describe(stream: Name, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, as_json: AsJson = False) -> None:
    """Show a stream's partitions and settings.

    Records are counted by their offsets, END minus FIRST. Of a compacted stream that is the most there can be.
    """
    client = admin(bootstrap)
    topic = find_stream(client, bootstrap, stream)
    held = bounds(client, {stream: len(topic.partitions)})
    replicas = _replicas(bootstrap, stream)
    rows = [
        _partition_row(partition, replicas.get((stream, index), tuple(partition.replicas)), held.get((stream, index)))
        for index, partition in sorted(topic.partitions.items())
    ]
    identity, settings = _identity(client, stream), _config(client, stream)
    if as_json:
        print_json({"stream": stream, "id": identity, "partitions": rows, "config": settings})
        return
    typer.echo(f"{stream}  id {identity}  {plural(len(rows), 'partition')}\n")
    is_compacted = "compact" in str(settings["cleanup.policy"]["value"])
    shown = [
        {
            **row,
            **{name: ",".join(map(str, row[name])) for name in ("replicas", "in_sync", "observers")},
            "records": f"up to {row['records']}" if is_compacted and row["records"] else row["records"],
            "error": row["error"] or "",
        }
        for row in rows
    ]
    headers = {name: name.replace("_", " ") for name in rows[0]} | {"error": ""}
    if not any(row["observers"] for row in rows):
        del headers["observers"]
    print_table(tuple(headers.values()), [tuple(row[name] for name in headers) for row in shown])
    typer.echo("")
    print_table(
        ("setting", "value", "set"),
        [(name, entry["value"], "here" if entry["set"] else "default") for name, entry in settings.items()],
    )


def _replicas(bootstrap: str, stream: str) -> dict[tuple[str, int], tuple[int, ...]]:
    """The replicas of each partition, apart from its observers; nothing where no broker can tell them apart."""
    answers, _ = from_all(bootstrap.split(","), ask_replicas([stream]))
    return next(iter(answers.values()), {})


def _partition_row(partition: PartitionMetadata, replicas: tuple[int, ...], held: Bounds | None) -> dict[str, Any]:
    error = sentence(KafkaException(partition.error)) if partition.error else None
    return {
        "partition": partition.id,
        "leader": partition.leader,
        "replicas": list(replicas),
        "in_sync": list(partition.isrs),
        "observers": [one for one in partition.replicas if one not in replicas],
        "first": held.first if held else None,
        "end": held.end if held else None,
        "records": held.records if held else None,
        "error": error or (None if held else "does not answer for its offsets"),
    }


def _identity(client: AdminClient, stream: str) -> str:
    described = client.describe_topics(TopicCollection([stream]), request_timeout=ANSWER_TIMEOUT_S)
    return str(described[stream].result().topic_id)


def _config(client: AdminClient, stream: str) -> dict[str, dict[str, Any]]:
    resource = ConfigResource(ResourceType.TOPIC, stream)
    entries = client.describe_configs([resource], request_timeout=ANSWER_TIMEOUT_S)[resource].result()
    return {name: {"value": entry.value, "set": not entry.is_default} for name, entry in sorted(entries.items())}


@streams.command("alter")
def alter(
    stream: Name,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="A setting, such as retention.ms=86400000; repeatable."),
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="KEY", help="A setting that goes back to its default; repeatable."),
    ] = None,
    subject: Subject = None,
    no_subject: Annotated[
        bool, typer.Option("--no-subject", help="Stop storing NATS messages.", rich_help_panel=_NATS)
    ] = False,
    service: Service = None,
    group: Group = None,
    ack: Ack = None,
    key: Key = None,
    partitioner: Partitioner = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check whether it could be done.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Change a stream's settings while it is used; `describe` shows them."""
    values = attachment_settings(subject, service, group, ack, key, partitioner) | split_settings(config)
    defaults = [name.strip() for name in delete or []]
    if no_subject:
        if subject:
            fail("--subject and --no-subject contradict each other")
        defaults.append(attachment.SUBJECTS)
    if not values and not defaults:
        fail("name what to change with --config KEY=VALUE, --delete KEY, --subject SUBJECT or --no-subject")
    client = admin(bootstrap)
    find_stream(client, bootstrap, stream)
    changes = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in values.items()]
    # librdkafka wants a text with every change and sends none with a deletion.
    changes += [ConfigEntry(key, "", incremental_operation=AlterConfigOpType.DELETE) for key in defaults]
    resource = ConfigResource(ResourceType.TOPIC, stream, incremental_configs=changes)
    try:
        answer = client.incremental_alter_configs([resource], validate_only=dry_run, request_timeout=ANSWER_TIMEOUT_S)
        answer[resource].result()
    except KafkaException as error:
        fail(f"cannot change stream {stream!r}: {_reason(error)}")
    if as_json:
        print_json({"stream": stream, "set": values, "default": defaults, "changed": not dry_run})
        return
    done = [f"{key}={value}" for key, value in values.items()] + [f"{key} back to its default" for key in defaults]
    typer.echo(f"{'could change' if dry_run else 'changed'} {stream}: {', '.join(done)}")
    if "compact" in values.get("cleanup.policy", ""):
        note(
            "records without a key are refused from now on, and the first compaction removes those that are there, "
            "since no later record could replace them"
        )


@streams.command("delete")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="STREAM...", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Delete streams with all their records."""
    client = admin(bootstrap)
    for name in names:
        find_stream(client, bootstrap, name)
    if not yes:
        if not sys.stdin.isatty():
            fail(f"deleting {', '.join(names)} cannot be undone: add --yes to do it without being asked")
        typer.confirm(f"Delete {', '.join(names)} with all records? This cannot be undone", abort=True)
    for name, future in client.delete_topics(names, request_timeout=ANSWER_TIMEOUT_S).items():
        try:
            future.result()
        except KafkaException as error:
            fail(f"cannot delete stream {name!r}: {sentence(error)}")
        if not as_json:
            typer.echo(f"deleted {name}")
    if as_json:
        print_json({"deleted": names})


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(streams, name="streams")
