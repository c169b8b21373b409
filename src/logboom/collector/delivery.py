"""Sends lines through a client and reports which are acknowledged. Retries for ever and keeps the order of each source.

The client is an idempotent producer without gaps: after a batch that failed it sends no later one. After a fatal error
a new client is made, and everything that was not acknowledged is sent again, from memory, in order. A record that the
broker rejects for its content (too large, invalid) is found by halving what is sent, counted, and skipped.

One thread calls all of this. Nothing waits but `poll`.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError
from structlog.typing import FilteringBoundLogger

from logboom.collector.batch import Lines
from logboom.collector.pending_send import DeliveryError, OrderedSource, PendingSend

MAX_RECORDS_IN_FLIGHT: Final = 100_000
_SAY_EVERY_S: Final = 30.0
_FIRST_RETRY_S: Final = 0.5
_LAST_RETRY_S: Final = 30.0
_PURGE_S: Final = 5.0

# The library spells its local errors with an underscore.
_FATAL: Final = KafkaError._FATAL  # noqa: SLF001
_TRANSPORT: Final = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)  # noqa: SLF001

REFUSED: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
    }
)
"""Errors about the content of a record; sending it again would not help."""


@dataclass(slots=True)
class DeliveryCounters:
    """Statistics of the delivery."""

    records: int = 0
    bytes: int = 0
    refused: int = 0
    retries: int = 0
    producers: int = 0


class _State(Enum):
    """What a stream does: send as lines come, rest after an error, or search a source for a refused record."""

    FLOWING = auto()
    RESTING = auto()
    SEARCHING = auto()


@dataclass(slots=True, eq=False)
class _Stream:
    """A stream and the sources that have something outstanding in it."""

    sources: dict[OrderedSource, None] = field(default_factory=dict)
    suspects: dict[OrderedSource, None] = field(default_factory=dict)
    state: _State = _State.FLOWING
    retry_at_s: float = 0.0
    wait_s: float = _FIRST_RETRY_S

    def rest(self, wait_s: float) -> None:
        """Send nothing for a while."""
        self.state, self.retry_at_s = _State.RESTING, time.monotonic() + wait_s

    @property
    def pending(self) -> bool:
        """Whether any of its records are in flight."""
        return any(pending_send.pending for source in self.sources for pending_send in source.outstanding)


class Client(Protocol):
    """An idempotent producer without gaps. It reports to each pending send, in order, the outcome of its records.

    A fatal error goes to `on_error`; nothing is of use after it but `purge`.
    """

    def produce(self, pending_send: PendingSend, count: int) -> None:
        """Send `count` records of it, from the first unacknowledged one on; `stopped_by` is why less are `pending`."""

    def is_stuck(self, stream: str) -> bool:
        """Whether a stream's records are sent again and again."""

    def poll(self, timeout_s: float) -> None:
        """Take what came back, waiting up to `timeout_s` for it."""

    def flush(self, timeout_s: float) -> None:
        """Send what lingers and wait for answers, no longer than this."""

    def purge(self) -> None:
        """Give up everything that is not acknowledged; each pending send hears of it, here or in `poll`."""

    def close(self) -> None:
        """Release everything it holds."""


OnError = Callable[[KafkaError], None]


