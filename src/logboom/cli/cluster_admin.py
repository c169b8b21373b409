"""`logboom cluster drain`, `remove`, `rebalance`, `reassign`, `elect`...: which brokers hold and lead what.

Through the administration APIs that Kafka's own tools use; any broker takes them and passes them to the controller. A
command that waits can be stopped and given again: what it began goes on without it.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from kio.schema.errors import ErrorCode

from logboom.base.ids import BrokerId
from logboom.base.quantities import parse_size_bytes
from logboom.cli.asking import AdminConnection, check
from logboom.cli.cluster_status import ClusterBootstrap, Data, addresses
from logboom.cli.cluster_view import Cluster, ask_configs, from_all, look
from logboom.cli.common import AsJson, fail, note, plural, print_json, print_table
from logboom.kafka.wire.messages import make, milliseconds, nested, request_class
from logboom.metadata.assignment import Replicas
from logboom.metadata.balancing import Partition, Room, evacuate, level

_METADATA: Final = 3
_METADATA_VERSION: Final = 9
"""The last in which streams have no ids, so that a name is enough."""
_ELECT_LEADERS: Final = 43
_INCREMENTAL_ALTER_CONFIGS: Final = 44
_ALTER_REASSIGNMENTS: Final = 45
_LIST_REASSIGNMENTS: Final = 46
_UNREGISTER_BROKER: Final = 64
_BROKER_RESOURCE: Final = 4
_STREAM_RESOURCE: Final = 2
_ALL_BROKERS: Final = ""
_SET: Final = 0
_DELETE: Final = 1
_THROTTLED_SIDES: Final = ("leader", "follower")
_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_DRAINING: Final = "logboom.draining"
_FAILURE_DOMAIN: Final = "logboom.broker.failure_domain"
_MOVES_A_REQUEST: Final = 500
_TIMEOUT_MS: Final = 30_000
_EVERY_S: Final = 0.5

NodeId = Annotated[int, typer.Argument(metavar="NODE", show_default=False, help="The id of a broker.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once; `logboom cluster status` shows the progress.")]
ThrottleRate = Annotated[
    str | None,
    typer.Option(
        "--throttle",
        metavar="RATE",
        help="How much each broker may send and fetch a second for what moves, such as 50MB; lifted at the end.",
    ),
]


def drain(
    node: NodeId,
    undo: Annotated[bool, typer.Option("--undo", help="Let it hold replicas again.")] = False,
    no_wait: NoWait = False,
    throttle: ThrottleRate = None,
    bootstrap: ClusterBootstrap = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Move all replicas off a broker, so that it can be stopped for good; then `remove` it."""
    asked, rate = addresses(bootstrap, data), _rate(throttle)
    going = _going(asked)
    cluster = _look(asked)
    drained = cluster.nodes.get(node)
    if drained is None and not any(node in replicas for replicas in cluster.placed.values()):
        fail(f"there is no node {node}; there are {', '.join(map(str, sorted(cluster.nodes)))}")
    if drained is not None:  # one that was removed with its replicas gets none anyway
        # A broker takes its own settings itself, as long as it answers.
        _set_draining([drained.kafka] if drained.kafka and drained.error is None else asked, node, not undo)
    if undo:
        _say(as_json, {"node": node, "draining": False}, f"node {node} may hold replicas again")
        return
    placed = _placed(cluster, going)
    moves = evacuate(placed, _rooms(cluster), {BrokerId(node)})
    held = [partition for partition, replicas in placed.items() if node in replicas]
    stuck = [f"{stream}:{index}" for stream, index in held if (stream, index) not in moves]
    _move_all(asked, moves, rate, cluster)
    if stuck:
        fail(
            f"{plural(len(stuck), 'partition')} of node {node} cannot be moved, such as {stuck[0]}: every other "
            "broker is down, is drained, or has a replica already; the others move"
        )
    if not no_wait:
        _wait(lambda: _held(asked, node), lambda count: f"node {node}: {plural(count, 'replica')} left")
        _lift_after(asked, moves, rate)
        _wait(
            lambda: _votes_alone(asked, node),
            lambda _: (
                f"node {node} is the only voter of the metadata, and another one becomes that: do not stop it yet"
            ),
        )
    words = "is being drained" if no_wait else "holds no replicas any more"
    _say(as_json, {"node": node, "draining": True, "moved": len(moves)}, f"node {node} {words}")


