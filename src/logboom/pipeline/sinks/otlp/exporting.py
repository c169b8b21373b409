"""Sends OTLP requests: over HTTP in Protocol Buffers, or as gRPC calls.

See "OTLP/HTTP" and "OTLP/gRPC" of the OpenTelemetry Protocol Specification 1.5. Knows clients and the meaning of
answers. Must not know the content of requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from logboom.pipeline.sinks.bulk.target import TryAgainError
from logboom.pipeline.sinks.http.answers import HttpAnswer, check_status
from logboom.pipeline.sinks.http.protobuf import fields_of

if TYPE_CHECKING:
    from logboom.pipeline.sinks.grpc.client import GrpcClient
    from logboom.pipeline.sinks.http.client import HttpClient

_REFUSED: Final = (400, 413, 415, 422)
_CONTENT: Final = "application/x-protobuf"


class Signal(NamedTuple):
    """The signal that is exported, and its paths."""

    path: str
    method: str
    rejected: str
    """The field of a JSON answer that counts refused items."""


LOGS: Final = Signal("/v1/logs", "/opentelemetry.proto.collector.logs.v1.LogsService/Export", "rejectedLogRecords")
METRICS: Final = Signal(
    "/v1/metrics", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", "rejectedDataPoints"
)


class Partial(NamedTuple):
    """Partial success: the part of an accepted request that a receiver refused."""

    rejected: int
    message: str


class Exporter(Protocol):
    """A connection to a receiver."""

    @property
    def place(self) -> str:
        """The receiver's name for messages."""
        ...

    def export(self, request: bytes) -> Partial:
        """Send an Export...ServiceRequest; raises the errors of `Target.send`."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


class HttpExporter:
    """Requests over HTTP."""

    def __init__(self, client: HttpClient, signal: Signal) -> None:
        self._client = client
        self._signal = signal

    @property
    def place(self) -> str:
        return f"the server at {self._client.place}"

    def export(self, request: bytes) -> Partial:
        """Send a POST."""
        answer = self._client.post(self._signal.path, request, _CONTENT)
        check_status(answer, self.place, refused=_REFUSED)
        try:
            return self._partial(answer)
        except (ValueError, msgspec.DecodeError) as error:
            raise TryAgainError(f"{self.place} gave an answer that cannot be read") from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _partial(self, answer: HttpAnswer) -> Partial:
        if answer.headers.get("content-type", "").startswith("application/json"):
            told = msgspec.json.decode(answer.body or b"{}", type=dict[str, Any]).get("partialSuccess") or {}
            return Partial(int(told.get(self._signal.rejected, 0)), str(told.get("errorMessage", "")))
        return _partial_success(answer.body)


class GrpcExporter:
    """Calls of gRPC."""

    def __init__(self, client: GrpcClient, signal: Signal) -> None:
        self._client = client
        self._signal = signal

    @property
    def place(self) -> str:
        return f"the server at {self._client.place}"

    def export(self, request: bytes) -> Partial:
        """Make one call."""
        answer = self._client.call(self._signal.method, request)
        try:
            return _partial_success(answer)
        except ValueError as error:
            raise TryAgainError(f"{self.place} gave an answer that cannot be read") from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _partial_success(answer: bytes) -> Partial:
    """Decode the partial success of an Export...ServiceResponse."""
    rejected, message = 0, ""
    for field, partial in fields_of(answer):
        if field == 1 and isinstance(partial, bytes):
            for inner, value in fields_of(partial):
                if inner == 1 and isinstance(value, int):
                    rejected = value
                elif inner == 2 and isinstance(value, bytes):
                    message = value.decode("utf-8", errors="replace")
    return Partial(rejected, message)
