"""The Kafka client behind the commands, and what its errors mean to a person.

Knows librdkafka through confluent-kafka. Works with any server that speaks the Kafka protocol.
"""

import logging
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec, TopicMetadata

from logboom.base.settings import join_address, split_address
from logboom.cli.common import fail, note

CONNECT_TIMEOUT_S: Final = 3.0
ANSWER_TIMEOUT_S: Final = 30.0
_ADVERTISED_TIMEOUT_S: Final = 9.0
"""The time for which the addresses that brokers advertise are tried, one after the other."""

_SENTENCES: Final = {
    "TOPIC_ALREADY_EXISTS": "it exists already",
    "UNKNOWN_TOPIC_OR_PART": "there is no such stream or partition; `logboom streams list` shows what there is",
    "_UNKNOWN_TOPIC": "there is no such stream; `logboom streams list` shows what there is",
    "_UNKNOWN_PARTITION": "there is no such partition; `logboom streams describe STREAM` shows what there is",
    "_TRANSPORT": "the connection to the broker was lost; is it still running?",
    "_ALL_BROKERS_DOWN": "no broker answers; is it still running?",
    "_TIMED_OUT": "the broker did not answer in time",
    "_MSG_TIMED_OUT": "the broker did not acknowledge it in time",
    "MSG_SIZE_TOO_LARGE": "it is larger than the stream accepts (max.message.bytes)",
    "INVALID_MSG_SIZE": "it is larger than the stream accepts (max.message.bytes)",
    "INVALID_RECORD": (
        "the broker refused a record as invalid (INVALID_RECORD), and its log says why; a compacted stream accepts "
        "only records with a key"
    ),
    "KAFKA_STORAGE_ERROR": "the broker's disk failed or is full; its log says more",
    "NON_EMPTY_GROUP": "the group has live members; stop them first",
    "GROUP_ID_NOT_FOUND": "there is no such group; `logboom groups list` shows what there is",
}


def explain(error: KafkaError) -> str:
    """What an error means, and what to do about it where that is known."""
    known = _SENTENCES.get(error.name())
    return known or f"{error.str()} ({error.name()})"


def sentence(error: BaseException) -> str:
    """The same for an exception of the client."""
    inner = error.args[0] if error.args else error
    return explain(inner) if isinstance(inner, KafkaError) else str(inner)


def client_config(bootstrap: str, **more: Any) -> dict[str, Any]:
    """Settings of every client: an absent broker is noticed quickly, and errors are left to the command to report."""
    quiet = logging.getLogger("logboom.cli.client")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "logboom-cli",
        "socket.connection.setup.timeout.ms": int(CONNECT_TIMEOUT_S * 1_000),
        "reconnect.backoff.max.ms": 1_000,
        "broker.address.family": "any",
        "logger": quiet,
        **more,
    }


def reach(bootstrap: str) -> None:
    """Return once something listens at one of the addresses; else end the command, naming why not."""
    reasons = []
    for address in bootstrap.split(","):
        try:
            host, port = split_address(address.strip())
        except ValueError as error:
            fail(f"--bootstrap: {error}")
        reason = _refusal(host, port)
        if reason is None:
            return
        reasons.append(f"{address.strip()}: {reason}")
    fail(f"no broker answers ({'; '.join(reasons)}): start one with `logboom serve`, or name another with --bootstrap")


