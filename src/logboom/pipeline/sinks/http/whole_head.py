"""Answers of HTTP/1.1 whose head is whole: http.client takes one that is cut off for one without more headers.

RFC 9112, 8: a message whose connection ends before its head does is incomplete. "HTTP/1.1 200 OK" and the end of the
connection would be an answer without a body otherwise, and events would count as taken that nobody has.
"""

import http.client
from typing import Any


class ResponseWithWholeHead(http.client.HTTPResponse):
    """For `response_class` of a connection."""

    def begin(self) -> None:
        """Reads the head.

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
    """The lines of a head."""

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