class Delivery:
    """Delivers lines. Life: made, `send` and `poll` again and again, `close`."""

    def __init__(
        self, make_client: Callable[[OnError], Client], max_in_flight_bytes: int, log: FilteringBoundLogger
    ) -> None:
        self._make = make_client
        self._max_in_flight_bytes = max_in_flight_bytes
        self._log = log
        self._streams: dict[str, _Stream] = {}
        self._settled: deque[PendingSend] = deque()
        self._fatal: DeliveryError | None = None
        self._said: dict[str, float] = {}
        self.in_flight_bytes = 0
        self.in_flight_records = 0
        self.waiting = False
        self.counters = DeliveryCounters()
        self._client = self._make_client()

    # --- what the agent asks ---

    @property
    def has_room(self) -> bool:
        """Whether more may be sent; if not, reading waits."""
        return self.in_flight_bytes < self._max_in_flight_bytes and self.in_flight_records < MAX_RECORDS_IN_FLIGHT

    @property
    def is_empty(self) -> bool:
        """Whether everything that was sent is safe."""
        return not any(stream.sources for stream in self._streams.values())

    def is_blocked(self, stream: str) -> bool:
        """Whether a stream takes nothing for now."""
        known = self._streams.get(stream)
        return known is not None and (known.state is not _State.FLOWING or self._client.is_stuck(stream))

    def send(
        self, source: OrderedSource, lines: Lines, time_ms: int, done: Callable[[], None], *, content_id: str = ""
    ) -> None:
        """Send lines behind all that the source sent before; `done` is called, in order, once they are safe."""
        pending_send = PendingSend(source, lines, time_ms, lines.size_bytes, done, self._settled, content_id)
        stream = self._streams.setdefault(source.stream, _Stream())
        source.outstanding.append(pending_send)
        stream.sources[source] = None
        self.in_flight_bytes += pending_send.size_bytes
        self.in_flight_records += pending_send.count
        if stream.state is _State.FLOWING:
            self._produce(pending_send, pending_send.count)

    def poll(self, timeout_s: float) -> None:
        """Take what came back, waiting up to `timeout_s` for it; send again what is due."""
        self._client.poll(timeout_s)
        if self._fatal is not None:
            self._renew()
        self._settle()
        now_s = time.monotonic()
        for stream in self._streams.values():
            if stream.state is _State.RESTING and now_s >= stream.retry_at_s and not stream.pending:
                self._send_again(stream)

    def flush_now(self) -> None:
        """Send what lingers, without waiting for the answers."""
        self._client.flush(0)

    def close(self, *, drop: bool) -> None:
        """Let the producer go; with `drop`, also what it still holds."""
        if drop:
            self._client.purge()
        self._client.flush(1.0)
        self._client.close()

    # --- sending ---

    def _make_client(self) -> Client:
        self.counters.producers += 1
        return self._make(self._on_error)

    def _produce(self, pending_send: PendingSend, count: int) -> None:
        """Hand `count` records, from the first unacknowledged one on, to the client."""
        pending_send.error = pending_send.stopped_by = None
        self._client.produce(pending_send, count)
        pending_send.sent = pending_send.pending
        if not pending_send.pending:
            self._settled.append(pending_send)

    def _settle(self) -> None:
        while self._settled:
            pending_send = self._settled.popleft()
            if pending_send.pending:
                continue
            source = pending_send.source
            stream = self._streams[source.stream]
            error = pending_send.error or pending_send.stopped_by
            if error is not None:
                self._failed(pending_send, error, stream)
            else:
                self._went_through(source, stream)
            self._hand_back(source, stream)
            if stream.state is _State.SEARCHING:
                self._search_on(source, stream)

    def _hand_back(self, source: OrderedSource, stream: _Stream) -> None:
        """Notify the source of every pending send that is safe, in order."""
        while source.outstanding and source.outstanding[0].complete:
            pending_send = source.outstanding.popleft()
            self.in_flight_bytes -= pending_send.size_bytes
            self.in_flight_records -= pending_send.count
            self.counters.records += pending_send.count
            self.counters.bytes += pending_send.size_bytes
            pending_send.done()
        if not source.outstanding:
            stream.sources.pop(source, None)

    def _went_through(self, source: OrderedSource, stream: _Stream) -> None:
        stream.wait_s = _FIRST_RETRY_S
        if source.window is not None:
            source.window *= 2
        if self.waiting:
            self.waiting = False
            self._said.clear()
            self._log.info("output_recovered", in_flight_records=self.in_flight_records)

    # --- failing and trying again ---

    def _failed(self, pending_send: PendingSend, error: DeliveryError, stream: _Stream) -> None:
        source = pending_send.source
        if error.code() in REFUSED:
            stream.suspects[source] = None
            if stream.state is _State.SEARCHING and pending_send.sent <= 1:
                self._leave_out(pending_send, error.str())
            else:
                source.window = max(1, pending_send.sent // 2)
            wait_s = 0.0
        else:
            self._say("output_refuses", stream=source.stream, reason=error.str())
            wait_s = stream.wait_s
        if stream.state is not _State.RESTING:
            stream.rest(wait_s)
            stream.wait_s = min(2 * stream.wait_s, _LAST_RETRY_S)

    def _leave_out(self, pending_send: PendingSend, reason: str) -> None:
        """The one record that was sent alone is refused for what it is."""
        index = pending_send.acked
        self.counters.refused += 1
        self._log.error(
            "record_refused",
            stream=pending_send.source.stream,
            path=pending_send.source.path,
            position=pending_send.lines.starts[index],
            size_bytes=len(pending_send.lines.values[index]),
            reason=reason,
        )
        pending_send.acked += 1

    def _send_again(self, stream: _Stream) -> None:
        """Send all of a stream that was not acknowledged, in order. Suspected sources go alone and before others, so
        that no record is taken for the refused one of another source."""
        self.counters.retries += 1
        suspect = next(iter(stream.suspects), None)
        if suspect is not None:
            stream.state = _State.SEARCHING
            self._search_on(suspect, stream)
            return
        stream.state = _State.FLOWING
        for source in list(stream.sources):
            for pending_send in source.outstanding:
                if not pending_send.complete:
                    self._produce(pending_send, pending_send.count)

    def _search_on(self, source: OrderedSource, stream: _Stream) -> None:
        """Send more and more at a time of a suspected source, until an error says less, or all of it is through."""
        if not source.outstanding:
            source.window = None
            stream.suspects.pop(source, None)
            stream.rest(0.0)
            return
        assert source.window is not None
        self._produce(source.outstanding[0], source.window)

    # --- the producer itself ---

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == _FATAL:
            self._fatal = error
        elif not error.retriable() and error.code() not in _TRANSPORT:
            self._say("output_error", reason=error.str())
        else:
            self._say("output_waiting", reason=error.str(), in_flight_records=self.in_flight_records)

    def _renew(self) -> None:
        """The producer came to its end. What it still held is of unknown fate and will be sent again."""
        assert self._fatal is not None
        self._say("producer_renewed", reason=self._fatal.str())
        old = self._client
        old.purge()
        deadline_s = time.monotonic() + _PURGE_S
        while self._anything_pending() and time.monotonic() < deadline_s:
            old.poll(0.05)
        for stream in self._streams.values():
            for source in stream.sources:
                for pending_send in source.outstanding:
                    self._give_up(pending_send, self._fatal)
        old.close()
        self._fatal = None
        self._client = self._make_client()

    def _anything_pending(self) -> bool:
        return any(stream.pending for stream in self._streams.values())

    def _give_up(self, pending_send: PendingSend, reason: DeliveryError) -> None:
        if pending_send.pending:
            pending_send.pending = 0
            pending_send.error = pending_send.error or reason
            self._settled.append(pending_send)

    def _say(self, event: str, **fields: Any) -> None:
        """Log at most one line for each kind of problem in half a minute."""
        self.waiting = True
        now_s = time.monotonic()
        if now_s - self._said.get(event, -_SAY_EVERY_S) >= _SAY_EVERY_S:
            self._said[event] = now_s
            self._log.warning(event, **fields)
