"""The log as the driver sees it: which streams exist, their partitions and end offsets. Creates the pipeline's own
streams.

Knows the Kafka protocol's admin client. Must not know Spark.
"""

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec

from logboom.base.units import MIB
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.names import MAX_MESSAGE_BYTES_DEFAULT

_SEARCH_S: Final = 10.0
"""How long to look for a broker."""
_REQUEST_S: Final = 30.0
"""How long a broker may take to answer."""
EVENT_MAX_BYTES: Final = 32 * MIB
"""The largest event that a sink after an edge receives: half of the uncompressed batch size that Logboom's brokers
accept."""
_MAX_MESSAGE_BYTES: Final = "max.message.bytes"
OWN_CONFIGS: Final = {"cleanup.policy": "delete"}
"""Settings of the streams that a pipeline creates for itself. They hold events, not a state by key: if a broker's
default were compaction, events with the same key would replace each other."""
EDGE_CONFIGS: Final = OWN_CONFIGS | {
    _MAX_MESSAGE_BYTES: str(EVENT_MAX_BYTES + MIB),
    # Records that all sinks have read are deleted by whole segments; the active segment stays.
    "segment.bytes": str(64 * MIB),
}
_LOOK_S: Final = 2.0
"""How long each repeated lookup waits for an answer: signals are handled only after it."""
_WAIT_S: Final = 0.5
_WAIT_MAX_S: Final = 5.0
_QUIET: Final = logging.getLogger("logboom.pipeline.librdkafka")


# Errors of the client itself have only names that begin with an underscore.
_UNREACHABLE: Final = frozenset(
    (
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    )
)


class LogUnreachableError(PipelineError):
    """No broker answers, or none can answer now; a later retry may succeed."""


