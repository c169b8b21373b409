"""An HTTP server for sinks to send to: what it answers is up to a contract, and faults can be put in front of it.

The contract of a product says what its documentation promises: which requests it takes, what it limits, how it says
what is wrong. Faults are what servers and networks do beside that.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal, NamedTuple, get_args

import cramjam
from tests.support.waiting import WAIT_S

NotTaken = Literal["429", "503", "500", "hang", "reset", "half", "half_head", "garbage", "page"]
"""`half` and `half_head`: an answer cut in the middle of its body or of its head; `page`: 200 with HTML, of a proxy."""
InDoubt = Literal["half_stored", "lost_answer", "trickle", "drip", "late", "stored_500", "stored_503"]
"""The request is taken, but the client does not learn it: `half_stored`, the answer is cut; `lost_answer`, the
connection ends without a byte; `trickle` and `drip`, the answer's body or its head comes byte by byte and has no end;
`late`, it is answered when nobody waits any more; `stored_500` and `stored_503`, and yet an error is answered."""
Fault = Literal[NotTaken, InDoubt]
NOT_TAKEN: Final[tuple[NotTaken, ...]] = get_args(NotTaken)
IN_DOUBT: Final[tuple[InDoubt, ...]] = get_args(InDoubt)
_LATE_S = 1.5
"""Longer than the timeout of any sink that is tested with faults."""


class Reply(NamedTuple):
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


@dataclass
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    """Decompressed."""
    sent: bytes
    """As it came."""


class Contract:
    """What a product takes. `events` counts by event id what it has."""

    secret = "s3cr3t-credential"

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.requests: list[Request] = []
        self.lock = threading.Lock()

    def handle(self, request: Request) -> Reply:
        raise NotImplementedError


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _whole(digits: str) -> int | float:
    """JSON has whole numbers of any length, Python reads up to 4,300 digits."""
    return int(digits) if len(digits) < 1_000 else float(digits)


STRICT: Final = json.JSONDecoder(parse_constant=_refuse, parse_int=_whole)
"""Takes what RFC 8259 does: no NaN, no Infinity."""


def strict_json(body: bytes) -> Any:
    """JSON in UTF-8."""
    return STRICT.decode(body.decode())


class Gateway(Contract):
    """Hands requests to a real server, and its answers back: so that faults can be put in front of it."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def handle(self, request: Request) -> Reply:
        headers = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
        body = request.sent if request.method in ("POST", "PUT") else None
        asked = urllib.request.Request(f"{self._url}{request.path}", body, headers, method=request.method)
        try:
            with urllib.request.urlopen(asked, timeout=WAIT_S) as answer:
                return Reply(answer.status, answer.read(), {"Content-Type": answer.headers["Content-Type"] or ""})
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, error.read(), {"Content-Type": error.headers["Content-Type"] or ""})


@dataclass
class Faults:
    """What happens to the next requests instead of, or beside, what the contract says."""

    next: list[Fault | None] = field(default_factory=list)
    """None lets a request through."""
    always: Fault | None = None
    applied: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> Fault | None:
        with self.lock:
            fault = self.next.pop(0) if self.next else self.always
            if fault is not None:
                self.applied[fault] += 1
            return fault


class Server:
    """Serves a contract on a port of this machine; may be killed and started again on the same port."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.faults = Faults()
        self.let_go = threading.Event()
        """Ends what hangs."""
        self.under_way = 0
        self.under_way_max = 0
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self.let_go.clear()
        self._server = _Server(("127.0.0.1", self._port), self)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def kill(self) -> None:
        """Ends it and every connection, at once."""
        self.let_go.set()
        if self._server is None:
            return
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for one in sockets:
            end(one)
        self._server = None

    def opened(self, one: socket.socket) -> None:
        with self._lock:
            self._sockets.add(one)

    def busy(self, change: int) -> None:
        with self._lock:
            self.under_way += change
            self.under_way_max = max(self.under_way, self.under_way_max)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], owner: Server) -> None:
        self.owner = owner
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are what is tested."""


def end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def _plain(body: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(body)
    return bytes(cramjam.zstd.decompress(body)) if encoding == "zstd" else body


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.owner.opened(self.connection)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        owner = self.server.owner
        owner.busy(+1)
        try:
            self._answer(body, owner.faults.take())
        finally:
            owner.busy(-1)

    do_GET = do_POST = do_PUT = do_HEAD = handle_any  # noqa: N815 - the names that http.server looks for

    def _answer(self, body: bytes, fault: Fault | None) -> None:
        if fault in ("429", "503", "500"):
            self._send(Reply(int(fault), b"busy", {"Retry-After": "0.02"} if fault == "429" else {}))
        elif fault == "hang":
            self.server.owner.let_go.wait(WAIT_S)
            self.close_connection = True
        elif fault == "reset":
            self._end()
        elif fault == "half":
            self._cut(Reply(200, b'{"took": 3, "errors": false, "items": ['))
        elif fault == "half_head":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-")
            self.wfile.flush()
            self._end()
        elif fault == "page":
            self._send(Reply(200, b"\n<!DOCTYPE html>\n<title>Sign in</title>"))
        elif fault == "garbage":
            self.wfile.write(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
            self.close_connection = True
        else:
            self._answer_taken(self._reply(body), fault)

    def _answer_taken(self, reply: Reply, fault: Fault | None) -> None:
        """What follows when a contract has handled a request."""
        if fault == "half_stored":
            self._cut(reply)
        elif fault == "lost_answer":
            self._end()
        elif fault in ("trickle", "drip"):
            self._trickle(has_head=fault == "trickle")
        elif fault in ("stored_500", "stored_503"):
            self._send(Reply(int(fault.removeprefix("stored_")), b"it was taken, and yet"))
        elif fault == "late":
            self.server.owner.let_go.wait(_LATE_S)
            with contextlib.suppress(OSError):  # the client has gone
                self._send(reply)
            self.close_connection = True
        else:
            self._send(reply)

    def _reply(self, body: bytes) -> Reply:
        headers = {name.lower(): value for name, value in self.headers.items()}
        plain = _plain(body, headers.get("content-encoding", ""))
        request = Request(self.command, self.path, headers, plain, body)
        contract = self.server.owner.contract
        with contract.lock:
            contract.requests.append(request)
            return contract.handle(request)

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def _end(self) -> None:
        end(self.connection)
        self.close_connection = True

    def _cut(self, reply: Reply) -> None:
        """Half of an answer, then the end of the connection."""
        body = reply.body or b"{}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + 100))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        self.wfile.flush()
        self._end()

    def _trickle(self, *, has_head: bool) -> None:
        """An answer that comes byte by byte and has no end, behind its head or in it."""
        if has_head:
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
        else:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Padding:")
        while not self.server.owner.let_go.wait(0.02):
            try:
                self.wfile.write(b" ")
            except OSError:
                break
        self.close_connection = True
