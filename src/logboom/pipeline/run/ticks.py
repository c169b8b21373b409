"""Batches without records, so that windows end while nothing comes: a record in a stream of our own starts one.

Spark runs a batch only where a source has something new. While a transform remembers what leaves it by time alone, and
no batch has ended for a while, one record is written to the ticks' stream, which the router reads as one more source
and whose records it leaves out. The time of the batch is pinned like any other's. Knows the log and memories.
"""

import contextlib
import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaException, Producer

from logboom.pipeline.edge.streams import OWN_CONFIGS, StreamAdmin
from logboom.pipeline.plan import names
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.plan.stateful import StatefulTransform
from logboom.pipeline.state.memory import Memory

TICK_SOURCE: Final = "-ticks"
"""No source of a file has such a name."""
_IDLE_S: Final = 5.0
_CONFIGS: Final[Mapping[str, str]] = OWN_CONFIGS | {"retention.ms": "86400000"}


class Ticks:
    """The ticks of one pipeline. Called from two threads, which share plain values."""

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
        """Whether the pipeline has a transform that needs them."""
        return bool(self._leaving)

    def prepare(self) -> None:
        """Makes their stream, where they are needed."""
        if self.needed:
            self._admin.ensure({self.stream: 1}, _CONFIGS)

    def batch_done(self, memory: Memory) -> None:
        """Called behind each batch, and once before the first, with what is remembered."""
        found = (found for name, found in memory.transforms.items() if name in self._leaving)
        self._waiting = any(transform.remembered or transform.held for transform in found)
        self._last = time.monotonic()

    def tick(self) -> None:
        """Starts a batch where one is due; returns at once. One that the log does not take is tried again later."""
        if not self._waiting or time.monotonic() - self._last < _IDLE_S:
            return
        self._last = time.monotonic()
        if self._producer is None:
            self._producer = Producer(
                {"bootstrap.servers": self._admin.bootstrap, "message.timeout.ms": 5_000, "log_level": 0}
            )
        with contextlib.suppress(KafkaException, BufferError):
            self._producer.produce(self.stream, b"", partition=0)
        self._producer.poll(0)
