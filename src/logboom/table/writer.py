"""Sending one record and waiting for its fate.

Two producers, each made when it is first needed. Records with a condition go through one that is not idempotent: a
condition holds once only, so that sending it twice stores it once, and after a refusal, which is ordinary here, an
idempotent producer would have to begin a new epoch. Records without a condition go through an idempotent one. Each
sends one record in a batch, because a batch is taken or refused as a whole.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from logboom.base.units import SECOND_MS
from logboom.table.errors import NoSuchTableError, WriteRefusedError
from logboom.table.own_writes import EXPECTED_OFFSET_HEADER, WRITE_ID_HEADER

READ_TO_HEADER: Final = "logboom-read-to"
STREAM_ID_HEADER: Final = "logboom-stream-id"

_POLL_S: Final = 0.1
_OUTCOME_UNKNOWN: Final = frozenset(
    (
        "_MSG_TIMED_OUT",
        "_TIMED_OUT",
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_PURGE_INFLIGHT",
        "_DESTROY",
        "_FATAL",
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    )
)
_NO_STREAM: Final = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_ID")


@dataclass(frozen=True, slots=True)
class Condition:
    """What has to be true when the record is appended (see docs/tables.md)."""

    expected: int
    """The offset of the latest record of the key, -1 where it has no value."""
    read_to: int
    """That was so when the partition was read up to here."""
    topic_id: str

    def headers(self) -> list[tuple[str, bytes]]:
        """As the broker reads it."""
        return [
            (EXPECTED_OFFSET_HEADER, b"%d" % self.expected),
            (READ_TO_HEADER, b"%d" % self.read_to),
            (STREAM_ID_HEADER, self.topic_id.encode()),
        ]


@dataclass(frozen=True, slots=True)
class Stored:
    """The record is in the stream."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ConditionFailed:
    """The broker refused the record, for its condition or because something about it is wrong."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer came in time."""


Fate = Stored | ConditionFailed | Unknown


def producer_options(options: Mapping[str, Any], timeout_s: float, *, idempotent: bool) -> dict[str, Any]:
    """librdkafka's configuration of a producer: the user's, with what is relied on here over that."""
    return {
        "message.max.bytes": 1_000_000_000,  # the broker decides
        "retry.backoff.ms": 20,
        "enable.sparse.connections": False,  # connect at once: the first record waits half as long for its producer id
        **options,
        "linger.ms": 0,
        "batch.num.messages": 1,
        "acks": "all",
        "enable.idempotence": idempotent,
        "message.timeout.ms": max(1, int(timeout_s * SECOND_MS)),
    }


class Writer:
    """See the module. Thread-safe."""

    def __init__(self, options: Mapping[str, Any], stream: str, timeout_s: float) -> None:
        self._options, self._stream, self._timeout_s = options, stream, timeout_s
        self._lock = threading.Lock()
        self._producers: dict[bool, _PolledProducer] = {}

    def send(
        self,
        partition: int,
        key: bytes,
        value: bytes | None,
        write_id: bytes,
        condition: Condition | None,
        timeout_s: float,
    ) -> Fate:
        """Send a record and wait for its fate. WriteRefusedError where it is refused for another reason."""
        producer = self._producer(idempotent=condition is None)
        headers = [(WRITE_ID_HEADER, write_id), *(condition.headers() if condition else ())]
        try:
            sent = producer.send(self._stream, partition, key, value, headers)
            return sent.result(max(timeout_s, 0))
        except TimeoutError:
            return Unknown()
        except BufferError:
            raise WriteRefusedError("too many writes wait for the broker already: wait for some of them") from None
        except KafkaException as error:
            return self._fate(error.args[0], condition is not None)

    def _fate(self, error: KafkaError, conditional: bool) -> Fate:
        name = error.name()
        if error.fatal():
            with self._lock:  # it will never send anything again
                if (producer := self._producers.pop(not conditional, None)) is not None:
                    producer.close()
        if conditional and name == "INVALID_RECORD":
            return ConditionFailed()
        if error.fatal() or name in _OUTCOME_UNKNOWN:
            return Unknown()
        if name in _NO_STREAM:
            raise NoSuchTableError(f"there is no table {self._stream!r} any more: `logboom tables create` makes it")
        raise WriteRefusedError(f"the broker refused the write: {error.str()} ({name})")

    def _producer(self, *, idempotent: bool) -> "_PolledProducer":
        with self._lock:
            found = self._producers.get(idempotent)
            if found is None:
                options = producer_options(self._options, self._timeout_s, idempotent=idempotent)
                found = self._producers[idempotent] = _PolledProducer(options)
            return found

    def close(self) -> None:
        """Give up what is under way; whoever waits for it gets UnknownOutcomeError."""
        with self._lock:
            for producer in self._producers.values():
                producer.close()
            self._producers.clear()


class _PolledProducer:
    """A producer and the thread that takes its answers."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._producer = Producer(dict(options))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="table-writer", daemon=True)
        self._thread.start()

    def send(
        self,
        stream: str,
        partition: int,
        key: bytes,
        value: bytes | None,
        headers: list[tuple[str, str | bytes | None]],
    ) -> "Future[Stored]":
        sent: Future[Stored] = Future()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                sent.set_exception(KafkaException(error))
            else:
                sent.set_result(Stored(message.offset() or 0, message.timestamp()[1]))

        self._producer.produce(
            stream, value=value, key=key, partition=partition, headers=headers, on_delivery=delivered
        )
        return sent

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(_POLL_S)
        self._producer.purge()
        self._producer.poll(0)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
