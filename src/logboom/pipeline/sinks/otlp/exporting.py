"""The two ways of OTLP's requests: over HTTP in Protocol Buffers, and as calls of gRPC.

"OTLP/HTTP" and "OTLP/gRPC" of the OpenTelemetry Protocol Specification 1.5. Knows clients and what an answer says; must
not know what a request holds.
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
    """What is exported, and where."""

    path: str
    method: str
    rejected: str
    """The field of an answer in JSON that counts what was refused."""


LOGS: Final = Signal("/v1/logs", "/opentelemetry.proto.collector.logs.v1.LogsService/Export", "rejectedLogRecords")
METRICS: Final = Signal(
    "/v1/metrics", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", "rejectedDataPoints"
)


class Partial(NamedTuple):
    """What a receiver refused of a request that it took."""

    rejected: int
    message: str


class Exporter(Protocol):
    """A way to a receiver."""

    @property
    def place(self) -> str:
        """The receiver, in messages."""
        ...

    def export(self, request: bytes) -> Partial:
        """Sends an Export...ServiceRequest; raises what `Target.send` raises."""
        ...

    def close(self) -> None:
        """Ends its connections."""
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
        """A POST."""
        answer = self._client.post(self._signal.path, request, _CONTENT)
        check_status(answer, self.place, refused=_REFUSED)
        try:
            return self._partial(answer)
        except (ValueError, msgspec.DecodeError) as error:
            raise TryAgainError(f"{self.place} gave an answer that cannot be read") from error

    def close(self) -> None:
        """Ends the connections."""
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
        """One call."""
        answer = self._client.call(self._signal.method, request)
        try:
            return _partial_success(answer)
        except ValueError as error:
            raise TryAgainError(f"{self.place} gave an answer that cannot be read") from error

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()


def _partial_success(answer: bytes) -> Partial:
    """Of an Export...ServiceResponse."""
    rejected, message = 0, ""
    for field, partial in fields_of(answer):
        if field == 1 and isinstance(partial, bytes):
            for inner, value in fields_of(partial):
                if inner == 1 and isinstance(value, int):
                    rejected = value
                elif inner == 2 and isinstance(value, bytes):
                    message = value.decode("utf-8", errors="replace")
    return Partial(rejected, message)
