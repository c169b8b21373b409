"""Limits the duration of pyiceberg's requests: pyiceberg sets no timeouts.

The timeouts of the library requests only limit the time between two bytes. If a server or proxy sends an answer byte by
byte, another thread shuts the connection down, even in the middle of a header line. Knows requests and urllib3. Must
not know catalogs or tables.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from socket import SHUT_RDWR
from typing import Any, Final, TypeVar

from requests import Response, Session
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.exceptions import ReadTimeout, RequestException
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

Kind = TypeVar("Kind", bound=HTTPConnection)

_TIMEOUT_S: Final = (10.0, 60.0)
"""Seconds to connect, and between two bytes of an answer."""
_REQUEST_MAX_S: Final = 300.0
"""Seconds for a whole request and its answer."""
_END_AGAIN_S: Final = 0.5


def bound(session: Session) -> None:
    """Limit the requests of a session. Call this again after the session gets new adapters."""
    for prefix, adapter in list(session.adapters.items()):
        if not isinstance(adapter, _BoundedAdapter):
            session.mount(prefix, _BoundedAdapter(adapter))


class _BoundedAdapter(BaseAdapter):
    """An adapter that wraps another one and enforces the limits."""

    def __init__(self, adapter: BaseAdapter) -> None:
        super().__init__()
        self._adapter = adapter
        self._connections: set[HTTPConnection] = set()
        if isinstance(adapter, HTTPAdapter):
            adapter.poolmanager.pool_classes_by_scheme = _pools_that_tell(self._connections)

    def __reduce__(self) -> tuple[type[_BoundedAdapter], tuple[BaseAdapter]]:
        """Pickled with the table for executors, without connections."""
        return _BoundedAdapter, (self._adapter,)

    def send(self, request: Any, *arguments: Any, **named: Any) -> Response:
        """Send a request and read its whole answer.

        :raises ReadTimeout: the answer was not complete in time.
        """
        if named.get("timeout") is None:
            named["timeout"] = _TIMEOUT_S
        failure: RequestException | None = None
        with self._deadline() as passed:
            try:
                response = self._adapter.send(request, *arguments, **named)
                _ = response.content
            except RequestException as error:
                failure = error
        if passed.is_set():  # urllib3 accepts truncated headers
            raise ReadTimeout(f"an answer that did not end within {_REQUEST_MAX_S:g} s") from failure
        if failure is not None:
            raise failure
        return response

    def close(self) -> None:
        self._adapter.close()

    @contextlib.contextmanager
    def _deadline(self) -> Iterator[threading.Event]:
        """Close the connections at the deadline, unless the event is set before."""
        done, passed = threading.Event(), threading.Event()
        watch = threading.Thread(target=self._watch, args=(done, passed), name="iceberg-deadline", daemon=True)
        watch.start()
        try:
            yield passed
        finally:
            done.set()
            watch.join()

    def _watch(self, done: threading.Event, passed: threading.Event) -> None:
        if done.wait(_REQUEST_MAX_S):
            return
        passed.set()
        _end(self._connections)
        while not done.wait(_END_AGAIN_S):  # a connection may just be being opened
            _end(self._connections)


def _end(connections: set[HTTPConnection]) -> None:
    """Shut connections down, which wakes the threads that read them."""
    for connection in list(connections):
        if connection.sock is not None:
            with contextlib.suppress(OSError):  # already closed
                connection.sock.shutdown(SHUT_RDWR)


def _pools_that_tell(connections: set[HTTPConnection]) -> dict[str, Any]:
    """Pool classes that add their open connections to this set."""

    def telling(kind: type[Kind]) -> type[Kind]:
        class Telling(kind):  # type: ignore[misc, valid-type]
            def connect(self) -> None:
                super().connect()
                connections.add(self)

            def close(self) -> None:
                connections.discard(self)
                super().close()

        return Telling

    class HttpPool(HTTPConnectionPool):
        ConnectionCls = telling(HTTPConnection)

    class HttpsPool(HTTPSConnectionPool):
        ConnectionCls = telling(HTTPSConnection)

    return {"http": HttpPool, "https": HttpsPool}
