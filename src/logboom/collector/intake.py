"""The thread that takes lines from inputs that cannot be read again into their disk buffers.

A turn reads everything that is ready, then makes it durable with one sync per buffer; while one sync runs, writers fill
the kernel's own buffers for the next. When a buffer is full its sources are not read (`block`), or read and their lines
dropped (`drop_newest`). Knows sources and buffers, not where lines go from there.
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
class BufferedInput:
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
    """Owner of the buffered inputs. Life: `start`, then `stop`, which takes what is there and closes all."""

    def __init__(
        self, buffered_inputs: list[BufferedInput], stdin: int, log: FilteringBoundLogger, wall_ms: Callable[[], int]
    ) -> None:
        self._buffered_inputs = buffered_inputs
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
        """Make the sockets. SocketError if one cannot be made."""
        self._selector.register(self._wake, selectors.EVENT_READ)
        for buffered_input in self._buffered_inputs:
            if isinstance(buffered_input.config, StdinInputConfig):
                self._add(buffered_input, ByteSource(self._stdin, buffered_input.config, None))
                continue
            listener = listen(buffered_input.config)
            if isinstance(buffered_input.config, UnixDatagramInputConfig):
                self._add(buffered_input, DatagramSource(listener, buffered_input.config.max_line_bytes))
            else:
                buffered_input.listener = listener
                self._selector.register(listener, selectors.EVENT_READ, (buffered_input, None))

    def start(self) -> None:
        """Begin to read, if there is anything to read."""
        if self._buffered_inputs:
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
        for buffered_input in self._buffered_inputs:
            remove_socket(buffered_input.config)

    @property
    def ended(self) -> bool:
        """Whether no input can ever give a line again."""
        return all(buffered_input.ended for buffered_input in self._buffered_inputs)

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
        for buffered_input in self._buffered_inputs:
            for source in list(buffered_input.sources):
                self._end(buffered_input, source)
            self._commit(buffered_input)
            self._drop(buffered_input, buffered_input.buffer.drop())
            if buffered_input.listener is not None:
                buffered_input.listener.close()
        self._selector.close()

    def _turn(self, timeout_s: float) -> bool:
        """One turn; returns whether anything was ready."""
        ready = [key.data for key, _ in self._selector.select(timeout_s) if key.data is not None]
        now_ms = time.monotonic_ns() // 1_000_000
        for buffered_input, source in ready:
            if source is None:
                self._accept(buffered_input)
            elif source in buffered_input.sources:
                self._read(buffered_input, source, now_ms)
        for buffered_input in self._buffered_inputs:
            for source in buffered_input.sources:
                self._take(buffered_input, source.idle(now_ms))
            self._commit(buffered_input)
            self._watch(buffered_input)
        return bool(ready)

    def _read(self, buffered_input: BufferedInput, source: Source, now_ms: int) -> None:
        self._take(buffered_input, source.read(now_ms))
        if isinstance(source, DatagramSource):
            buffered_input.cut = source.cut
        if source.finished:
            self._end(buffered_input, source)

    def _take(self, buffered_input: BufferedInput, lines: Lines | None) -> None:
        if lines is None or not lines.values:
            return
        if buffered_input.failed or (
            buffered_input.buffer.is_full and buffered_input.buffer.when_full is WhenFull.DROP_NEWEST
        ):
            self._drop(buffered_input, len(lines.values))
            return
        buffered_input.lines += len(lines.values)
        buffered_input.bytes += lines.size_bytes
        buffered_input.buffer.stage(lines, self._wall_ms())

    def _commit(self, buffered_input: BufferedInput) -> None:
        try:
            buffered_input.buffer.give_back()
            if buffered_input.buffer.has_staged:
                buffered_input.buffer.commit()
        except RetriableStorageError as error:
            buffered_input.errors += 1
            self._say("buffer_disk_full", buffered_input, reason=str(error))
            if buffered_input.buffer.when_full is WhenFull.DROP_NEWEST:
                self._drop(buffered_input, buffered_input.buffer.drop())
        except StorageError as error:
            self._fail(buffered_input, error)

    def _fail(self, buffered_input: BufferedInput, error: StorageError) -> None:
        """The disk failed under a buffer: what it has is still sent, nothing more is read."""
        buffered_input.errors += 1
        buffered_input.failed = str(error)
        self._log.error("buffer_failed", input=buffered_input.name, reason=buffered_input.failed)

    def _drop(self, buffered_input: BufferedInput, lines: int) -> None:
        if not lines:
            return
        buffered_input.dropped += lines
        self._say("lines_dropped", buffered_input, dropped_in_all=buffered_input.dropped)

    # --- sources ---

    def _watch(self, buffered_input: BufferedInput) -> None:
        """Read an buffered input's sources or leave them alone, as its buffer has room."""
        blocked = buffered_input.buffer.has_staged or (
            buffered_input.buffer.is_full and buffered_input.buffer.when_full is WhenFull.BLOCK
        )
        reading = not blocked and buffered_input.failed is None
        if reading != buffered_input.reading:
            buffered_input.reading = reading
            if not reading:
                self._say("buffer_full", buffered_input, bytes=buffered_input.buffer.fill_bytes)
            for source in buffered_input.sources:
                self._register(buffered_input, source, reading)
        if buffered_input.listener is not None:
            self._listen(buffered_input, reading and buffered_input.takes_connections)

    def _listen(self, buffered_input: BufferedInput, wanted: bool) -> None:
        assert buffered_input.listener is not None
        if wanted != (buffered_input.listener in self._selector.get_map()):
            if wanted:
                self._selector.register(buffered_input.listener, selectors.EVENT_READ, (buffered_input, None))
            else:
                self._selector.unregister(buffered_input.listener)

    def _accept(self, buffered_input: BufferedInput) -> None:
        assert buffered_input.listener is not None
        assert isinstance(buffered_input.config, UnixStreamInputConfig)
        while buffered_input.takes_connections:
            try:
                connection, _ = buffered_input.listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors left: those that are there go on, the newcomer waits
                buffered_input.errors += 1
                self._say("accept_failed", buffered_input, reason=error.strerror)
                return
            connection.setblocking(False)
            self._add(buffered_input, ByteSource(connection.fileno(), buffered_input.config, connection))

    def _add(self, buffered_input: BufferedInput, source: Source) -> None:
        buffered_input.sources.add(source)
        self._register(buffered_input, source, True)

    def _register(self, buffered_input: BufferedInput, source: Source, wanted: bool) -> None:
        if wanted:
            self._selector.register(source.fileno(), selectors.EVENT_READ, (buffered_input, source))
        else:
            self._selector.unregister(source.fileno())

    def _end(self, buffered_input: BufferedInput, source: Source) -> None:
        if buffered_input.reading:
            self._register(buffered_input, source, False)
        if isinstance(source, ByteSource) and source.broken is not None:
            buffered_input.errors += 1
            self._say("connection_broken", buffered_input, reason=source.broken)
        buffered_input.sources.discard(source)
        self._take(buffered_input, source.close(time.monotonic_ns() // 1_000_000))

    def _say(self, event: str, buffered_input: BufferedInput, **fields: object) -> None:
        """Log at most one line for each kind of problem and input in half a minute."""
        now_s = time.monotonic()
        if now_s - self._said.get(event + buffered_input.name, -_SAY_EVERY_S) >= _SAY_EVERY_S:
            self._said[event + buffered_input.name] = now_s
            self._log.warning(event, input=buffered_input.name, **fields)
