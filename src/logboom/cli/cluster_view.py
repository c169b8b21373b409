"""A cluster as its brokers describe it: who is alive, who leads, what is not replicated as it should be.

Asks through Kafka's protocol, every broker by itself and all side by side, so that it works while some are down and
can say which. Answers of several brokers are compared by how much of the metadata they had seen. Works with any cluster
that speaks the protocol; what a broker does not offer is left out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from logboom.base.settings import join_address
from logboom.cli.asking import AdminConnection
from logboom.kafka.wire.messages import make, nested, request_class

WAIT_S: Final = 2.0
"""How long each broker may take to answer, and to take a connection."""

_METADATA: Final = 3
_DESCRIBE_CONFIGS: Final = 32
_DESCRIBE_LOG_DIRS: Final = 35
_DESCRIBE_QUORUM: Final = 55
_DESCRIBE_CLUSTER: Final = 60
_DESCRIBE_PARTITIONS: Final = 75
_BROKER_RESOURCE: Final = 4
_IS_OBSERVER: Final = "logboom.broker.observer"
_SOFTWARE: Final = "logboom.software.version"
_BEFORE_LEVELS: Final = (1, 1)
"""What brokers speak that do not tell: those from before there were levels."""
_PARTITIONS_AN_ANSWER: Final = 2_000
_TOPIC_RESOURCE: Final = 2
_METADATA_STREAM: Final = "__cluster_metadata"
_MINIMUM: Final = "min.insync.replicas"
_SIDE_BY_SIDE: Final = 32

R = TypeVar("R")


@dataclass(slots=True)
class NodeView:
    """One broker."""

    id: int
    kafka: str | None
    """Where clients connect; None where nobody tells."""
    rack: str | None = None
    fenced: bool | None = None
    """Whether the controller has taken it out of service; None where no broker says so."""
    role: str | None = None
    """voter or observer of the metadata; None where no broker says so."""
    behind: int | None = None
    """Entries of the metadata's log that it does not have yet, as far as the controller knows."""
    leads: int = 0
    """Partitions it leads."""
    preferred: int = 0
    """Partitions whose first replica it has: it should lead them when all is well."""
    replicas: int = 0
    observers: int = 0
    """Copies of partitions that it has for readers alone."""
    is_observer: bool = False
    """Whether it has no others, since it was started with --observer."""
    lag: int | None = None
    """The sum over its replicas of the committed records that they do not have yet; None where it did not answer."""
    size_bytes: int | None = None
    software: str | None = None
    """The version of its program; None where it did not answer, or is older than this command."""
    levels: tuple[int, int] | None = None
    """The oldest and the newest metadata level that it speaks; None where it did not answer."""
    error: str | None = None
    """Why it did not answer; None where it did."""


@dataclass(slots=True)
class Trouble:
    """A partition that is not as it should be."""

    stream: str
    partition: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]
    minimum: int | None
    """The stream's min.insync.replicas; None where the broker did not tell."""

    @property
    def what(self) -> str:
        """The worst that is to be said of it."""
        if self.leader is None:
            return "no leader"
        if self.minimum is not None and len(self.in_sync) < self.minimum:
            return "below minimum"
        return "not all in sync"


@dataclass(slots=True)
class Cluster:
    """All of it, as of one moment."""

    id: str | None
    controller: int | None
    metadata_end: int | None
    """The end of the metadata's log, as far as it is committed."""
    nodes: dict[int, NodeView]
    metadata_level: int | None = None
    """Which versions of metadata records are written; None where nobody tells."""
    streams: int = 0
    partitions: int = 0
    at_preferred: int = 0
    """Partitions that their preferred node leads."""
    placed: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    """The replicas of each partition."""
    observers: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    """The observers of each partition that has some."""
    troubles: list[Trouble] = field(default_factory=list)
    lags: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """Replicas and observers that are behind, by stream, partition and node: how many records."""


