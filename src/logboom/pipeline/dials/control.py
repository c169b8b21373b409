"""The control stream of dials: read up to its end whenever that has moved, and written to.

Knows the log and records. Must not know plans, or what holds when.
"""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from logboom.pipeline.dials.changes import Dials
from logboom.pipeline.dials.faults import Faults
from logboom.pipeline.edge.reading import read_ranges
from logboom.pipeline.edge.streams import LogUnreachableError, StreamAdmin
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.names import DIALS_STREAM

_CONFIGS: Final = {"cleanup.policy": "compact"}
_TIMEOUT_S: Final = 30.0
_CLOCK_EVERY: Final = 100
"""Records between two looks at the clock."""


class ControlStream:
    """The dials of one pipeline on one log. `names`: those that it has; changes of others are faults."""

    def __init__(
        self, admin: StreamAdmin, pipeline: str, names: Collection[str], notify: Callable[[str], None]
    ) -> None:
        self._admin = admin
        self._pipeline = pipeline
        self._names = names
        self._read_to = 0
        self._faults = Faults(notify, time.monotonic)
        self.dials = Dials(pipeline, names)

    def exists(self) -> bool:
        """Whether any pipeline of this log has dials."""
        return DIALS_STREAM in self._admin.partitions()

    def ensure(self) -> None:
        """Makes the stream where it is missing."""
        self._admin.ensure({DIALS_STREAM: 1}, _CONFIGS)

    def refresh(self, within_s: float | None = None) -> Dials:
        """All that the stream says now. It must exist. LogUnreachableError where no broker answers.

        `within_s`: the time for reading, in seconds; what is not read by then, is read by the next call, and is told.
        """
        end = self._admin.ends({DIALS_STREAM: 1})[DIALS_STREAM]["0"]
        if end < self._read_to:  # it was deleted and made anew
            self.dials, self._read_to = Dials(self._pipeline, self._names), 0
        until = None if within_s is None else time.monotonic() + within_s
        with closing(read_ranges(self._admin.bootstrap, {(DIALS_STREAM, 0): (self._read_to, end)})) as messages:
            for count, message in enumerate(messages, 1):
                self._take(message)
                self._read_to = int(message.offset() or 0) + 1
                if until is not None and count % _CLOCK_EVERY == 0 and time.monotonic() > until:
                    break
            else:
                self._read_to = max(self._read_to, end)
        self._faults.tell(end - self._read_to)
        return self.dials

    def _take(self, message: Message) -> None:
        key, value = message.key(), message.value()
        if isinstance(key, bytes):
            problem = self.dials.take(key.decode(errors="replace"), value if isinstance(value, bytes) else None)
            if problem is not None:
                self._faults.found(problem)

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
