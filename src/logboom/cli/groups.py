"""`logboom groups`: list, describe, reset and delete consumer groups."""

import sys
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from logboom.cli.client import (
    ANSWER_TIMEOUT_S,
    Bounds,
    admin,
    bounds,
    check_answered,
    metadata,
    offsets_at_time,
    sentence,
)
from logboom.cli.common import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    fail,
    note,
    plural,
    print_json,
    print_table,
    printable,
)
from logboom.cli.moments import ago_ms, moment_ms

groups = typer.Typer(no_args_is_help=True, help="List, describe and reset consumer groups.")

Group = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]
Where = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a group stands in one partition."""

    stream: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str | None


@groups.command("list")
def list_(bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, as_json: AsJson = False) -> None:
    """List groups with their state and members."""
    client = admin(bootstrap)
    names, unanswered = _listed(client)
    rows = []
    for name in sorted(names):
        description = _describe(client, name)
        rows.append({"group": name, "state": _state(description), "members": len(description.members)})
    if as_json:
        print_json(rows)
    elif rows:
        print_table(("group", "state", "members"), [tuple(row.values()) for row in rows])
    elif unanswered is None:
        note("there are no groups yet: a consumer that subscribes makes one")
    if unanswered is not None:
        fail(f"there may be more groups, since not every broker has answered: {unanswered}")


@groups.command("describe")
def describe(group: Group, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, as_json: AsJson = False) -> None:
    """Show a group's members, and how far it is behind in each partition."""
    client = admin(bootstrap)
    description = _existing(client, group)
    positions = _positions(client, bootstrap, description)
    members = [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host,
            "instance": member.group_instance_id,
            "partitions": [_name(each) for each in member.assignment.topic_partitions],
        }
        for member in description.members
    ]
    state, lag = _state(description), sum(position.lag or 0 for position in positions)
    if as_json:
        shown = [asdict(position) for position in positions]
        print_json({"group": group, "state": state, "lag": lag, "members": members, "positions": shown})
        return
    typer.echo(f"{printable(group)}  {state}  {plural(len(members), 'member')}  lag {lag:,}")
    if positions:
        typer.echo("")
        print_table(
            ("stream", "partition", "committed", "end", "lag", "member"),
            [tuple(asdict(each).values()) for each in positions],
        )


@groups.command("reset")
def reset(
    group: Group,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="WHERE", help="earliest, latest, an offset, or a time such as 2026-11-20T09:30."),
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="This long ago: 30s, 15m, 12h, 7d.")] = None,
    stream: Annotated[
        list[str] | None, typer.Option("--stream", help="In this stream; repeatable. (default: all it reads)")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only in this partition.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Set the offsets a group continues from. Its members must be stopped first."""
    if (to is None) == (since is None):
        fail("name the target: --to earliest, --to latest, --to OFFSET, --to TIME, or --since 1h")
    client = admin(bootstrap)
    description = _describe(client, group)
    if description.members:
        names = ", ".join(sorted({member.client_id for member in description.members}))
        fail(
            f"group {group!r} has {plural(len(description.members), 'live member')} ({names}): stop them, then reset it"
        )
    committed = _committed(client, group)
    held = _held(client, bootstrap, group, committed, stream, partition)
    targets = _targets(client, held, to, since)
    changes = [
        {"stream": name, "partition": index, "from": committed.get((name, index)), "to": targets[name, index]}
        for name, index in sorted(targets)
    ]
    if not dry_run:
        _commit(client, group, targets)
    if as_json:
        print_json({"group": group, "done": not dry_run, "changes": changes})
        return
    print_table(("stream", "partition", "from", "to"), [tuple(change.values()) for change in changes])
    if dry_run:
        note("nothing was changed (--dry-run)")


@groups.command("delete")
def delete(
    group: Group,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Forget a group and its offsets. Its members have to be stopped first."""
    client = admin(bootstrap)
    _existing(client, group)
    if not yes:
        if not sys.stdin.isatty():
            fail(f"deleting {group} cannot be undone: add --yes to do it without being asked")
        typer.confirm(f"Forget {group} and its offsets? This cannot be undone", abort=True)
    try:
        client.delete_consumer_groups([group], request_timeout=ANSWER_TIMEOUT_S)[group].result()
    except KafkaException as error:
        fail(f"cannot delete group {group!r}: {sentence(error)}")
    if as_json:
        print_json({"deleted": group})
    else:
        typer.echo(f"deleted {printable(group)}")


# --- what there is ----------------------------------------------------------------------------------------------


def _listed(client: AdminClient) -> tuple[set[str], str | None]:
    """The groups of the brokers that have answered; the second value says why one has not, None if all have."""
    try:
        listed = client.list_consumer_groups(request_timeout=ANSWER_TIMEOUT_S).result()
    except KafkaException as error:
        fail(f"cannot list the groups: {sentence(error)}")
    return {each.group_id for each in listed.valid}, next(map(sentence, listed.errors), None)


def _describe(client: AdminClient, group: str) -> ConsumerGroupDescription:
    try:
        described = client.describe_consumer_groups([group], request_timeout=ANSWER_TIMEOUT_S)[group].result()
    except KafkaException as error:
        fail(f"cannot describe group {group!r}: {sentence(error)}")
    assert isinstance(described, ConsumerGroupDescription)
    return described


def _existing(client: AdminClient, group: str) -> ConsumerGroupDescription:
    names, unanswered = _listed(client)
    if group not in names and unanswered is not None:
        fail(f"whether there is a group {group!r} is not known, since not every broker has answered: {unanswered}")
    if group not in names:
        fail(f"there is no group {group!r}: `logboom groups list` shows what there is")
    return _describe(client, group)


def _state(description: ConsumerGroupDescription) -> str:
    return str(description.state.name).lower().replace("_", " ")


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}:{partition.partition}"