def _refusal(host: str, port: int) -> str | None:
    """Why no connection is to be had; None where something listens."""
    try:
        socket.create_connection((host or "127.0.0.1", port), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def admin(bootstrap: str) -> AdminClient:
    """A client for administration, of a cluster whose brokers can be reached."""
    reach(bootstrap)
    client = AdminClient(client_config(bootstrap))
    _check_advertised(client, bootstrap)
    return client


def reach_brokers(bootstrap: str) -> None:
    """Return once a broker can be reached where it tells clients to connect; else end the command, naming why not."""
    admin(bootstrap)


def _check_advertised(client: AdminClient, bootstrap: str) -> None:
    """End the command if nothing listens at any address that the brokers advertise: a client would try them for ever.

    Where no broker has told its address by now, that is noted, and left to the client that follows.
    """
    try:
        brokers = client.list_topics(timeout=CONNECT_TIMEOUT_S).brokers.values()
    except KafkaException:
        note(f"{bootstrap} has not answered as a Kafka broker does for {CONNECT_TIMEOUT_S:.0f} s: still trying")
        return
    reasons, deadline_s = [], time.monotonic() + _ADVERTISED_TIMEOUT_S
    for broker in brokers:
        host, port = broker.host or "", broker.port
        reason = _refusal(host, port)
        if reason is None or time.monotonic() > deadline_s:
            return
        reasons.append(f"{join_address(host, port)}: {reason}")
    if reasons:
        fail(
            f"{bootstrap} answers, but clients are told to connect elsewhere, which fails from here "
            f"({'; '.join(reasons)}): let `kafka.advertised` of each broker name an address that its clients reach"
        )


def metadata(client: AdminClient | Consumer, bootstrap: str) -> ClusterMetadata:
    """All streams there are; creates none."""
    try:
        return client.list_topics(timeout=ANSWER_TIMEOUT_S)
    except KafkaException as error:
        fail(f"{bootstrap} takes connections but does not answer as a Kafka broker does: {sentence(error)}")


def find_stream(client: AdminClient | Consumer, bootstrap: str, stream: str) -> TopicMetadata:
    """A stream that must be there."""
    topic = metadata(client, bootstrap).topics.get(stream)
    if topic is None:
        fail(
            f"there is no stream {stream!r}: `logboom streams list` shows what there is, "
            f"`logboom streams create {stream}` makes it"
        )
    return topic


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition holds."""

    first: int
    end: int

    @property
    def records(self) -> int:
        """Number of records, by offsets."""
        return self.end - self.first


def bounds(client: AdminClient, counts: Mapping[str, int]) -> dict[tuple[str, int], Bounds]:
    """First offset and end of every partition of the streams; partitions that answer with an error are left out."""
    partitions = [TopicPartition(name, index) for name, count in counts.items() for index in range(count)]
    first = offsets_at(client, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    end = offsets_at(client, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    return {where: Bounds(first[where], end[where]) for where in first if where in end}


def offsets_at(
    client: AdminClient, partitions: Iterable[TopicPartition], spec: OffsetSpec
) -> dict[tuple[str, int], int]:
    """The offset that a spec means in each partition; partitions that answer with an error are left out.

    A time after the last record comes to -1.
    """
    asked = {TopicPartition(each.topic, each.partition): spec for each in partitions}
    if not asked:
        return {}
    found: dict[tuple[str, int], int] = {}
    for partition, future in client.list_offsets(asked, request_timeout=ANSWER_TIMEOUT_S).items():
        try:
            offset = future.result().offset
        except KafkaException:
            continue
        if offset != OFFSET_INVALID:  # librdkafka's answer, without an error, for a broker that did not answer
            found[partition.topic, partition.partition] = offset
    return found


def offsets_at_time(
    client: AdminClient, ends: Mapping[tuple[str, int], Bounds], moment_ms: int
) -> dict[tuple[str, int], int]:
    """The first offset at or after a moment in each partition, its end where nothing is that young. Ends the command
    if a partition does not answer."""
    partitions = [TopicPartition(*where) for where in ends]
    found = offsets_at(client, partitions, OffsetSpec.for_timestamp(moment_ms))
    check_answered(ends, found)
    return {where: found[where] if found[where] >= 0 else ends[where].end for where in ends}


def check_answered(asked: Iterable[tuple[str, int]], found: Mapping[tuple[str, int], object]) -> None:
    """End the command if one of the partitions is missing in what was found out about them."""
    for stream, index in asked:
        if (stream, index) not in found:
            fail(f"partition {index} of {stream} does not answer: `logboom streams describe {stream}` says more")
