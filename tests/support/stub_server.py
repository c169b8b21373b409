"""What stands behind the stub programs of tests: a Unix socket at which each of them has a thread of its own."""

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path


class StubServer:
    """Life: `start`, then `stop`."""

    def __init__(self, path: Path, serve: Callable[[socket.socket], None]) -> None:
        """`path`: of the socket, of 107 bytes at most. `serve` has a connection from its start to its end, in a thread;
        it closes it, and comes back soon when `stops` is set."""
        self.path = path
        self.stops = threading.Event()
        self._serve = serve
        self._listening = socket.socket(socket.AF_UNIX)
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._listening.bind(str(self.path))
        self._listening.listen()
        self._start(self._accept)

    def stop(self, within_s: float) -> None:
        """`within_s`: how long each thread is waited for."""
        self.stops.set()
        self._listening.shutdown(socket.SHUT_RDWR)  # close alone would not end the wait of another thread
        for thread in self._threads:
            thread.join(within_s)
        self._listening.close()

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.stops.is_set():
            with contextlib.suppress(OSError):
                connection, _ = self._listening.accept()
                self._start(self._serve, connection)