class StreamAdmin:
    """Describes, creates and deletes streams."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: librdkafka's settings for TLS and authentication."""
        self.bootstrap = bootstrap
        _QUIET.propagate = False
        _QUIET.addHandler(logging.NullHandler())
        self._client = AdminClient({"bootstrap.servers": bootstrap, **(settings or {})}, logger=_QUIET)

    def partitions(self, timeout_s: float = _SEARCH_S) -> dict[str, int]:
        """The number of partitions of each stream."""
        try:
            listed = self._client.list_topics(timeout=timeout_s).topics
        except KafkaException as error:
            raise LogUnreachableError(
                f"no broker answers at {self.bootstrap} ({_said(error)}); start one with: logboom serve"
            ) from error
        return {name: len(topic.partitions) for name, topic in listed.items() if topic.error is None}

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """The id of each stream that has one: a recreated stream has another id."""
        asked = self._client.describe_topics(TopicCollection(list(names)), request_timeout=_REQUEST_S)
        found: dict[str, str] = {}
        for name, future in asked.items():
            described = _result(future, f"stream {name} cannot be described")
            if described.topic_id is not None:
                found[name] = str(described.topic_id)
        return found

    def ensure(self, wanted: Mapping[str, int], configs: Mapping[str, str] | None = None) -> dict[str, int]:
        """Creates missing streams with this many partitions; returns the number of partitions of each stream."""
        there = self.partitions()
        missing = {name: count for name, count in wanted.items() if name not in there}
        if missing:
            topics = [NewTopic(name, count, config=dict(configs or {})) for name, count in missing.items()]
            for name, future in self._client.create_topics(
                topics, operation_timeout=_REQUEST_S, request_timeout=_REQUEST_S
            ).items():
                self._created(name, future)
            there = {**there, **missing}
        return {name: there[name] for name in wanted}

    def limits(self, streams: Iterable[str]) -> dict[str, int]:
        """The largest batch that each stream accepts, in bytes; Kafka's default if the server does not report it."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in streams]
        if not resources:
            return {}
        found: dict[str, int] = {}
        for resource, future in self._client.describe_configs(resources, request_timeout=_REQUEST_S).items():
            try:
                entry = _result(future, f"the settings of stream {resource.name} cannot be read")[_MAX_MESSAGE_BYTES]
                found[resource.name] = int(entry.value)
            except LogUnreachableError:
                raise
            except (PipelineError, KeyError, TypeError, ValueError):  # not allowed, or unknown to this server
                found[resource.name] = MAX_MESSAGE_BYTES_DEFAULT
        return found

    def widen(self, edges: Iterable[str]) -> None:
        """Raises the size limit of edge streams that an earlier version created, if the server allows it."""
        wanted = int(EDGE_CONFIGS[_MAX_MESSAGE_BYTES])
        for name, limit in self.limits(edges).items():
            if limit >= wanted:
                continue
            entry = ConfigEntry(_MAX_MESSAGE_BYTES, str(wanted), incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
            for future in self._client.incremental_alter_configs([resource], request_timeout=_REQUEST_S).values():
                with contextlib.suppress(KafkaException):  # then the current limit stays
                    future.result(timeout=2 * _REQUEST_S)

    @staticmethod
    def _created(name: str, future: Any) -> None:
        try:
            future.result(timeout=2 * _REQUEST_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _failure(f"stream {name} cannot be created", error) from error

    def ends(self, counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """The end offset of each partition: stream -> partition -> offset, as Spark needs it."""
        return self._offsets(counts, OffsetSpec.latest(), "end")  # type: ignore[no-untyped-call]

    def starts(self, counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """The first offset that each partition still holds."""
        return self._offsets(counts, OffsetSpec.earliest(), "start")  # type: ignore[no-untyped-call]

    def since(self, counts: Mapping[str, int], moment_ms: int) -> dict[str, dict[str, int]]:
        """The offset of the first record of each partition with this or a later timestamp, in milliseconds since 1970;
        -1 if there is none."""
        spec = OffsetSpec.for_timestamp(moment_ms)
        return self._offsets(counts, spec, f"record of {moment_ms}")

    def delete(self, streams: Iterable[str]) -> None:
        """Deletes the pipeline's own streams; missing ones are ignored."""
        named = list(streams)
        if not named:
            return
        for name, future in self._client.delete_topics(
            named, operation_timeout=_REQUEST_S, request_timeout=_REQUEST_S
        ).items():
            try:
                future.result(timeout=2 * _REQUEST_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise _failure(f"stream {name} cannot be deleted", error) from error

    def _offsets(self, counts: Mapping[str, int], spec: OffsetSpec, what: str) -> dict[str, dict[str, int]]:
        asked = {TopicPartition(name, number): spec for name, count in counts.items() for number in range(count)}
        found: dict[str, dict[str, int]] = {name: {} for name in counts}
        if not asked:
            return found
        for place, future in self._client.list_offsets(asked, request_timeout=_REQUEST_S).items():
            answer = _result(future, f"the {what} of stream {place.topic} cannot be found")
            found[place.topic][str(place.partition)] = answer.offset
        return found

    def delete_before(self, offsets: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], Future[Any]]:
        """Requests the deletion of the records of each (stream, partition) below an offset; the answers arrive
        later."""
        asked = [TopicPartition(stream, partition, offset) for (stream, partition), offset in offsets.items()]
        futures = self._client.delete_records(asked, request_timeout=_REQUEST_S, operation_timeout=_REQUEST_S)
        return {(place.topic, place.partition): future for place, future in futures.items()}

    def answers(self) -> bool:
        """Whether a broker answers now."""
        try:
            self.partitions(_LOOK_S)
        except LogUnreachableError:
            return False
        return True

    def wait_for(
        self, names: Iterable[str], patterns: Iterable[str], stop: threading.Event, notify: Callable[[str], None]
    ) -> dict[str, int]:
        """Waits until every named stream exists and every pattern matches a stream; returns their partitions. Empty
        when stopped.

        It also waits for a broker. `notify` is called once for each missing stream or broker.
        """
        named, matched = tuple(names), tuple(patterns)
        pause_s, said = _WAIT_S, ""
        while not stop.is_set():
            try:
                found, missing = self.look_for(named, matched, _LOOK_S)
            except LogUnreachableError:
                awaited = f"a broker at {self.bootstrap}, where none answers yet"
            else:
                if not missing:
                    return found
                awaited = f"the stream {', '.join(missing)}, which does not exist yet"
            if said != (said := awaited):
                notify(f"waiting for {awaited}")
            stop.wait(pause_s)
            pause_s = min(2 * pause_s, _WAIT_MAX_S)
        return {}

    def look_for(
        self, names: Iterable[str], patterns: Iterable[str], timeout_s: float = _SEARCH_S
    ) -> tuple[dict[str, int], list[str]]:
        """The partitions of existing streams, and the names and patterns without a stream."""
        there, named = self.partitions(timeout_s), set(names)
        found = {name: count for name, count in there.items() if name in named}
        missing = sorted(named - set(there))
        for pattern in patterns:
            matching = {name: count for name, count in there.items() if re.fullmatch(pattern, name)}
            found.update(matching)
            missing += [] if matching else [pattern]
        return found, missing


def _result(future: Any, failed: str) -> Any:
    try:
        return future.result(timeout=2 * _REQUEST_S)
    except KafkaException as error:
        raise _failure(failed, error) from error


def _failure(what: str, error: KafkaException) -> PipelineError:
    kind = LogUnreachableError if error.args[0].code() in _UNREACHABLE else PipelineError
    return kind(f"{what}: {_said(error)}")


def _said(error: KafkaException) -> str:
    return str(error.args[0].str()) if error.args else str(error)
