"""Sends one HTTP request and reads its answer, with limits on time and size. urllib3 implements the protocol.

Knows addresses, TLS, compression and connections. Must not know the meaning of a status, or what is sent.

Each thread has its own connection. Redirects are not followed, because that would send credentials to another address.
"""

import contextlib
import gzip
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from socket import SHUT_RDWR
from typing import Final, Literal
from urllib.parse import urlsplit

import cramjam
import urllib3.connection
from urllib3.exceptions import HTTPError as Urllib3Error

from logboom.base.units import MIB
from logboom.pipeline.sinks.bulk.secrets import without_secrets
from logboom.pipeline.sinks.bulk.target import GiveUpError, TryAgainError
from logboom.pipeline.sinks.http.answers import HttpAnswer
from logboom.pipeline.sinks.http.complete_head import ResponseWithWholeHead

_ANSWER_MAX_BYTES: Final = 32 * MIB
_CONNECT_MAX_S: Final = 10.0
_GZIP_LEVEL: Final = 4
_CHUNK_BYTES: Final = 65_536


class HttpClient:
    """A client of one server. Thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        ca: str | None,
        compression: Literal["gzip", "zstd", "none"],
        timeout_s: float,
        hidden: Iterable[str] = (),
    ) -> None:
        """`url`: the prefix of the paths of requests. `ca`: certificates in PEM instead of the system's. `hidden`:
        credentials to remove from messages, since some servers repeat them in errors.

        :raises GiveUpError: the certificates cannot be read.
        """
        parts = urlsplit(url)
        self._is_tls = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port or (443 if self._is_tls else 80)
        self._path, self._query = parts.path.rstrip("/"), parts.query
        self._headers = {"user-agent": "logboom", **{name.lower(): value for name, value in headers.items()}}
        self._compression = compression
        self._timeout_s = timeout_s
        self._context = _tls_context(ca) if self._is_tls else None
        self._hidden = tuple(hidden)
        self._own = threading.local()
        self._open: set[urllib3.connection.HTTPConnection] = set()
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """Host and port, for messages. The path may be a secret."""
        return f"{self._host}:{self._port}"

    def post(self, path: str, body: bytes, content_type: str, headers: Mapping[str, str] | None = None) -> HttpAnswer:
        """Send a POST, with the configured compression.

        :raises TryAgainError: there was no complete answer within the timeouts.
        """
        return self.request("POST", path, body, {"content-type": content_type, **(headers or {})})

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> HttpAnswer:
        """Send any request. `path` begins with a slash or is empty; it may have a query.

        :raises TryAgainError: there was no complete answer within the timeouts.
        """
        sent = {**self._headers, **{name.lower(): value for name, value in headers.items()}}
        if body is not None and self._compression != "none":
            sent["content-encoding"] = self._compression
            body = _compressed(body, self._compression)
        connection = self._connection()
        try:
            return self._exchange(connection, method, self._target(path), body, sent)
        except TryAgainError:
            self._drop(connection)
            raise
        except (Urllib3Error, HTTPException, OSError, ValueError) as error:
            self._drop(connection)
            raise TryAgainError(f"{self.place}: {_reason(error)}") from error
        except AttributeError as error:
            if connection in self._open:
                raise
            # Another thread closed the connection between two steps of this one, so urllib3 has no socket.
            raise TryAgainError(f"{self.place}: the connection was ended") from error

    def close(self) -> None:
        """Close all connections. Requests in progress fail."""
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            _shut(connection)

    def _target(self, path: str) -> str:
        path, mark, query = path.partition("?")
        query = "&".join(filter(None, (self._query, query)))
        return (f"{self._path}{path}" or "/") + (f"?{query}" if query or mark else "")

    def _connection(self) -> urllib3.connection.HTTPConnection:
        connection: urllib3.connection.HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is not None and connection in self._open and connection.is_connected:
            return connection
        if connection is not None:
            self._drop(connection)
        if self._context is not None:
            connection = urllib3.connection.HTTPSConnection(self._host, self._port, ssl_context=self._context)
        else:
            connection = urllib3.connection.HTTPConnection(self._host, self._port)
        connection.response_class = ResponseWithWholeHead
        self._own.connection = connection
        with self._lock:
            self._open.add(connection)
        return connection

    def _drop(self, connection: urllib3.connection.HTTPConnection) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()
        self._own.connection = None

    def _exchange(
        self,
        connection: urllib3.connection.HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> HttpAnswer:
        if connection.sock is None:
            connection.timeout = min(self._timeout_s, _CONNECT_MAX_S)
            connection.connect()
        if connection.sock is not None:
            connection.sock.settimeout(self._timeout_s)
        connection.timeout = self._timeout_s
        connection.request(method, target, body=body, headers=headers, preload_content=False)
        response = connection.getresponse()
        read = self._read(response)
        if response.headers.get("connection", "").lower() == "close":
            self._drop(connection)
        names = {name.lower(): value for name, value in response.headers.items()}
        if response.status >= 300:
            read = without_secrets(read.decode("utf-8", errors="replace"), self._hidden).encode()
        return HttpAnswer(response.status, response.reason or "", names, read)

    def _read(self, response: urllib3.response.BaseHTTPResponse) -> bytes:
        ends_by = time.monotonic() + self._timeout_s
        read = bytearray()
        while part := response.read1(_CHUNK_BYTES, decode_content=True):
            read += part
            if len(read) > _ANSWER_MAX_BYTES:
                raise TryAgainError(f"{self.place}: an answer of more than {_ANSWER_MAX_BYTES} bytes")
            if time.monotonic() > ends_by:
                raise TryAgainError(f"{self.place}: an answer that did not end within {self._timeout_s:g} s")
        return bytes(read)


def _tls_context(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=ca)
    except (ssl.SSLError, ValueError) as error:
        raise GiveUpError(f"ca_file has no certificates in PEM: {error}") from error


def _compressed(body: bytes, compression: Literal["gzip", "zstd", "none"]) -> bytes:
    if compression == "zstd":
        return bytes(cramjam.zstd.compress(body))
    return gzip.compress(body, _GZIP_LEVEL, mtime=0)


def _shut(connection: urllib3.connection.HTTPConnection) -> None:
    """Shut down a connection that another thread may be reading: only closing the socket would not wake that thread."""
    socket = connection.sock
    if socket is not None:
        with contextlib.suppress(OSError):  # already closed
            socket.shutdown(SHUT_RDWR)
    connection.close()


def _reason(error: Exception) -> str:
    """The cause of an error, without the names of urllib3's objects."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = str(getattr(cause, "strerror", None) or cause) or type(cause).__name__
    return text.rpartition(">: ")[2].strip()
