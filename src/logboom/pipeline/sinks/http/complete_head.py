"""An HTTP/1.1 response whose status line and headers must be complete: `http.client.HTTPResponse` with that check.

`http.client` reads headers until an empty line or the end of the connection, whichever comes first, and so takes a
response that was cut off after "HTTP/1.1 200 OK" for one without headers and body, which is a success. A sink would
count a batch as delivered that the server never acknowledged. RFC 9112, section 8, calls such a message incomplete.
Here it raises ConnectionError, which a sink retries as it does any broken connection.
"""

import http.client
from typing import Any


class ResponseWithWholeHead(http.client.HTTPResponse):
    """Raises if the connection ends within status line or headers. Set as `response_class` of an HTTPConnection."""

    def begin(self) -> None:
        """Reads status line and headers.

        :raises ConnectionError: the connection ended in it.
        """
        own: Any = self
        stream = own.fp
        own.fp = head = _Head(stream)
        try:
            super().begin()
        finally:
            if own.fp is head:
                own.fp = stream


class _Head:
    """Wraps a response's file while its head is read: every line must end with a newline.

    An end of the connection before the first byte is left to `http.client`, which raises RemoteDisconnected.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._has_begun = False

    def readline(self, limit: int) -> bytes:
        line: bytes = self._stream.readline(limit)
        if not line.endswith(b"\n") and len(line) < limit and (line or self._has_begun):
            raise ConnectionError("the connection ended in the head of an answer")
        self._has_begun = True
        return line

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()