@dataclass(slots=True)
class _Answer:
    """What one broker says of the whole."""

    address: str
    cluster: Any
    quorum: Any
    metadata: Any
    level: int | None

    @property
    def seen(self) -> tuple[int, int]:
        """How much of the metadata it has seen, where it tells."""
        return (-1, -1) if self.quorum is None else (self.quorum.leader_epoch, self.quorum.high_watermark)


def look(bootstrap: Iterable[str]) -> tuple[Cluster | None, dict[str, str]]:
    """The cluster, asked for at some addresses, and why each of them did not answer that did not. None where no one
    did."""
    addresses = list(dict.fromkeys(bootstrap))
    answers, errors = from_all(addresses, _ask_whole)
    if not answers:
        return None, errors
    best = max(answers.values(), key=lambda each: each.seen)
    best.quorum = _quorum_of_its_leader(best, answers)
    cluster = _cluster(best)
    _count(cluster, best)
    _look_at_replicas(cluster, errors)
    return cluster, errors


def from_all(addresses: Sequence[str], ask: Callable[[AdminConnection], R]) -> tuple[dict[str, R], dict[str, str]]:
    """What each address answers, asked side by side, and why those did not that did not."""

    def one(address: str) -> R | str:
        try:
            with AdminConnection(address, connect_timeout_s=WAIT_S, answer_timeout_s=WAIT_S) as link:
                return ask(link)
        except TimeoutError:
            return "it does not answer"
        except OSError as error:
            return (error.strerror or str(error)).lower()

    if not addresses:
        return {}, {}
    with ThreadPoolExecutor(min(len(addresses), _SIDE_BY_SIDE)) as pool:
        answers = dict(zip(addresses, pool.map(one, addresses), strict=True))
    errors = {address: each for address, each in answers.items() if isinstance(each, str)}
    return {address: each for address, each in answers.items() if not isinstance(each, str)}, errors


# --- asking -----------------------------------------------------------------------------------------------------------


def _ask_whole(link: AdminConnection) -> _Answer:
    cluster = _ask(link, _DESCRIBE_CLUSTER, 0, 2, endpoint_type=1, include_fenced_brokers=True)
    metadata = _ask(link, _METADATA, 9, 12, topics=None, allow_auto_topic_creation=False)
    if cluster is None or metadata is None:
        raise ConnectionError("it is too old to describe its cluster")
    return _Answer(link.address, cluster, _quorum(link), metadata, link.features().level)


def _ask(link: AdminConnection, api_key: int, lowest: int, highest: int, **fields: Any) -> Any:
    """The reply at the highest version that both sides have; None where there is none."""
    version = link.version(api_key, lowest, highest)
    if version is None:
        return None
    no_rights = dict.fromkeys(_RIGHTS[api_key], False) if api_key in _RIGHTS else {}
    return link.ask(api_key, version, make(request_class(api_key, version), **fields, **no_rights))


_RIGHTS: Final = {
    _METADATA: ("include_topic_authorized_operations", "include_cluster_authorized_operations"),
    _DESCRIBE_CLUSTER: ("include_cluster_authorized_operations",),
}
"""What a client may do, which nobody needs to know here."""


def _quorum(link: AdminConnection) -> Any:
    version = link.version(_DESCRIBE_QUORUM, 0, 2)
    if version is None:
        return None
    cls = request_class(_DESCRIBE_QUORUM, version)
    topics, partitions = nested(cls, "topics"), nested(cls, "topics", "partitions")
    asked = topics(topic_name=_METADATA_STREAM, partitions=(partitions(partition_index=0),))
    reply = link.ask(_DESCRIBE_QUORUM, version, cls(topics=(asked,)))
    if reply.error_code or not reply.topics or not reply.topics[0].partitions:
        return None
    quorum = reply.topics[0].partitions[0]
    return None if quorum.error_code else quorum


def _quorum_of_its_leader(best: _Answer, answers: Mapping[str, _Answer]) -> Any:
    """What the leader says of the quorum, since it alone may know how far the others are; else what `best` says."""
    if best.quorum is None:
        return None
    addresses = [
        join_address(broker.host, broker.port)
        for broker in best.cluster.brokers
        if broker.broker_id == best.quorum.leader_id
    ]
    for address in addresses:
        if address in answers and answers[address].quorum is not None:
            return answers[address].quorum
    answers, _ = from_all(addresses, _quorum)
    return next((quorum for quorum in answers.values() if quorum is not None), best.quorum)


