"""The control stream of dials: read up to its end whenever that has moved, and written to.

Knows the log and records. Must not know plans, or what holds when.
"""

from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from logboom.pipeline.dials.changes import Dials
from logboom.pipeline.edge.reading import read_ranges
from logboom.pipeline.edge.streams import LogUnreachableError, StreamAdmin
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.names import DIALS_STREAM

_CONFIGS: Final = {"cleanup.policy": "compact"}
_TIMEOUT_S: Final = 30.0
_TOLD_MAX: Final = 5
"""Faults that are told one by one: a stranger may write any number of them."""


class ControlStream:
    """The dials of one pipeline on one log."""

    def __init__(self, admin: StreamAdmin, pipeline: str, notify: Callable[[str], None]) -> None:
        self._admin = admin
        self._pipeline = pipeline
        self._notify = notify
        self._read_to = 0
        self.dials = Dials(pipeline)

    def exists(self) -> bool:
        """Whether any pipeline of this log has dials."""
        return DIALS_STREAM in self._admin.partitions()

    def ensure(self) -> None:
        """Makes the stream where it is missing."""
        self._admin.ensure({DIALS_STREAM: 1}, _CONFIGS)

    def refresh(self) -> Dials:
        """All that the stream says now. It must exist. LogUnreachableError where no broker answers."""
        end = self._admin.ends({DIALS_STREAM: 1})[DIALS_STREAM]["0"]
        if end < self._read_to:  # it was deleted and made anew
            self.dials, self._read_to = Dials(self._pipeline), 0
        told = 0
        for message in read_ranges(self._admin.bootstrap, {(DIALS_STREAM, 0): (self._read_to, end)}):
            key, value = message.key(), message.value()
            if isinstance(key, bytes):
                text = value if isinstance(value, bytes) else None
                problem = self.dials.take(key.decode(errors="replace"), text)
                told += problem is not None
                if problem is not None and told <= _TOLD_MAX:
                    self._notify(problem)
        if told > _TOLD_MAX:
            self._notify(f"{told - _TOLD_MAX:,} more records of the dials are none")
        self._read_to = max(self._read_to, end)
        return self.dials

    def write(self, records: Mapping[str, bytes | None]) -> None:
        """Writes records; returns when they are committed. PipelineError where one is refused."""
        failures: list[KafkaError] = []

        def on_delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        producer = Producer(
            {"bootstrap.servers": self._admin.bootstrap, "acks": "all", "message.timeout.ms": int(_TIMEOUT_S * 1_000)}
        )
        try:
            for key, value in records.items():
                producer.produce(DIALS_STREAM, key=key.encode(), value=value, partition=0, on_delivery=on_delivered)
        except KafkaException as error:
            raise PipelineError(f"the dial cannot be written: {error.args[0].str()}") from error
        if producer.flush(_TIMEOUT_S + 5):
            raise LogUnreachableError(f"no broker at {self._admin.bootstrap} took the dial within {_TIMEOUT_S:.0f} s")
        if failures:
            raise PipelineError(f"the dial cannot be written: {failures[0].str()}")
