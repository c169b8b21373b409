"""The head of an HTTP/1 request: bytes in, a Request or a refusal out. Pure; no socket, no clock.

Follows RFC 9112, sections 2 to 5, as far as a server needs that answers GET and HEAD and reads no bodies: lines end
with CRLF or a bare LF (section 2.2), a header line that is folded or has no name is refused (5.1, 5.2).
"""

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

LINE_BYTES_MAX: Final = 8_192
"""Length of the request line (414 above it)."""
HEAD_BYTES_MAX: Final = 65_536
"""Length of the whole head (431 above it)."""
HEADERS_MAX: Final = 100
"""Number of header lines (431 above it)."""

METHODS: Final = ("GET", "HEAD")

_REQUEST_LINE: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S+) HTTP/([0-9])\.[0-9]")
_HEADER_LINE: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")


class BadRequestError(Exception):
    """The peer sent what is no request that is served here."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """One request without its body."""

    method: str
    """One of METHODS."""
    path: str
    """Percent-decoded."""
    query: str
    """What follows the first `?`, as it came."""
    headers: dict[str, str]
    """By their names in lower case; of a header that comes twice, the last."""


class HeadReader:
    """Collects the head of one request as it arrives. Life: `feed` until it gives a Request or raises."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._line_start = self._scanned = 0
        self._line: tuple[str, str] | None = None
        """Method and target."""
        self._headers: dict[str, str] = {}
        self._header_lines = 0

    @property
    def empty(self) -> bool:
        """Whether nothing has come."""
        return not self._buffer

    def feed(self, data: bytes) -> Request | None:
        """Take the next bytes; None where the head is not whole. What follows a head is dropped.

        Raises BadRequestError.
        """
        self._buffer += data
        while (end := self._buffer.find(b"\n", self._scanned)) >= 0:
            line = self._buffer[self._line_start : end].decode("latin-1").removesuffix("\r")
            self._line_start = self._scanned = end + 1
            self._check_size(len(line))
            if self._line is None:
                self._line = _request_line(line)
            elif line:
                self._add_header(line)
            else:
                return self._request(*self._line)
        # A byte is looked at once, however the head was cut on its way.
        self._scanned = len(self._buffer)
        self._check_size(len(self._buffer) - self._line_start)
        return None

    def _check_size(self, line_bytes: int) -> None:
        if self._line is None and line_bytes > LINE_BYTES_MAX:
            raise BadRequestError(HTTPStatus.REQUEST_URI_TOO_LONG)
        if self._line is not None and self._line_start + line_bytes > HEAD_BYTES_MAX:
            raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def _add_header(self, line: str) -> None:
        self._header_lines += 1
        if self._header_lines > HEADERS_MAX:
            raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        found = _HEADER_LINE.fullmatch(line)
        if found is None:
            raise BadRequestError(HTTPStatus.BAD_REQUEST)
        self._headers[found[1].lower()] = found[2]

    def _request(self, method: str, target: str) -> Request:
        path, _, query = target.partition("?")
        return Request(method, unquote(path), query, self._headers)


def _request_line(line: str) -> tuple[str, str]:
    """Method and target. Raises BadRequestError."""
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise BadRequestError(HTTPStatus.BAD_REQUEST)
    if found[3] != "1":
        raise BadRequestError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    if found[1] not in METHODS:
        raise BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED)
    return found[1], found[2]