def remove(node: NodeId, bootstrap: ClusterBootstrap = None, data: Data = None, as_json: AsJson = False) -> None:
    """Forget a broker that is gone for good: one that was drained and stopped, or lost with its disk."""
    asked = addresses(bootstrap, data)
    reply = _ask(asked, _UNREGISTER_BROKER, 0, broker_id=node)
    check(reply.error_code, reply.error_message, f"cannot remove node {node}")
    left = _held(asked, node)
    if left:
        note(
            f"{plural(left, 'replica')} wait for it: start a broker with this id and an empty data directory, or move "
            f"them to others with logboom cluster drain {node}"
        )
    _say(as_json, {"node": node, "removed": True, "replicas": left}, f"node {node} is removed")


def rebalance(
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Move replicas too, so that each broker has its share.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would move, and change nothing.")] = False,
    throttle: ThrottleRate = None,
    bootstrap: ClusterBootstrap = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Give every partition back to the leader that it prefers, the first of its replicas.

    After a broker was added, --replicas gives it its share: it moves data, as little as possible.
    """
    asked, rate = addresses(bootstrap, data), _rate(throttle)
    going = _going(asked) if replicas else {}
    cluster = _look(asked)
    moves = level(_placed(cluster, going), _rooms(cluster)) if replicas else {}
    if dry_run:
        _show_moves(cluster, moves, as_json)
        return
    _move_all(asked, moves, rate, cluster)
    if moves:
        streams = {stream for stream, _ in moves}
        _wait(lambda: len(_moving(asked, streams)), lambda count: f"{plural(count, 'partition')} on the move")
        _lift_after(asked, moves, rate)
    elected, refused = _elect_preferred(asked)
    if as_json:
        print_json({"moved": len(moves), "elected": elected, "refused": refused})
        return
    if moves:
        typer.echo(f"{plural(len(moves), 'partition')} moved")
    typer.echo(f"{plural(len(elected), 'partition')} returned to the preferred leader")
    for reason, count in Counter(refused.values()).items():
        note(f"{plural(count, 'partition')} did not: {reason}")


def reassign(
    stream: Annotated[str, typer.Argument(metavar="STREAM", show_default=False)],
    to: Annotated[
        str | None, typer.Option("--to", metavar="NODE,NODE...", help="The brokers that are to hold it, such as 1,2,4.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="This partition alone.")] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="How many of them hold each partition. (default: all)")
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel a move that is in progress.")] = False,
    no_wait: NoWait = False,
    throttle: ThrottleRate = None,
    bootstrap: ClusterBootstrap = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Move a stream to other brokers; the first one of each partition is to lead it, each broker in turn."""
    if (to is None) != cancel:
        fail("name the target with --to NODE,NODE..., or cancel a move with --cancel")
    asked, rate = addresses(bootstrap, data), _rate(throttle)
    indexes = [index for index in _partitions(asked, stream) if partition in (None, index)]
    if not indexes:
        fail(f"there is no partition {partition} in {stream}")
    if to is None:
        under_way = [each for each in _moving(asked, {stream}) if each[1] in indexes]
        _move(asked, dict.fromkeys(under_way))
        _lift(asked, {stream} if under_way else set())
        words = (
            f"cancelled the move of {plural(len(under_way), 'partition')}" if under_way else "nothing is being moved"
        )
        _say(as_json, {"stream": stream, "cancelled": [index for _, index in under_way]}, f"{stream}: {words}")
        return
    nodes = _node_ids(to)
    if replicas is not None and replicas > len(nodes):
        fail(f"--replicas {replicas}: --to names {plural(len(nodes), 'broker')} alone")
    wanted = spread(indexes, nodes, replicas)
    moves = {(stream, index): tuple(map(BrokerId, each)) for index, each in wanted.items()}
    _move_all(asked, moves, rate, None if rate is None else _look(asked))
    if no_wait:
        _say(as_json, {"stream": stream, "replicas": wanted}, f"the move of {stream} has begun")
        return
    _wait(lambda: len(_moving(asked, {stream})), lambda count: f"{stream}: {plural(count, 'partition')} on the move")
    _lift_after(asked, moves, rate)
    _say(as_json, {"stream": stream, "replicas": wanted}, f"{stream} has moved")


def unthrottle(bootstrap: ClusterBootstrap = None, data: Data = None, as_json: AsJson = False) -> None:
    """Lift what --throttle has set and could not lift itself: its command was stopped, or did not wait."""
    asked = addresses(bootstrap, data)
    _lift(asked, {stream for stream, _ in _look(asked).placed}, rates_too=True)
    _say(as_json, {"throttled": False}, "nothing is throttled any more")


def elect(
    stream: Annotated[str | None, typer.Argument(metavar="STREAM", show_default=False)] = None,
    partition: Annotated[int | None, typer.Argument(metavar="PARTITION", min=0, show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Every partition of every stream that needs it.")] = False,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Elect the longest log, although records may be lost.")
    ] = False,
    bootstrap: ClusterBootstrap = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Have a partition led by the broker that it prefers; with --unclean by anybody, where nobody is eligible.

    Without a leader are partitions whose in-sync replicas are all away. They are led again as soon as one is back.
    --unclean gives up waiting: what the longest log among the others lacks is lost, and whoever comes back later cuts
    its own. Partitions that are led are left as they are.
    """
    if every == (stream is not None) or (partition is None) != (stream is None):
        fail("name STREAM and PARTITION, or give --all")
    asked = addresses(bootstrap, data)
    named = nested(request_class(_ELECT_LEADERS, 2), "topic_partitions")
    wanted = None if stream is None else (named(topic=stream, partitions=(partition,)),)
    kind = _UNCLEAN if unclean else _PREFERRED
    reply = _ask(asked, _ELECT_LEADERS, 2, election_type=kind, topic_partitions=wanted)
    check(reply.error_code, None, "cannot elect")
    led = []
    for result in reply.replica_election_results:
        for each in result.partition_result:
            where = f"{result.topic}:{each.partition_id}"
            check(each.error_code, each.error_message, f"cannot elect a leader of {where}")
            led.append({"stream": result.topic, "partition": each.partition_id, "unclean": unclean})
    if every:
        _say(as_json, {"elected": led}, f"{plural(len(led), 'partition')} got another leader")
    else:
        _say(as_json, {"stream": stream, "partition": partition, "unclean": unclean}, f"{stream}:{partition} is led")


def spread(indexes: Sequence[int], nodes: Sequence[int], replicas: int | None) -> dict[int, tuple[int, ...]]:
    """The replicas of each partition: every node is the first one of its share, and the others follow in a circle.

    >>> spread([0, 1, 2], [1, 2, 4], 2)
    {0: (1, 2), 1: (2, 4), 2: (4, 1)}
    """
    count = replicas or len(nodes)
    return {index: tuple(nodes[(index + step) % len(nodes)] for step in range(count)) for index in indexes}


def _node_ids(text: str) -> list[int]:
    try:
        nodes = [int(each) for each in text.split(",")]
    except ValueError:
        fail(f"--to {text}: write it as the ids of brokers, such as 1,2,4")
    if len(set(nodes)) < len(nodes):
        fail(f"--to {text}: name each broker only once")
    return nodes


# --- asking -----------------------------------------------------------------------------------------------------------


def _ask(asked: Sequence[str], api_key: int, version: int, **fields: Any) -> Any:
    """The reply of the first broker that answers."""
    reasons = []
    for address in asked:
        try:
            with AdminConnection(address) as link:
                if link.version(api_key, version, version) is None:
                    fail(f"{address} does not offer this; it may be of another version")
                cls = request_class(api_key, version)
                known = {"timeout": milliseconds(_TIMEOUT_MS)} if "timeout" in cls.__slots__ else {}
                return link.ask(api_key, version, make(cls, **fields, **known))
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
    return fail(f"no broker answers ({'; '.join(reasons)})")


def _look(asked: Sequence[str]) -> Cluster:
    cluster, errors = look(asked)
    if cluster is None:
        fail(f"no broker answers any more ({'; '.join(errors.values())})")
    return cluster


def _partitions(asked: Sequence[str], stream: str) -> list[int]:
    topic = nested(request_class(_METADATA, _METADATA_VERSION), "topics")
    rights = {"include_topic_authorized_operations": False, "include_cluster_authorized_operations": False}
    reply = _ask(
        asked, _METADATA, _METADATA_VERSION, topics=(topic(name=stream),), allow_auto_topic_creation=False, **rights
    )
    (found,) = reply.topics
    check(found.error_code, "there is no such stream; `logboom streams list` shows what there is", stream)
    return sorted(each.partition_index for each in found.partitions)


def _set_draining(asked: Sequence[str], node: int, draining: bool) -> None:
    changes = {(_BROKER_RESOURCE, str(node)): {_DRAINING: str(draining).lower()}}
    _configure(asked, changes, f"cannot drain node {node}")


def _configure(asked: Sequence[str], wanted: Mapping[tuple[int, str], Mapping[str, str | None]], failing: str) -> None:
    """Change settings of streams and brokers, by type and name; None gives one back to its default."""
    resource = nested(request_class(_INCREMENTAL_ALTER_CONFIGS, 1), "resources")
    change = nested(resource, "configs")
    resources = tuple(
        resource(
            resource_type=kind,
            resource_name=name,
            configs=tuple(
                change(name=setting, config_operation=_DELETE if value is None else _SET, value=value)
                for setting, value in settings.items()
            ),
        )
        for (kind, name), settings in wanted.items()
    )
    for begin in range(0, len(resources), _MOVES_A_REQUEST):
        some = resources[begin : begin + _MOVES_A_REQUEST]
        for result in _ask(asked, _INCREMENTAL_ALTER_CONFIGS, 1, resources=some, validate_only=False).responses:
            check(result.error_code, result.error_message, failing)


def _rate(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        rate = parse_size_bytes(text.removesuffix("/s"))
    except ValueError as error:
        fail(f"--throttle {text}: {error}")
    if rate < 1:
        fail(f"--throttle {text}: nothing would ever be copied")
    return rate


def _throttle(
    asked: Sequence[str], moves: Mapping[Partition, Replicas], rate: int, placed: Mapping[Partition, Sequence[int]]
) -> None:
    """Have replicas that `moves` adds copy at most this many bytes a second, from whoever leads meanwhile (KIP-73)."""
    named: dict[str, tuple[list[str], list[str]]] = {}
    for (stream, index), replicas in sorted(moves.items()):
        leaders, followers = named.setdefault(stream, ([], []))
        before = placed.get((stream, index), ())
        leaders += [f"{index}:{node}" for node in before]
        followers += [f"{index}:{node}" for node in replicas if node not in before]
    wanted: dict[tuple[int, str], Mapping[str, str | None]] = {
        (_STREAM_RESOURCE, stream): {
            f"{side}.replication.throttled.replicas": ",".join(each)
            for side, each in zip(_THROTTLED_SIDES, sides, strict=True)
        }
        for stream, sides in named.items()
    }
    wanted[_BROKER_RESOURCE, _ALL_BROKERS] = {
        f"{side}.replication.throttled.rate": str(rate) for side in _THROTTLED_SIDES
    }
    _configure(asked, wanted, "cannot throttle the move, so nothing was moved")


def _lift(asked: Sequence[str], streams: Collection[str], *, rates_too: bool = False) -> None:
    """Take throttles from streams; the rates too, once nothing is being moved any more that they may hold for."""
    wanted: dict[tuple[int, str], Mapping[str, str | None]] = {
        (_STREAM_RESOURCE, stream): dict.fromkeys(f"{side}.replication.throttled.replicas" for side in _THROTTLED_SIDES)
        for stream in streams
    }
    if rates_too or (wanted and not _moving(asked, None)):
        rates = dict.fromkeys(f"{side}.replication.throttled.rate" for side in _THROTTLED_SIDES)
        wanted[_BROKER_RESOURCE, _ALL_BROKERS] = rates
    _configure(asked, wanted, "cannot lift the throttle")


def _lift_after(asked: Sequence[str], moves: Mapping[Partition, Replicas], rate: int | None) -> None:
    if rate is not None:
        _lift(asked, {stream for stream, _ in moves})


def _elect_preferred(asked: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The partitions that got another leader, and why others could not."""
    reply = _ask(asked, _ELECT_LEADERS, 2, election_type=_PREFERRED, topic_partitions=None)
    check(reply.error_code, None, "cannot rebalance")
    elected, refused = [], {}
    for result in reply.replica_election_results:
        for each in result.partition_result:
            name = f"{result.topic}:{each.partition_id}"
            if each.error_code is ErrorCode.none:
                elected.append(name)
            elif each.error_code is not ErrorCode.election_not_needed:
                refused[name] = each.error_message or each.error_code.name
    return elected, refused


def _move_all(
    asked: Sequence[str], moves: Mapping[Partition, Replicas], rate: int | None, cluster: Cluster | None
) -> None:
    """Begin to move; with a rate, under a throttle, for which it has to be known who holds what now."""
    if rate is not None and cluster is not None and moves:
        _throttle(asked, moves, rate, cluster.placed)
    items = list(moves.items())
    for begin in range(0, len(items), _MOVES_A_REQUEST):
        _move(asked, dict(items[begin : begin + _MOVES_A_REQUEST]))


def _move(asked: Sequence[str], wanted: Mapping[Partition, tuple[int, ...] | None]) -> None:
    """Begin to move partitions to brokers; None takes a move back."""
    topic = nested(request_class(_ALTER_REASSIGNMENTS, 0), "topics")
    one = nested(topic, "partitions")
    if not wanted:
        return
    by_stream: dict[str, list[Any]] = {}
    for (stream, index), replicas in wanted.items():
        by_stream.setdefault(stream, []).append(one(partition_index=index, replicas=replicas))
    topics = tuple(topic(name=stream, partitions=tuple(each)) for stream, each in by_stream.items())
    reply = _ask(asked, _ALTER_REASSIGNMENTS, 0, topics=topics)
    check(reply.error_code, reply.error_message, "cannot move partitions")
    for result in reply.responses:
        for each in result.partitions:
            check(each.error_code, each.error_message, f"cannot move {result.name}:{each.partition_index}")


def _under_way(asked: Sequence[str]) -> dict[Partition, Any]:
    """What is told of each partition that is on the move."""
    reply = _ask(asked, _LIST_REASSIGNMENTS, 0, topics=None)
    check(reply.error_code, reply.error_message, "cannot find out the progress")
    return {(str(topic.name), each.partition_index): each for topic in reply.topics for each in topic.partitions}


def _moving(asked: Sequence[str], streams: Collection[str] | None) -> list[Partition]:
    """The partitions of some streams, or of all, that are on the move."""
    return [partition for partition in _under_way(asked) if streams is None or partition[0] in streams]


def _going(asked: Sequence[str]) -> dict[Partition, Collection[int]]:
    """The replicas that moves take away. To be asked before the replicas are, which have fewer of them then."""
    return {partition: each.removing_replicas for partition, each in _under_way(asked).items()}


def _held(asked: Sequence[str], node: int) -> int:
    """Copies that a node still has. Its observers the controller moves by itself."""
    found = _look(asked).nodes.get(node)
    return 0 if found is None else found.replicas + found.observers


def _votes_alone(asked: Sequence[str], node: int) -> bool:
    """Whether a node is the only voter of the metadata, and there is another one that may vote."""
    nodes = _look(asked).nodes.values()
    others = [one for one in nodes if one.id != node and not one.is_observer]
    is_voter = any(one.id == node and one.role == "voter" for one in nodes)
    return is_voter and bool(others) and all(one.role != "voter" for one in others)


def _placed(cluster: Cluster, going: Mapping[Partition, Collection[int]]) -> dict[Partition, Replicas]:
    """The replicas of each partition, without those that moves take away: a plan that took them for others would keep
    them, and the partition had more replicas from then on than it was to have."""
    return {
        partition: tuple(BrokerId(one) for one in replicas if one not in going.get(partition, ()))
        for partition, replicas in cluster.placed.items()
        if replicas
    }


def _rooms(cluster: Cluster) -> dict[BrokerId, Room]:
    """The brokers as places for replicas. Each tells itself what it fails together with and whether it is drained; one
    that does not answer gets no more replicas, so that it does not matter there."""
    domains, draining = _value_of_each(cluster, _FAILURE_DOMAIN), _value_of_each(cluster, _DRAINING)
    return {
        BrokerId(node.id): Room(
            domain=domains.get(node.id) or f"node {node.id}",
            rack=node.rack,
            takes_more=node.fenced is not True
            and node.error is None
            and not node.is_observer
            and draining.get(node.id) != "true",
        )
        for node in cluster.nodes.values()
    }


def _value_of_each(cluster: Cluster, setting: str) -> dict[int, str]:
    values = {}
    for node in cluster.nodes.values():
        if node.kafka is not None and node.error is None:
            answers, _ = from_all([node.kafka], ask_configs(_BROKER_RESOURCE, [str(node.id)], setting))
            value = answers.get(node.kafka, {}).get(str(node.id))
            if value is not None:
                values[node.id] = value
    return values


def _show_moves(cluster: Cluster, moves: Mapping[Partition, Replicas], as_json: bool) -> None:
    rows = [
        {"stream": stream, "partition": index, "from": list(cluster.placed[stream, index]), "to": list(replicas)}
        for (stream, index), replicas in sorted(moves.items())
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(("stream", "partition", "from", "to"), [[_shown(each) for each in row.values()] for row in rows])
    else:
        note("every broker has its share: nothing would move")


def _shown(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _wait(left: Callable[[], int], words: Callable[[int], str]) -> None:
    """Return once nothing is left; says how much is, whenever that changes."""
    said = None
    while count := left():
        if count != said:
            note(words(count))
            said = count
        time.sleep(_EVERY_S)


def _say(as_json: bool, result: dict[str, Any], words: str) -> None:
    if as_json:
        print_json(result)
    elif words:
        typer.echo(words)


def register(app: typer.Typer) -> None:
    """Add the commands to those of `logboom cluster`."""
    for command in (drain, remove, rebalance, reassign, unthrottle, elect):
        app.command(command.__name__)(command)
