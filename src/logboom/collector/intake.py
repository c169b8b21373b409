"""The thread that takes lines from inputs that cannot be read again into their disk buffers.

A turn reads everything that is ready, then makes it durable with one sync per buffer; while one sync runs, writers fill
the kernel's own buffers for the next. When a buffer is full its sources are left alone (`block`), or read and dropped
(`drop_newest`). It knows sources and buffers; where lines go from there is the agent's business.
"""

import os
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Thread
from typing import Final

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import RetriableStorageError, StorageError
from logboom.collector.batch import Lines
from logboom.collector.buffer import DiskBuffer
from logboom.collector.config import (
    BufferedInputConfig,
    StdinInputConfig,
    UnixDatagramInputConfig,
    UnixStreamInputConfig,
    WhenFull,
)
from logboom.collector.sources import ByteSource, DatagramSource, Source, listen, remove_socket

_TICK_S: Final = 0.2
_LAST_TURNS: Final = 16
_SAY_EVERY_S: Final = 30.0


@dataclass(slots=True, eq=False)
class Inlet:
    """One buffered input: its buffer, its sources, and whether they are being read."""

    name: str
    config: BufferedInputConfig
    buffer: DiskBuffer
    listener: socket.socket | None = None
    sources: set[Source] = field(default_factory=set)
    reading: bool = True
    lines: int = 0
    bytes: int = 0
    dropped: int = 0
    cut: int = 0
    errors: int = 0
    failed: str | None = None

    @property
    def takes_connections(self) -> bool:
        """Whether one more connection may come."""
        return isinstance(self.config, UnixStreamInputConfig) and len(self.sources) < self.config.max_connections

    @property
    def ended(self) -> bool:
        """Whether it can never give a line again."""
        return isinstance(self.config, StdinInputConfig) and not self.sources and not self.buffer.has_staged

    def close_buffer(self, log: FilteringBoundLogger) -> None:
        """Leave the buffer so that the next start has nothing to do."""
        try:
            self.buffer.close()
        except StorageError as error:
            log.error("buffer_failed", input=self.name, reason=str(error))