def _ask_log_dirs(link: AdminConnection) -> Any:
    return _ask(link, _DESCRIBE_LOG_DIRS, 2, 4, topics=None)


def ask_replicas(streams: Iterable[str]) -> Callable[[AdminConnection], dict[tuple[str, int], tuple[int, ...]]]:
    """A question for `from_all`: the replicas without observers, of each partition of some streams. Metadata names both
    together; where the broker tells nothing else, all of them are replicas."""

    def ask(link: AdminConnection) -> dict[tuple[str, int], tuple[int, ...]]:
        version = link.version(_DESCRIBE_PARTITIONS, 0, 0)
        found: dict[tuple[str, int], tuple[int, ...]] = {}
        if version is None:
            return found
        cls = request_class(_DESCRIBE_PARTITIONS, version)
        asked, cursor = tuple(nested(cls, "topics")(name=name) for name in streams), None
        while asked:
            limit = _PARTITIONS_AN_ANSWER
            reply = link.ask(
                _DESCRIBE_PARTITIONS, version, cls(topics=asked, response_partition_limit=limit, cursor=cursor)
            )
            for topic in reply.topics:
                for each in topic.partitions:
                    found[str(topic.name), each.partition_index] = tuple(each.replica_nodes)
            if reply.next_cursor is None:
                break
            name, index = reply.next_cursor.topic_name, reply.next_cursor.partition_index
            cursor = nested(cls, "cursor")(topic_name=name, partition_index=index)
        return found

    return ask


def ask_configs(kind: int, names: Iterable[str], setting: str) -> Callable[[AdminConnection], dict[str, str]]:
    """A question for `from_all`: the values that a setting has for resources of a kind, by their names."""

    def ask(link: AdminConnection) -> dict[str, str]:
        version = link.version(_DESCRIBE_CONFIGS, 4, 4)
        if version is None:
            return {}
        resource = nested(request_class(_DESCRIBE_CONFIGS, version), "resources")
        resources = tuple(
            resource(resource_type=kind, resource_name=name, configuration_keys=(setting,)) for name in names
        )
        no_more = {"include_synonyms": False, "include_documentation": False}
        reply = _ask(link, _DESCRIBE_CONFIGS, version, version, resources=resources, **no_more)
        return {
            each.resource_name: entry.value
            for each in reply.results
            for entry in each.configs
            if entry.name == setting and entry.value is not None
        }

    return ask


# --- what it comes to -------------------------------------------------------------------------------------------------


def _cluster(answer: _Answer) -> Cluster:
    nodes: dict[int, NodeView] = {}
    for broker in answer.metadata.brokers:
        nodes[broker.node_id] = NodeView(broker.node_id, join_address(broker.host, broker.port), broker.rack)
    for broker in answer.cluster.brokers:
        node = nodes.setdefault(broker.broker_id, NodeView(broker.broker_id, None))
        node.kafka, node.rack = join_address(broker.host, broker.port), broker.rack
        node.fenced = getattr(broker, "is_fenced", None)
    quorum = answer.quorum
    controller = answer.cluster.controller_id if quorum is None else quorum.leader_id
    if quorum is not None:
        ends = {state.replica_id: state.log_end_offset for state in (*quorum.current_voters, *quorum.observers)}
        for role, states in (("voter", quorum.current_voters), ("observer", quorum.observers)):
            for state in states:
                node = nodes.setdefault(state.replica_id, NodeView(state.replica_id, None))
                node.role = role
                end = ends.get(controller, -1)
                node.behind = max(0, end - state.log_end_offset) if min(end, state.log_end_offset) >= 0 else None
    return Cluster(
        id=answer.cluster.cluster_id,
        controller=controller if controller >= 0 else None,
        metadata_end=None if quorum is None else quorum.high_watermark,
        nodes=nodes,
        metadata_level=answer.level,
    )


