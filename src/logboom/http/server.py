"""A small HTTP server on threads of its own, with bounds on the number of connections and on the duration of each.

The standard library parses HTTP; the application is WSGI. It is meant for metrics and health, which a few clients ask
for now and then. The broker's event loop never waits for it. Its deadlines are read from the machine's clock: these
threads are outside of what a simulation replaces.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import IO, Any, Final, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

import structlog

from logboom.base.settings import join_address, split_address

WsgiApp = Callable[..., Any]

_POLL_S: Final = 0.25
_REQUEST_LINE_MAX_BYTES: Final = 8_192
_JOIN_S: Final = 2.0
_WARNING_INTERVAL_S: Final = 10.0


class _Handler(WSGIRequestHandler):
    """One request per connection; anything but a short GET or HEAD is refused without reading it."""

    server: "BoundedServer"

    def setup(self) -> None:
        self.request.settimeout(self.server.request_timeout_s)
        super().setup()

    def handle(self) -> None:
        self.raw_requestline = self.rfile.readline(_REQUEST_LINE_MAX_BYTES + 1)
        if len(self.raw_requestline) > _REQUEST_LINE_MAX_BYTES:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
        elif self.parse_request():
            if self.command not in ("GET", "HEAD"):
                self.send_error(405)
                return
            app = self.server.get_app()
            assert app is not None
            handler = _Answer(
                cast("IO[bytes]", self.rfile),
                cast("IO[bytes]", self.wfile),
                self.get_stderr(),
                self.get_environ(),
                multithread=True,
            )
            handler.request_handler = self  # type: ignore[attr-defined]  # wsgiref asks it for the log line
            handler.run(app)

    def address_string(self) -> str:
        return str(self.client_address[0])  # never a reverse look-up

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""


class _Answer(ServerHandler):
    """Does not report a peer that went away."""

    server_software = "logboom"


class BoundedServer(WSGIServer):
    """One thread per connection, a limited number of them, each closed when its time is over."""

    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: str, app: WsgiApp, *, max_connections: int, request_timeout_s: float) -> None:
        host, port = split_address(address)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.request_timeout_s = request_timeout_s
        self._max_connections = max_connections
        self._opened_s: dict[socket.socket, float] = {}
        self._next_warning_s = 0.0
        self.refused = 0
        """Connections that were closed at once."""
        self._lock = threading.Lock()
        super().__init__((host, port), _Handler)
        self.set_app(app)
        self._thread = threading.Thread(target=self.serve_forever, args=(_POLL_S,), name="http", daemon=True)

    def server_bind(self) -> None:
        """Bind as the base class does, without its reverse DNS lookup."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    @property
    def address(self) -> str:
        """The address it listens on, with the port that the system chose."""
        return join_address(self.server_name, self.server_port)

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._opened_s)

    def start(self) -> None:
        """Serve until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting, and close all connections."""
        self.shutdown()
        self.server_close()
        self._close(lambda opened_s: True)
        self._thread.join(_JOIN_S)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            full = len(self._opened_s) >= self._max_connections
            if not full:
                self._opened_s[request] = time.monotonic()
        if full:
            self._refuse(request, client_address)
        else:
            threading.Thread(
                target=self._answer, args=(request, client_address), name="http-answer", daemon=True
            ).start()

    def _refuse(self, request: socket.socket, client_address: Any) -> None:
        self.refused += 1
        if (now_s := time.monotonic()) >= self._next_warning_s:
            self._next_warning_s = now_s + _WARNING_INTERVAL_S
            structlog.get_logger("logboom.http").warning(
                "limit reached",
                limit="http.max_connections",
                why=f"there are {self._max_connections} connections, as many as allowed",
                client=str(client_address[0]),
                refused=self.refused,
            )
        self.shutdown_request(request)

    def _answer(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the peer went away or took too long
        finally:
            with self._lock:
                self._opened_s.pop(request, None)
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Called on every turn of the accept loop: close connections whose time is over, however slowly they send."""
        oldest_s = time.monotonic() - self.request_timeout_s
        self._close(lambda opened_s: opened_s < oldest_s)

    def _close(self, chosen: Callable[[float], bool]) -> None:
        with self._lock:
            late = [request for request, opened_s in self._opened_s.items() if chosen(opened_s)]
            for request in late:
                # Wakes the connection's thread, which closes it; under the lock, so that it is not closed meanwhile.
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)
