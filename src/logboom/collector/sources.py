"""What the intake reads: the standard input, connections and datagrams of Unix sockets. One turn never waits.

Each source cuts its bytes into lines and joins them as its input says; it knows no buffer.
"""

import contextlib
import os
import socket
import stat
from typing import Final, Protocol

from logboom.base.errors import LogboomError
from logboom.collector.batch import Lines, concatenate
from logboom.collector.config import (
    BufferedInputConfig,
    Framing,
    StdinInputConfig,
    UnixDatagramInputConfig,
    UnixStreamInputConfig,
)
from logboom.collector.framing import OctetSplitter
from logboom.collector.joiner import Joiner
from logboom.collector.lines import LineSplitter

READ_BYTES: Final = 256 * 1024
_DATAGRAMS_A_TURN: Final = 1024


class SocketError(LogboomError):
    """A socket cannot be made where the configuration wants it."""


class Source(Protocol):
    """Something that gives lines when it is ready to be read."""

    finished: bool

    def fileno(self) -> int: ...
    def read(self, now_ms: int) -> Lines | None: ...
    def idle(self, now_ms: int) -> Lines | None: ...
    def close(self, now_ms: int) -> Lines | None: ...


class ByteSource:
    """Lines of a stream of bytes: the standard input or one connection."""

    def __init__(
        self, handle: int, config: StdinInputConfig | UnixStreamInputConfig, owner: socket.socket | None
    ) -> None:
        self._handle = handle
        self._owner = owner
        octets = isinstance(config, UnixStreamInputConfig) and config.framing is Framing.OCTET_COUNTED
        splitter = OctetSplitter if octets else LineSplitter
        self._splitter: LineSplitter | OctetSplitter = splitter(0, config.max_line_bytes)
        self._joiner = Joiner(config.multiline.rule()) if config.multiline else None
        self.finished = False
        self.broken: str | None = None

    def fileno(self) -> int:
        """What to wait for."""
        return self._handle

    def read(self, now_ms: int) -> Lines | None:
        """What is there now; `finished` once the other side is done."""
        try:
            block = os.read(self._handle, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            self.broken, block = error.strerror or str(error), b""
        if not block:
            self.finished = True
            return None
        lines = self._splitter.feed(block)
        if isinstance(self._splitter, OctetSplitter) and self._splitter.broken:
            self.broken, self.finished = self._splitter.broken, True
        return self._joiner.feed(lines, now_ms) if self._joiner else lines

    def idle(self, now_ms: int) -> Lines | None:
        """The event that waited too long for its next line."""
        return self._joiner.flush() if self._joiner and self._joiner.is_idle(now_ms) else None

    def close(self, now_ms: int) -> Lines | None:
        """Let it go; what was still held of a last line or event."""
        last = self._splitter.flush()
        pieces = [last] if last else []
        if self._joiner:
            pieces = [self._joiner.feed(piece, now_ms) for piece in pieces]
            event = self._joiner.flush()
            pieces += [event] if event else []
        if self._owner is not None:
            self._owner.close()
        return concatenate(pieces)


class DatagramSource:
    """One line per datagram; a newline at its end is not part of it, and it is cut at `max_line_bytes`."""

    def __init__(self, listener: socket.socket, max_line_bytes: int) -> None:
        self._listener = listener
        self._max_line_bytes = max_line_bytes
        self._position = 0
        self.cut = 0
        self.finished = False

    def fileno(self) -> int:
        """What to wait for."""
        return self._listener.fileno()

    def read(self, _now_ms: int) -> Lines | None:
        """All datagrams that wait, up to a bound."""
        values: list[bytes] = []
        starts: list[int] = []
        size = 0
        while len(values) < _DATAGRAMS_A_TURN and size < READ_BYTES:
            try:
                datagram, _, flags, _ = self._listener.recvmsg(self._max_line_bytes + 1)
            except (BlockingIOError, InterruptedError):
                break
            self.cut += bool(flags & socket.MSG_TRUNC) or len(datagram) > self._max_line_bytes
            value = datagram[: self._max_line_bytes].removesuffix(b"\n")
            values.append(value)
            starts.append(self._position)
            self._position += len(datagram)
            size += len(datagram)
        return Lines(values, starts, self._position) if values else None

    def idle(self, _now_ms: int) -> Lines | None:
        """Nothing is ever held."""
        return None

    def close(self, _now_ms: int) -> Lines | None:
        """Let it go."""
        self._listener.close()
        return None


def listen(config: UnixStreamInputConfig | UnixDatagramInputConfig) -> socket.socket:
    """A bound, non-blocking socket. A socket file that nobody listens to is replaced; anything else is left alone.

    SocketError if it cannot be bound.
    """
    kind = socket.SOCK_STREAM if isinstance(config, UnixStreamInputConfig) else socket.SOCK_DGRAM
    try:
        _remove_stale(config.path, kind)
        listener = socket.socket(socket.AF_UNIX, kind)
        old_mask = os.umask(0o177)
        try:
            listener.bind(config.path)
        finally:
            os.umask(old_mask)
        os.chmod(config.path, int(config.mode, 8))
    except OSError as error:
        raise SocketError(f"The socket {config.path} cannot be made: {error.strerror or error}.") from error
    listener.setblocking(False)
    if kind == socket.SOCK_STREAM:
        listener.listen(128)
    return listener


def _remove_stale(path: str, kind: int) -> None:
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise SocketError(f"{path} exists and is not a socket; it is not touched. Choose another path.")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, kind) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError as error:
            raise SocketError(f"The socket {path} exists and cannot be tested: {error.strerror or error}.") from error
    raise SocketError(f"Another process listens on the socket {path}.")


def remove_socket(config: BufferedInputConfig) -> None:
    """Take the socket's file away again."""
    if isinstance(config, UnixStreamInputConfig | UnixDatagramInputConfig):
        with contextlib.suppress(OSError):
            os.unlink(config.path)