def _count(cluster: Cluster, answer: _Answer) -> None:
    """Leaders and replicas of each node, and the partitions that are not as they should be."""
    suspects = []
    counted = _replicas_alone(answer)
    for topic in answer.metadata.topics:
        cluster.streams += 1
        for each in topic.partitions:
            cluster.partitions += 1
            leader = each.leader_id if each.leader_id >= 0 else None
            copies, in_sync = list(each.replica_nodes), list(each.isr_nodes)
            replicas = list(counted.get((str(topic.name), each.partition_index), copies))
            for replica in replicas:
                cluster.nodes.setdefault(replica, NodeView(replica, None)).replicas += 1
            if observers := tuple(one for one in copies if one not in replicas):
                cluster.observers[str(topic.name), each.partition_index] = observers
            for observer in observers:
                cluster.nodes.setdefault(observer, NodeView(observer, None)).observers += 1
            cluster.placed[str(topic.name), each.partition_index] = tuple(replicas)
            if replicas:
                cluster.nodes[replicas[0]].preferred += 1
                cluster.at_preferred += replicas[0] == leader
            if leader is not None:
                cluster.nodes.setdefault(leader, NodeView(leader, None)).leads += 1
            suspects.append(Trouble(str(topic.name), each.partition_index, leader, replicas, in_sync, None))
    minima: dict[str, int] = {}
    unsure = {each.stream for each in suspects if len(each.in_sync) < len(each.replicas)}
    if unsure:
        answers, _ = from_all([answer.address], ask_configs(_TOPIC_RESOURCE, sorted(unsure), _MINIMUM))
        minima = {stream: int(value) for stream, value in answers.get(answer.address, {}).items()}
    for each in suspects:
        each.minimum = minima.get(each.stream)
    troubled = (each for each in suspects if each.leader is None or len(each.in_sync) < len(each.replicas))
    cluster.troubles = sorted(troubled, key=lambda each: (each.stream, each.partition))


def _replicas_alone(answer: _Answer) -> dict[tuple[str, int], tuple[int, ...]]:
    """The replicas of partitions of which not all copies are in sync: some of those may be observers."""
    unsure = {
        str(topic.name)
        for topic in answer.metadata.topics
        if any(len(each.isr_nodes) < len(each.replica_nodes) for each in topic.partitions)
    }
    if not unsure:
        return {}
    answers, _ = from_all([answer.address], ask_replicas(sorted(unsure)))
    return answers.get(answer.address, {})


def _look_at_replicas(cluster: Cluster, silent: Mapping[str, str]) -> None:
    """How far each node's replicas are behind, as that node itself says. `silent`: who did not answer a moment ago, and
    is not asked again."""
    by_address = {node.kafka: node for node in cluster.nodes.values() if node.kafka is not None}

    def ask(link: AdminConnection) -> Any:
        node = by_address[link.address]
        name = str(node.id)
        node.is_observer = ask_configs(_BROKER_RESOURCE, [name], _IS_OBSERVER)(link).get(name) == "true"
        node.software = ask_configs(_BROKER_RESOURCE, [name], _SOFTWARE)(link).get(name)
        node.levels = link.features().spoken or (_BEFORE_LEVELS if cluster.metadata_level is not None else None)
        return _ask_log_dirs(link)

    answers, errors = from_all([address for address in by_address if address not in silent], ask)
    for node in cluster.nodes.values():
        node.error = (
            "no broker reports where it is" if node.kafka is None else silent.get(node.kafka, errors.get(node.kafka))
        )
    for address, reply in answers.items():
        node = by_address[address]
        if reply is None:
            continue
        node.lag = node.size_bytes = 0
        for directory in reply.results:
            for topic in directory.topics:
                for each in topic.partitions:
                    lag = max(0, each.offset_lag)
                    node.lag += lag
                    node.size_bytes += each.partition_size
                    if lag:
                        cluster.lags[str(topic.name), each.partition_index, node.id] = lag
