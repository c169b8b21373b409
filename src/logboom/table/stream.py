"""The stream behind a table, as an administrator asks for it: what it is, where its partitions end.

Knows librdkafka's admin client. Every method blocks for a few seconds at most, and raises KafkaException where no
broker answers in that time.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from logboom.base.units import SECOND_MS
from logboom.table.errors import NoSuchTableError, NotATableError, TableError

ANSWER_TIMEOUT_MAX_S: Final = 10.0
_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_URL_SAFE: Final = str.maketrans("+/", "-_")
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has it; the monotonic clock of macOS goes on while the machine sleeps."""
_CREATE_HINT: Final = "`logboom tables create {name}` makes it"


def now_s() -> float:
    """Seconds of a clock that never goes back and goes on while the machine sleeps, as `Freshness` needs it."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One life of a stream."""

    topic_id: str
    partitions: tuple[int, ...]
    delete_retention_s: float
    compares_versions: bool
    """Whether the server is one that compares versions of conditional records."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Where the partitions ended at some moment after `asked_at_s`, and which stream's they were."""

    topic_id: str
    offsets: dict[int, int]
    asked_at_s: float
    positions_before: dict[int, int]
    """What was read when it was asked: an end below is not that of the log that was read."""


class TableStream:
    """A stream by its name. Thread-safe, as librdkafka's clients are."""

    def __init__(
        self,
        config: Mapping[str, Any],
        name: str,
        selected: frozenset[int] | None = None,
        answer_timeout_s: float = ANSWER_TIMEOUT_MAX_S,
    ) -> None:
        """`selected` partitions are read; all without it."""
        self.name = name
        self._answer_timeout_s = min(answer_timeout_s, ANSWER_TIMEOUT_MAX_S)
        self._selected = selected
        self._admin = AdminClient(dict(config))

    def describe(self) -> StreamInfo:
        """What the stream is now. NoSuchTableError where there is none, NotATableError where it is not compacted."""
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        config = self._admin.describe_configs([resource], request_timeout=self._answer_timeout_s)[resource]
        topic_id, partitions = self._identity(self._ask_identity())
        settings = {name: entry.value for name, entry in _answer(config, self.name).items()}
        if _COMPACT not in settings[_POLICY].split(","):
            raise NotATableError(
                f"stream {self.name!r} is not a table, because it is not compacted ({_POLICY}="
                f"{settings[_POLICY]}): `logboom tables create NAME` makes one, `logboom streams alter "
                f"{self.name} --config cleanup.policy=compact` turns this one into a table, without its records that "
                "have no key"
            )
        return StreamInfo(
            topic_id=topic_id,
            partitions=partitions,
            delete_retention_s=int(settings["delete.retention.ms"]) / SECOND_MS,
            compares_versions=any(name.startswith("logboom.") for name in settings),
        )

    def ends(self, positions: Mapping[int, int]) -> Ends:
        """Where the partitions of these positions end, and those that were added since.

        NoSuchTableError where there is no stream.

        The identity is asked for at the same time. Where the stream is recreated between the two answers, the ends may
        be those of the new one: its records were acknowledged after this was called, so nobody misses them yet.
        """
        asked_at_s = now_s()
        identity = self._ask_identity()
        try:
            found = self._offsets(positions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        except (NoSuchTableError, KafkaException):
            found = {}  # it is gone, as the identity tells then, or was recreated, with fewer partitions perhaps
        topic_id, partitions = self._identity(identity)
        if added := [index for index in self.selected(partitions) if index not in found]:
            found |= self._offsets(added, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return Ends(topic_id, found, asked_at_s, dict(positions))

    def selected(self, partitions: Iterable[int]) -> list[int]:
        """Those of the partitions that are read."""
        return [index for index in partitions if self._selected is None or index in self._selected]

    def starts(self, partitions: Iterable[int]) -> dict[int, int]:
        """The first offset of each partition."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def create(self, partitions: int | None, settings: Mapping[str, str]) -> bool:
        """Make the stream, compacted. False where it exists; NotATableError where `settings` would have it not so."""
        config = {_POLICY: _COMPACT, **settings}
        if _COMPACT not in config[_POLICY].split(","):
            raise NotATableError(
                f"{_POLICY}={config[_POLICY]} makes no table: leave the setting away, or say {_POLICY}=compact,delete "
                "to have old records deleted too"
            )
        topic = NewTopic(self.name, num_partitions=partitions or -1, replication_factor=-1, config=config)
        try:
            self._admin.create_topics([topic], request_timeout=self._answer_timeout_s)[self.name].result()
        except KafkaException as error:
            if error.args[0].name() == "TOPIC_ALREADY_EXISTS":
                return False
            raise
        return True

    def _ask_identity(self) -> "Future[Any]":
        asked: dict[str, Future[Any]] = self._admin.describe_topics(
            TopicCollection([self.name]), request_timeout=self._answer_timeout_s
        )
        return asked[self.name]

    def _identity(self, asked: "Future[Any]") -> tuple[str, tuple[int, ...]]:
        topic = _answer(asked, self.name)
        # Librdkafka prints the plain alphabet of base64; Kafka's tools and Logboom use the one for file names.
        topic_id = str(topic.topic_id).translate(_URL_SAFE)
        return topic_id, tuple(sorted(partition.id for partition in topic.partitions))

    def _offsets(self, partitions: Iterable[int], spec: OffsetSpec) -> dict[int, int]:
        asked = {TopicPartition(self.name, index): spec for index in partitions}
        if not asked:
            return {}
        answers = self._admin.list_offsets(
            asked,
            isolation_level=IsolationLevel.READ_COMMITTED,  # as the reader of a table reads
            request_timeout=self._answer_timeout_s,
        )
        found = {where.partition: _answer(answer, self.name).offset for where, answer in answers.items()}
        if min(found.values()) < 0:  # librdkafka's OFFSET_INVALID, without an error, where a broker did not answer
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "a partition's leader did not answer"))  # noqa: SLF001
        return found


def _answer(asked: "Future[Any]", stream: str) -> Any:
    try:
        return asked.result()
    except KafkaException as error:
        if error.args[0].name() in ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC"):
            raise NoSuchTableError(f"there is no table {stream!r}: {_CREATE_HINT.format(name=stream)}") from None
        raise


class SharedAsking:
    """Lets callers at the same time share one answer, as long as it was asked for after each of them called.

    That is what makes a read that waits for the answer linearizable, as with the read index of Raft: while one question
    is under way, all who come wait for the next one.
    """

    def __init__(self, ask: Callable[[], Ends]) -> None:
        self._ask = ask
        self._changed = threading.Condition()
        self._asking = False
        self._begun = 0
        self._answered = 0
        self._answer: Ends | KafkaException | TableError | None = None

    def answer(self) -> Ends:
        """An answer that was asked for after this was called; raises what asking raised."""
        with self._changed:
            wanted = self._begun + 1
            while self._answered < wanted and self._asking:
                self._changed.wait()  # bounded: the one who asks has a time limit
            if self._answered >= wanted:
                return self._outcome()
            self._asking = True
            self._begun += 1
        try:
            answer = self._ask()
        except (KafkaException, TableError) as error:
            self._notify(error)
            raise
        except BaseException:  # an interrupt of this caller, or a bug: another caller may ask
            self._notify(None)
            raise
        self._notify(answer)
        return answer

    def _notify(self, answer: Ends | KafkaException | TableError | None) -> None:
        with self._changed:
            self._asking = False
            if answer is not None:
                self._answered, self._answer = self._begun, answer
            self._changed.notify_all()

    def _outcome(self) -> Ends:
        assert self._answer is not None
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer
