"""The collector as a whole: one loop that moves lines from the inputs to the delivery, and acknowledgements back.

    files    -> FileInput --\
                             >-- OrderedSource -> Delivery -> the log
    sockets  -> Intake -> DiskBuffer --/

A turn looks at the files, reads while the delivery has room, takes acknowledgements, and writes the checkpoint when it
is due. A position moves only past what the log has acknowledged: after a crash of either side, at any moment,
everything that was not acknowledged is read again.
"""

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import LogboomError
from logboom.base.ids import Offset
from logboom.base.ports import Clock
from logboom.collector.buffer import DiskBuffer, buffer_directory
from logboom.collector.clients import client_of
from logboom.collector.config import CollectorConfig, FileInputConfig, StartAt
from logboom.collector.data_dir import DataDir, Positions
from logboom.collector.delivery import Delivery
from logboom.collector.discover import Discovery
from logboom.collector.files import FileInput
from logboom.collector.intake import BufferedInput, Intake
from logboom.collector.pending_send import OrderedSource
from logboom.collector.stats import Snapshot, take_snapshot
from logboom.collector.tail import FileBatch, Generation, Identity, ReadRule, new_content_id
from logboom.collector.watch import WatchRule
from logboom.host import OsDisk, SystemClock
from logboom.storage import Damage, Notice

_IDLE_WAIT_S: Final = 0.1
_TURN_S: Final = 0.05
_SOCKET_INPUT_PATH: Final = {"stdin": "-"}


class CollectorError(LogboomError):
    """The collector cannot go on."""


class Agent:
    """One collector. Life: `open`, `run` until a signal, an error or the end of all input, `close`."""

    def __init__(
        self, config: CollectorConfig, log: FilteringBoundLogger, *, stdin: int = 0, once: bool = False
    ) -> None:
        self.config = config
        self._log = log
        self._stdin = stdin
        self._once = once
        self._clock: Clock = SystemClock()
        self.files: dict[str, FileInput] = {}
        self.buffered_inputs: dict[str, BufferedInput] = {}
        self._sources: WeakValueDictionary[tuple[str, str], OrderedSource] = WeakValueDictionary()
        self._buffer_ids: dict[str, str] = {}
        self._durable_buffer_ids: set[str] = set()
        self._stop_asked = threading.Event()
        self._dirty = True
        self._next_checkpoint_s = 0.0
        self.checkpoint_errors = 0
        self._started_s = time.monotonic()

    # --- life ---

    def open(self) -> None:
        """Open the data directory, the files, the sockets and the client. Each may raise an error of its own."""
        self._data_dir = DataDir.open(Path(self.config.data_dir))
        saved = self._data_dir.load()
        output = self.config.output
        self.delivery = Delivery(client_of(output), output.max_in_flight_bytes, self._log)
        disk = OsDisk(self._data_dir.path)
        for name, one in self.config.inputs.items():
            if isinstance(one, FileInputConfig):
                known = saved.files.get(name) if saved else None
                self.files[name] = self._file_input(
                    one, None if known is None else [file.generation() for file in known]
                )
                continue
            buffer = DiskBuffer(
                disk,
                buffer_directory(name),
                one.buffer,
                reading_from=saved.buffers.get(name, 0) if saved else 0,
                now_ms=self._clock.wall_ms(),
                report=self._report_storage,
            )
            self.buffered_inputs[name] = BufferedInput(name, one, buffer)
        known_ids = saved.buffer_ids if saved else {}
        for name, buffered_input in self.buffered_inputs.items():
            known_id = None if buffered_input.buffer.lost_its_log else known_ids.get(name)
            self._buffer_ids[name] = known_id or new_content_id()
        self._keep_others(saved or Positions())
        self._intake = Intake(list(self.buffered_inputs.values()), self._stdin, self._log, self._clock.wall_ms)
        self._intake.open()

    def stop(self) -> None:
        """Ask it to end: from a signal or another thread."""
        self._stop_asked.set()

    def handle_signals(self) -> None:
        """SIGTERM and Ctrl-C end it in order."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())

    def run(self, *, every_s: float | None = None) -> None:
        """Run until asked to stop, or until everything is sent; logs its progress every `every_s` seconds.

        Raises CollectorError if one of its threads has died.
        """
        next_line_s = time.monotonic() + (every_s or 0.0)
        self._intake.start()
        self._log.info("collecting", inputs=sorted(self.config.inputs), output=self.config.output.bootstrap)
        while not self._stop_asked.is_set():
            moved = self._turn()
            self.delivery.poll(0.0 if moved else _IDLE_WAIT_S)
            if every_s is not None and time.monotonic() >= next_line_s:
                next_line_s += every_s
                self._log.info("progress", **self.snapshot().line())
            if not moved and self._is_done():
                break
            if self.buffered_inputs and not self._intake.is_alive:
                raise CollectorError("The intake of sockets and standard input has died; see the log.")

    def close(self) -> None:
        """Accept what has arrived, wait a while for acknowledgements, save the positions, release everything."""
        self._intake.stop()
        deadline_s = time.monotonic() + self.config.drain_ms / 1000
        while time.monotonic() < deadline_s and self._drain_turn():
            self.delivery.flush_now()
            self.delivery.poll(0.02)
        left = self.delivery.in_flight_records
        self.delivery.close(drop=not self.delivery.is_empty)
        self._checkpoint()
        for buffered_input in self.buffered_inputs.values():
            buffered_input.close_buffer(self._log)
        for one in self.files.values():
            one.close()
        self._data_dir.close()
        if left:
            self._log.warning("stopped_with_unacknowledged_records", records_to_resend=left)

    def snapshot(self) -> Snapshot:
        """The current statistics. From any thread."""
        return take_snapshot(
            self.delivery,
            self.files,
            self.buffered_inputs,
            seconds=time.monotonic() - self._started_s,
            checkpoint_errors=self.checkpoint_errors,
        )

    # --- a turn ---

    def _turn(self) -> bool:
        """Move some lines; returns whether there were any."""
        now_ms = time.monotonic_ns() // 1_000_000
        for one in self.files.values():
            one.poll(now_ms)
            self._dirty = self._dirty or one.changed
        self._checkpoint_when_due()
        moved = False
        movers = self._movers(now_ms)
        until_s = time.monotonic() + _TURN_S
        while any([self.delivery.has_room and mover() for mover in movers]):  # noqa: C419  # each has its turn
            moved = True
            if time.monotonic() >= until_s:
                break
        return moved

    def _drain_turn(self) -> bool:
        """Move what the buffers have; returns whether anything is not acknowledged yet."""
        for name, buffered_input in self.buffered_inputs.items():
            while self.delivery.has_room and not self.delivery.is_blocked(self.config.stream_of(name)):
                if not self._move_buffered(name, buffered_input):
                    break
        return not self.delivery.is_empty

    def _movers(self, now_ms: int) -> list[Callable[[], bool]]:
        """One per input that may send: each call moves one batch and says whether there was one."""
        movers: list[Callable[[], bool]] = []
        for name in self.config.inputs:
            if self.delivery.is_blocked(self.config.stream_of(name)):
                continue
            if name in self.files:
                movers.append(partial(self._move_file, name, self.files[name], now_ms))
            else:
                movers.append(partial(self._move_buffered, name, self.buffered_inputs[name]))
        return movers

    def _move_file(self, name: str, one: FileInput, now_ms: int) -> bool:
        batch = one.next_batch(now_ms)
        if batch is None:
            return False
        self._dirty = True

        def done(batch: FileBatch = batch) -> None:
            one.acked(batch)
            self._dirty = True

        content = batch.generation
        if not content.is_durable:
            self._checkpoint()
            content.note_checkpoint()  # lines are sent also where the positions cannot be written
        source = self._source(name, content.path)
        self.delivery.send(source, batch.lines, self._clock.wall_ms(), done, content_id=content.id)
        return True

    def _move_buffered(self, name: str, buffered_input: BufferedInput) -> bool:
        buffered = buffered_input.buffer.read()
        if buffered is None:
            return False

        def done(next_offset: Offset = buffered.next_offset) -> None:
            buffered_input.buffer.acknowledge(next_offset)
            self._dirty = True

        if name not in self._durable_buffer_ids:
            self._checkpoint()
            self._durable_buffer_ids.add(name)
        path = getattr(buffered_input.config, "path", _SOCKET_INPUT_PATH.get(buffered_input.config.type, ""))
        source, content_id = self._source(name, path), self._buffer_ids[name]
        self.delivery.send(source, buffered.lines, buffered.time_ms, done, content_id=content_id)
        return True

    def _source(self, name: str, path: str) -> OrderedSource:
        source = self._sources.get((name, path))
        if source is None:
            source = self._sources[name, path] = OrderedSource(
                self.config.stream_of(name), self.config.host, name, path
            )
        return source

    def _is_done(self) -> bool:
        """Whether nothing more can come: with `once` when all files are read, without when there is only a closed
        standard input; and all of it is safe."""
        if self.files and not self._once:
            return False
        now_ms = time.monotonic_ns() // 1_000_000
        files_done = [one.read_to_end(now_ms) for one in self.files.values()]
        buffers_done = all(
            buffered_input.ended and buffered_input.buffer.is_drained
            for buffered_input in self.buffered_inputs.values()
        )
        return all(files_done) and buffers_done and self.delivery.is_empty

    # --- positions ---

    def _checkpoint_when_due(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_checkpoint_s:
            self._next_checkpoint_s = now_s + self.config.checkpoint_ms / 1000
            if self._dirty:
                self._checkpoint()

    def _checkpoint(self) -> None:
        buffers = {name: int(buffered_input.buffer.acked) for name, buffered_input in self.buffered_inputs.items()}
        try:
            files = {name: one.generations() for name, one in self.files.items()}
            ids = {**self._other_buffer_ids, **self._buffer_ids}
            self._data_dir.save({**self._other_files, **files}, {**self._other_buffers, **buffers}, ids)
        except OSError as error:
            self.checkpoint_errors += 1
            self._log.error("checkpoint_not_written", reason=error.strerror)
            return
        self._dirty = False
        for generation in itertools.chain.from_iterable(files.values()):
            generation.note_checkpoint()
        for one in self.files.values():
            one.note_checkpoint()
        for name, offset in buffers.items():
            self.buffered_inputs[name].buffer.release(offset)

    def _keep_others(self, saved: Positions) -> None:
        """Positions of inputs that are not configured now stay, for when they are again."""
        names = self.config.inputs
        self._other_files = {
            name: [file.generation() for file in files] for name, files in saved.files.items() if name not in names
        }
        self._other_buffers = {name: offset for name, offset in saved.buffers.items() if name not in names}
        self._other_buffer_ids = {name: known for name, known in saved.buffer_ids.items() if name not in names}
        for name in self._other_buffers:
            self._log.warning("buffer_without_input", input=name, directory=buffer_directory(name))

    # --- parts ---

    def _file_input(self, config: FileInputConfig, saved: list[Generation] | None) -> FileInput:
        discovery = Discovery(
            config.include, config.exclude, own=frozenset(_own_outputs()), own_dir=self.config.data_dir
        )
        read_rule = ReadRule(
            config.max_line_bytes, config.block_bytes, config.multiline.rule() if config.multiline else None
        )
        watch_rule = WatchRule(
            start_at_end=config.start_at is StartAt.END,
            discover_ms=config.discover_ms,
            rotate_wait_ms=config.rotate_wait_ms,
            max_open_files=config.max_open_files,
        )
        return FileInput(discovery, read_rule, watch_rule, saved, self._data_dir.saved_ns(), self._log)

    def _report_storage(self, what: Damage | Notice) -> None:
        if isinstance(what, Damage):
            self._log.error("buffer_damaged", reason=str(what))
        else:
            self._log.info("buffer_recovered", reason=str(what))


def _own_outputs() -> Iterator[Identity]:
    """Files that this process itself writes its log to: reading them would never end."""
    for handle in (1, 2):
        try:
            status = os.fstat(handle)
        except OSError:
            continue
        yield Identity(status.st_dev, status.st_ino)
