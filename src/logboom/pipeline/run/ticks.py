"""Batches without source records, so that windows end even when no records arrive: a record in an internal stream
starts one.

Spark runs a batch only if a source has new records. While a transform has state that is only emitted by time, and no
batch has ended for a while, one record is written to the tick stream, which the router reads as another source and
whose records it ignores. The time of such a batch is pinned like any other. Knows the log and states.
"""

import contextlib
import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from logboom.pipeline.edge.streams import OWN_CONFIGS, LogUnreachableError, StreamAdmin
from logboom.pipeline.plan import names
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.plan.stateful import StatefulTransform
from logboom.pipeline.state.memory import Memory

TICK_SOURCE: Final = "-ticks"
"""No source of a file has this name."""
_IDLE_S: Final = 5.0
_TRY_MS: Final = 5_000
_WAIT_MS: Final = 30_000
_CONFIGS: Final[Mapping[str, str]] = OWN_CONFIGS | {"retention.ms": "86400000"}


class Ticks:
    """The ticks of one pipeline. Called from two threads, which share only simple values."""

    def __init__(self, plan: Plan, admin: StreamAdmin) -> None:
        self.stream = names.tick_stream(plan.name)
        self._admin = admin
        self._leaving = {
            node.name for node in plan.transforms if isinstance(node, StatefulTransform) and node.leaves_by_time
        }
        self._waiting = False
        self._last = time.monotonic()
        self._producer: Producer | None = None

    @property
    def needed(self) -> bool:
        """Whether the pipeline has a transform that needs ticks."""
        return bool(self._leaving)

    def prepare(self) -> None:
        """Create the tick stream, if needed."""
        if self.needed:
            self._admin.ensure({self.stream: 1}, _CONFIGS)

    def batch_done(self, memory: Memory) -> None:
        """Called after each batch, and once before the first, with the number of remembered items."""
        found = (found for name, found in memory.transforms.items() if name in self._leaving)
        self._waiting = any(transform.remembered or transform.held for transform in found)
        self._last = time.monotonic()

    def tick(self) -> None:
        """Start a batch if one is due; returns at once. If the log does not accept the record, it is retried later."""
        if not self._waiting or time.monotonic() - self._last < _IDLE_S:
            return
        self._last = time.monotonic()
        if self._producer is None:
            self._producer = self._made(_TRY_MS)
        with contextlib.suppress(KafkaException, BufferError):
            self._producer.produce(self.stream, b"", partition=0)
        self._producer.poll(0)

    def tick_now(self) -> bool:
        """Makes sure that a query that starts now has a batch, if a transform waits for time to pass; whether one does.
        LogUnreachableError if the log does not accept the record."""
        if not self._waiting:
            return False
        failures: list[KafkaError] = []
        producer = self._made(_WAIT_MS)
        producer.produce(
            self.stream,
            b"",
            partition=0,
            on_delivery=lambda error, _: None if error is None else failures.append(error),
        )
        if producer.flush(2 * _WAIT_MS / 1_000) or failures:
            why = failures[0].str() if failures else f"no answer within {2 * _WAIT_MS / 1_000:.0f} s"
            raise LogUnreachableError(f"{self.stream} at {self._admin.bootstrap} does not accept a record: {why}")
        return True

    def _made(self, timeout_ms: int) -> Producer:
        settings = {"bootstrap.servers": self._admin.bootstrap, "message.timeout.ms": timeout_ms, "log_level": 0}
        return Producer(settings)