class Intake:
    """Owner of the inlets. Life: `start`, then `stop`, which takes what is there and closes all."""

    def __init__(self, inlets: list[Inlet], stdin: int, log: FilteringBoundLogger, wall_ms: Callable[[], int]) -> None:
        self._inlets = inlets
        self._stdin = stdin
        self._log = log
        self._wall_ms = wall_ms
        self._selector = selectors.PollSelector()  # unlike epoll, it takes a regular file as the standard input
        self._wake, self._woken = os.pipe()
        self._stopping = False
        self._said: dict[str, float] = {}
        self._thread = Thread(target=self._run, name="intake", daemon=True)

    # --- the agent's side ---

    def open(self) -> None:
        """Make the sockets. SocketError where one cannot be made."""
        self._selector.register(self._wake, selectors.EVENT_READ)
        for inlet in self._inlets:
            if isinstance(inlet.config, StdinInputConfig):
                self._add(inlet, ByteSource(self._stdin, inlet.config, None))
                continue
            listener = listen(inlet.config)
            if isinstance(inlet.config, UnixDatagramInputConfig):
                self._add(inlet, DatagramSource(listener, inlet.config.max_line_bytes))
            else:
                inlet.listener = listener
                self._selector.register(listener, selectors.EVENT_READ, (inlet, None))

    def start(self) -> None:
        """Begin to read, if there is anything to read."""
        if self._inlets:
            self._thread.start()

    def stop(self) -> None:
        """Take what has arrived into the buffers and close every source. Idempotent."""
        if self._stopping:
            return
        self._stopping = True
        if self._thread.is_alive():
            os.write(self._woken, b"x")
            self._thread.join()
        # Closed here and not by the thread: it may end before the write above, whose number could then be another's.
        os.close(self._wake)
        os.close(self._woken)
        for inlet in self._inlets:
            remove_socket(inlet.config)

    @property
    def ended(self) -> bool:
        """Whether no input can ever give a line again."""
        return all(inlet.ended for inlet in self._inlets)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    # --- the thread ---

    def _run(self) -> None:
        while not self._stopping:
            self._turn(_TICK_S)
        for _ in range(_LAST_TURNS):
            if not self._turn(0.0):
                break
        for inlet in self._inlets:
            for source in list(inlet.sources):
                self._end(inlet, source)
            self._commit(inlet)
            self._drop(inlet, inlet.buffer.drop())
            if inlet.listener is not None:
                inlet.listener.close()
        self._selector.close()

    def _turn(self, timeout_s: float) -> bool:
        """Whether anything was ready."""
        ready = [key.data for key, _ in self._selector.select(timeout_s) if key.data is not None]
        now_ms = time.monotonic_ns() // 1_000_000
        for inlet, source in ready:
            if source is None:
                self._accept(inlet)
            elif source in inlet.sources:
                self._read(inlet, source, now_ms)
        for inlet in self._inlets:
            for source in inlet.sources:
                self._take(inlet, source.idle(now_ms))
            self._commit(inlet)
            self._watch(inlet)
        return bool(ready)

    def _read(self, inlet: Inlet, source: Source, now_ms: int) -> None:
        self._take(inlet, source.read(now_ms))
        if isinstance(source, DatagramSource):
            inlet.cut = source.cut
        if source.finished:
            self._end(inlet, source)

    def _take(self, inlet: Inlet, lines: Lines | None) -> None:
        if lines is None or not lines.values:
            return
        if inlet.failed or (inlet.buffer.is_full and inlet.buffer.when_full is WhenFull.DROP_NEWEST):
            self._drop(inlet, len(lines.values))
            return
        inlet.lines += len(lines.values)
        inlet.bytes += lines.size_bytes
        inlet.buffer.stage(lines, self._wall_ms())

    def _commit(self, inlet: Inlet) -> None:
        try:
            inlet.buffer.give_back()
            if inlet.buffer.has_staged:
                inlet.buffer.commit()
        except RetriableStorageError as error:
            inlet.errors += 1
            self._say("buffer_disk_full", inlet, reason=str(error))
            if inlet.buffer.when_full is WhenFull.DROP_NEWEST:
                self._drop(inlet, inlet.buffer.drop())
        except StorageError as error:
            self._fail(inlet, error)

    def _fail(self, inlet: Inlet, error: StorageError) -> None:
        """The disk failed under a buffer: what it has is still sent, nothing more is read."""
        inlet.errors += 1
        inlet.failed = str(error)
        self._log.error("buffer_failed", input=inlet.name, reason=inlet.failed)

    def _drop(self, inlet: Inlet, lines: int) -> None:
        if not lines:
            return
        inlet.dropped += lines
        self._say("lines_dropped", inlet, dropped_in_all=inlet.dropped)

    # --- sources ---

    def _watch(self, inlet: Inlet) -> None:
        """Read an inlet's sources or leave them alone, as its buffer has room."""
        blocked = inlet.buffer.has_staged or (inlet.buffer.is_full and inlet.buffer.when_full is WhenFull.BLOCK)
        reading = not blocked and inlet.failed is None
        if reading != inlet.reading:
            inlet.reading = reading
            if not reading:
                self._say("buffer_full", inlet, bytes=inlet.buffer.fill_bytes)
            for source in inlet.sources:
                self._register(inlet, source, reading)
        if inlet.listener is not None:
            self._listen(inlet, reading and inlet.takes_connections)

    def _listen(self, inlet: Inlet, wanted: bool) -> None:
        assert inlet.listener is not None
        if wanted != (inlet.listener in self._selector.get_map()):
            if wanted:
                self._selector.register(inlet.listener, selectors.EVENT_READ, (inlet, None))
            else:
                self._selector.unregister(inlet.listener)

    def _accept(self, inlet: Inlet) -> None:
        assert inlet.listener is not None
        assert isinstance(inlet.config, UnixStreamInputConfig)
        while inlet.takes_connections:
            try:
                connection, _ = inlet.listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors left: those that are there go on, the newcomer waits
                inlet.errors += 1
                self._say("accept_failed", inlet, reason=error.strerror)
                return
            connection.setblocking(False)
            self._add(inlet, ByteSource(connection.fileno(), inlet.config, connection))

    def _add(self, inlet: Inlet, source: Source) -> None:
        inlet.sources.add(source)
        self._register(inlet, source, True)

    def _register(self, inlet: Inlet, source: Source, wanted: bool) -> None:
        if wanted:
            self._selector.register(source.fileno(), selectors.EVENT_READ, (inlet, source))
        else:
            self._selector.unregister(source.fileno())

    def _end(self, inlet: Inlet, source: Source) -> None:
        if inlet.reading:
            self._register(inlet, source, False)
        if isinstance(source, ByteSource) and source.broken is not None:
            inlet.errors += 1
            self._say("connection_broken", inlet, reason=source.broken)
        inlet.sources.discard(source)
        self._take(inlet, source.close(time.monotonic_ns() // 1_000_000))

    def _say(self, event: str, inlet: Inlet, **fields: object) -> None:
        """One line per kind of trouble, input and half minute."""
        now_s = time.monotonic()
        if now_s - self._said.get(event + inlet.name, -_SAY_EVERY_S) >= _SAY_EVERY_S:
            self._said[event + inlet.name] = now_s
            self._log.warning(event, input=inlet.name, **fields)
