"""The progress of a running pipeline, collected from batches, deliveries and Spark's progress events.

Knows counts and times. Must not know Spark's session or how they are shown.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from logboom.pipeline.checkpoint.ledger import EMPTY, BatchRecord, Ledger
from logboom.pipeline.plan.dials import DialValues, Value
from logboom.pipeline.sinks.base import Delivered

_RATE_WINDOW_S: Final = 10.0


class SinkProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of one delivery since the start."""

    rows: int = 0
    repeats: int = 0
    """Records that were skipped because they had been delivered before."""
    dead: int = 0
    failures: int = 0
    error: str | None = None
    """Error of the last attempt, until one succeeds."""
    lag: int | None = None
    """Records of its edges that are not delivered yet."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The complete progress at one moment. `now` counts since the start of this process, `total` since the first
    batch."""

    pipeline: str
    state: str
    batch: int
    batch_ms: int
    lag: int | None
    """Records of the sources that are not read yet."""
    events_per_s: float
    bytes_per_s: float
    missing: int
    """Records unaccounted for: always 0."""
    last: Ledger
    """Of the last batch alone."""
    now: Ledger
    total: Ledger
    sinks: dict[str, SinkProgress]
    dials: dict[str, Value] = {}
    """Values of all dials in the last batch, including unchanged ones."""
    restarts: int = 0
    """How often the run was restarted because Spark's JVM had ended."""


class RunProgress:
    """Written by the threads of all queries, read by the display and /metrics. Thread-safe."""

    def __init__(
        self,
        pipeline: str,
        *,
        dials: DialValues | None = None,
        restarts: int = 0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`dials`: their values in the file. `restarts`: as in `Snapshot`."""
        self._restarts = restarts
        self._dials = dict(dials or {})
        self._lock = threading.Lock()
        self._pipeline = pipeline
        self._clock = now
        self._state = "starting"
        self._last: BatchRecord | None = None
        self._now = EMPTY
        self._total = EMPTY
        self._lag: int | None = None
        self._recent: deque[tuple[float, int, int]] = deque()
        self._started = now()
        self._sinks: dict[str, SinkProgress] = {}
        """Also of sinks that a reload has removed: another one may add them again."""
        self._shown: set[str] = set()
        """The sinks of the plan that runs."""

    def state(self, name: str) -> None:
        """starting, waiting, running, delivering (with `--once`, after everything was read), stopping, stopped,
        failed."""
        with self._lock:
            self._state = name

    def edited(self, dials: DialValues) -> None:
        """Switch to another plan: to the file values of its dials, and to its sinks, which are added later. Sinks of
        both plans keep what they have delivered."""
        with self._lock:
            self._dials = dict(dials)
            self._shown = set()

    def sink(self, name: str) -> None:
        """Add a delivery. It continues with the counts that a sink of this name had in this process."""
        with self._lock:
            before = self._sinks.get(name, SinkProgress())
            self._sinks[name] = msgspec.structs.replace(before, error=None, lag=None)
            self._shown.add(name)

    def resume(self, last: BatchRecord | None) -> None:
        """Totals of earlier runs with this checkpoint; None if there are none."""
        with self._lock:
            self._total = EMPTY if last is None else last.total

    def batch(self, entry: BatchRecord) -> None:
        """A batch of the router is done and its ledger is on disk."""
        with self._lock:
            self._last = entry
            self._now = self._now.plus(entry.ledger)
            self._total = entry.total
            self._recent.append((self._clock(), sum(entry.ledger.records_in.values()), entry.ledger.bytes_in))

    def delivered(self, done: Delivered) -> None:
        """A delivery has finished a batch, or an attempt has failed."""
        with self._lock:
            before = self._sinks.get(done.sink, SinkProgress())
            self._shown.add(done.sink)
            self._sinks[done.sink] = msgspec.structs.replace(
                before,
                rows=before.rows + done.rows,
                repeats=before.repeats + done.repeats,
                dead=before.dead + done.dead,
                failures=before.failures + (done.failures > 0),
                error=done.error,
            )

    def lag(self, sink: str | None, records: int) -> None:
        """The lag of a query (None: the router) behind the end of its input."""
        with self._lock:
            if sink is None:
                self._lag = records
            elif sink in self._sinks:
                self._sinks[sink] = msgspec.structs.replace(self._sinks[sink], lag=records)

    def snapshot(self) -> Snapshot:
        """The current progress."""
        with self._lock:
            now = self._clock()
            while self._recent and self._recent[0][0] < now - _RATE_WINDOW_S:
                self._recent.popleft()
            window_s = max(1.0, min(_RATE_WINDOW_S, now - self._started))
            return Snapshot(
                pipeline=self._pipeline,
                state=self._state,
                batch=-1 if self._last is None else self._last.batch,
                batch_ms=0 if self._last is None else self._last.duration_ms,
                lag=self._lag,
                events_per_s=round(sum(count for _, count, _ in self._recent) / window_s, 1),
                bytes_per_s=round(sum(size for _, _, size in self._recent) / window_s, 1),
                missing=self._total.missing,
                last=EMPTY if self._last is None else self._last.ledger,
                now=self._now,
                total=self._total,
                sinks={name: sink for name, sink in self._sinks.items() if name in self._shown},
                dials=_standing(self._dials, self._last),
                restarts=self._restarts,
            )


def _standing(dials: DialValues, last: BatchRecord | None) -> dict[str, Value]:
    """Current values of all dials; the last batch may have had others."""
    turned = {} if last is None else last.dials
    return {name: turned.get(name, value) for name, value in dials.items()}