def _committed(client: AdminClient, group: str) -> dict[Where, int]:
    asked = [ConsumerGroupTopicPartitions(group)]
    try:
        answer = client.list_consumer_group_offsets(asked, request_timeout=ANSWER_TIMEOUT_S)[group].result()
    except KafkaException as error:
        fail(f"cannot read the offsets of group {group!r}: {sentence(error)}")
    return {(each.topic, each.partition): each.offset for each in answer.topic_partitions if each.offset >= 0}


def _positions(client: AdminClient, bootstrap: str, description: ConsumerGroupDescription) -> list[Position]:
    committed = _committed(client, description.group_id)
    owners = {
        (each.topic, each.partition): f"{member.client_id} ({member.host})"
        for member in description.members
        for each in member.assignment.topic_partitions
    }
    topics = metadata(client, bootstrap).topics
    streams = {name for name, _ in [*committed, *owners] if name in topics}
    held = bounds(client, {name: len(topics[name].partitions) for name in streams})
    positions = []
    for where in sorted({*committed, *owners}):
        at, end = committed.get(where), held[where].end if where in held else None
        lag = None if at is None or end is None else max(0, end - at)
        positions.append(Position(*where, at, end, lag, owners.get(where)))
    return positions


# --- moving it --------------------------------------------------------------------------------------------------


def _held(
    client: AdminClient,
    bootstrap: str,
    group: str,
    committed: dict[Where, int],
    streams: list[str] | None,
    partition: int | None,
) -> dict[Where, Bounds]:
    """What the partitions hold that are to be moved in. Ends the command if one of them does not answer."""
    topics = metadata(client, bootstrap).topics
    chosen = streams or sorted({name for name, _ in committed})
    if not chosen:
        fail(f"group {group!r} has no offsets yet: name a stream with --stream")
    for name in chosen:
        if name not in topics:
            fail(f"there is no stream {name!r}: `logboom streams list` shows what there is")
    wanted = [(name, index) for name in chosen for index in topics[name].partitions if partition in (None, index)]
    if not wanted:
        fail(f"there is no partition {partition} in {', '.join(chosen)}")
    held = bounds(client, {name: len(topics[name].partitions) for name in chosen})
    check_answered(wanted, held)
    return {where: held[where] for where in wanted}


def _targets(client: AdminClient, held: dict[Where, Bounds], to: str | None, since: str | None) -> dict[Where, int]:
    if since is not None:
        return offsets_at_time(client, held, ago_ms(since))
    assert to is not None
    if to == "earliest":
        return {where: each.first for where, each in held.items()}
    if to == "latest":
        return {where: each.end for where, each in held.items()}
    if to.isascii() and to.isdigit():
        return {where: _inside(int(to), where, each) for where, each in held.items()}
    moment = moment_ms(to)
    if moment is None:
        fail(f"--to {to}: it is neither earliest, latest, an offset nor a time such as 2026-11-20T09:30")
    return offsets_at_time(client, held, moment)


def _inside(offset: int, where: Where, held: Bounds) -> int:
    name, index = where
    if not held.first <= offset <= held.end:
        fail(f"offset {offset} is not between {held.first} and {held.end}, which partition {index} of {name} holds")
    return offset


def _commit(client: AdminClient, group: str, targets: dict[Where, int]) -> None:
    partitions = [TopicPartition(name, index, offset) for (name, index), offset in targets.items()]
    request = [ConsumerGroupTopicPartitions(group, partitions)]
    try:
        answer: Any = client.alter_consumer_group_offsets(request, request_timeout=ANSWER_TIMEOUT_S)[group].result()
    except KafkaException as error:
        fail(f"cannot reset group {group!r}: {sentence(error)}")
    for each in answer.topic_partitions:
        if each.error:
            fail(f"cannot reset group {group!r} in {_name(each)}: {sentence(KafkaException(each.error))}")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(groups, name="groups")
