"""A gRPC channel to one server and calls on it, with limits on time and size.

Knows grpcio. Must not know what is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from logboom.base.units import MIB
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.sinks.bulk.secrets import without_secrets
from logboom.pipeline.sinks.bulk.target import TryAgainError
from logboom.pipeline.sinks.grpc.status import meaning

if TYPE_CHECKING:
    import grpc

_ANSWER_MAX_BYTES: Final = 16 * MIB
_DETAILS: Final = "grpc-status-details-bin"


def needs_grpc(what: str) -> None:
    """Raise PipelineError if grpcio is not installed. `what`: what needs it."""
    try:
        import grpc  # noqa: F401
    except ImportError as error:
        raise PipelineError(f"{what} needs grpcio ({error}): pip install 'logboom[grpc]'") from error


class GrpcClient:
    """A channel to one server. Thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        ca: str | None,
        compression: Literal["gzip", "none"],
        timeout_s: float,
        hidden: Iterable[str] = (),
    ) -> None:
        """`url`: `http://HOST:PORT`, or `https://` for TLS. `ca`: certificates in PEM instead of grpcio's own.
        `hidden`: credentials to remove from error messages, since some servers repeat them."""
        import grpc

        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        self.place = f"{host}:{parts.port or (443 if is_tls else 80)}"
        self._metadata = [(name.lower(), value) for name, value in headers.items()]
        self._timeout_s = timeout_s
        self._hidden = tuple(hidden)
        self._compression = grpc.Compression.Gzip if compression == "gzip" else grpc.Compression.NoCompression
        options = [
            ("grpc.max_receive_message_length", _ANSWER_MAX_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.enable_retries", 0),  # retries are off: the caller retries, and counts them
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2_000),
            ("grpc.use_local_subchannel_pool", 1),  # closing the channel closes its connection
        ]
        if is_tls:
            credentials = grpc.ssl_channel_credentials(None if ca is None else ca.encode())
            self._channel = grpc.secure_channel(self.place, credentials, options)
        else:
            self._channel = grpc.insecure_channel(self.place, options)

    def call(self, method: str, request: bytes, metadata: Iterable[tuple[str, str]] = ()) -> bytes:
        """Call a method, `/PACKAGE.SERVICE/METHOD`, with an encoded message; returns the encoded answer.

        `metadata` is added to this call only.

        :raises TryAgainError: there was no answer in time, or the status asks for a retry; other errors by status.
        """
        import grpc

        stub = self._channel.unary_unary(method, request_serializer=None, response_deserializer=None)
        sent = [*self._metadata, *metadata]
        try:
            answer: bytes = stub(request, timeout=self._timeout_s, metadata=sent, compression=self._compression)
        except grpc.RpcError as error:
            raise self._meaning(error, metadata) from None
        except ValueError as error:  # the channel was closed by another thread
            raise TryAgainError(f"the server at {self.place}: {error}") from None
        return answer

    def exchange(self, method: str, request: bytes, metadata: Iterable[tuple[str, str]] = ()) -> bytes:
        """The same for a method with streams: sends one message and returns the first answer."""
        import grpc

        stub = self._channel.stream_stream(method, request_serializer=None, response_deserializer=None)
        sent = [*self._metadata, *metadata]
        try:
            answers = stub(iter((request,)), timeout=self._timeout_s, metadata=sent, compression=self._compression)
            first: bytes | None = next(answers, None)
            answers.cancel()
        except grpc.RpcError as error:
            raise self._meaning(error, metadata) from None
        except ValueError as error:  # the channel was closed by another thread
            raise TryAgainError(f"the server at {self.place}: {error}") from None
        if first is None:
            raise TryAgainError(f"the server at {self.place} ended without an answer")
        return first

    def close(self) -> None:
        """Close the connection. Calls in progress fail."""
        self._channel.close()

    def _meaning(self, error: grpc.RpcError, metadata: Iterable[tuple[str, str]]) -> Exception:
        trailers = dict(error.trailing_metadata() or ())
        status = trailers.get(_DETAILS)
        hidden = (*self._hidden, *(value.rpartition(" ")[2] for name, value in metadata if name == "authorization"))
        details = without_secrets(error.details() or "", hidden)
        return meaning(f"the server at {self.place}", error.code().name, details, status)
