"""A gRPC server for sinks to call: what it answers is up to a contract, and faults can be put in front of it."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal

import grpc
from tests.support.waiting import WAIT_S

from logboom.pipeline.sinks.http.protobuf import bytes_field, text_field, whole_field

GrpcFault = Literal[
    "unavailable", "exhausted", "internal", "hang", "lost_answer", "garbage", "stored_internal", "half_stored", "late"
]
"""`lost_answer`, `stored_internal`, `half_stored`: the call is carried out, and yet it ends with an error, or with an
answer that is cut; `late`: it is carried out when nobody waits any more."""
Unary = Callable[[bytes, Mapping[str, str]], bytes]


_OPTIONS: Final = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 16_000_000)]
_LATE_S: Final = 1.5
"""Longer than the timeout of any sink that is tested with faults."""


class RefusedCallError(Exception):
    """A contract answers a call with this status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code


def retry_info(nanos: int) -> bytes:
    """A google.rpc.Status whose details ask to wait."""
    info = bytes_field(1, whole_field(2, nanos))
    detail = text_field(1, "type.googleapis.com/google.rpc.RetryInfo") + bytes_field(2, info)
    return whole_field(1, 8) + bytes_field(3, detail)


class GrpcServer:
    """Serves methods on a port of this machine; may be stopped and started again on the same port."""

    def __init__(
        self,
        methods: Mapping[str, Unary],
        streams: Mapping[str, Unary] | None = None,
        *,
        tls: tuple[bytes, bytes] | None = None,
    ) -> None:
        """`streams`: methods that answer each request of a stream. `tls`: key and certificate in PEM."""
        self._methods = methods
        self._streams = streams or {}
        self._tls = tls
        self.next: list[GrpcFault] = []
        self.next_of: defaultdict[str, list[GrpcFault]] = defaultdict(list)
        """Of one method."""
        self.on_call: Callable[[str, bool], None] | None = None
        """Called with the method in front of each call (False) and behind it, before it is answered (True)."""
        self.applied: Counter[str] = Counter()
        self.let_go = threading.Event()
        self._lock = threading.Lock()
        self._port = 0
        self._server: grpc.Server | None = None

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://localhost:{self._port}"

    def __enter__(self) -> GrpcServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.let_go.clear()
        self._server = grpc.server(ThreadPoolExecutor(16), handlers=[self], options=_OPTIONS)
        address = f"localhost:{self._port}"
        if self._tls is None:
            self._port = self._server.add_insecure_port(address)
        else:
            self._port = self._server.add_secure_port(address, grpc.ssl_server_credentials([self._tls]))
        self._server.start()

    def stop(self) -> None:
        """Ends all calls at once."""
        self.let_go.set()
        if self._server is not None:
            self._server.stop(0).wait(WAIT_S)
            self._server = None

    def service(self, handler_call_details: Any) -> Any:
        """As `grpc.GenericRpcHandler` has it."""
        streamed = self._streams.get(handler_call_details.method)
        if streamed is not None:
            answer = self._guarded(handler_call_details.method, streamed)
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: (answer(request, context) for request in requests)
            )
        method = self._methods.get(handler_call_details.method)
        if method is None:
            return None
        return grpc.unary_unary_rpc_method_handler(self._guarded(handler_call_details.method, method))

    def fault(self, method: str, context: grpc.ServicerContext) -> GrpcFault | None:
        """The next fault; those that end a call do so here."""
        with self._lock:
            waiting = self.next_of[method] or self.next
            fault = waiting.pop(0) if waiting else None
            if fault is not None:
                self.applied[fault] += 1
        if fault == "unavailable":
            context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
        if fault == "exhausted":
            context.set_trailing_metadata((("grpc-status-details-bin", retry_info(20_000_000)),))
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much to do")
        if fault == "internal":
            context.abort(grpc.StatusCode.INTERNAL, "a fault of the server")
        if fault == "hang":
            self.let_go.wait(WAIT_S)
        return fault

    def _guarded(self, name: str, method: Unary) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
            fault = self.fault(name, context)
            if fault == "late":
                self.let_go.wait(_LATE_S)
            if self.on_call is not None:
                self.on_call(name, False)
            if fault == "garbage":
                return b"\xff\xff\xff"
            try:
                answer = method(request, _metadata(context))
            except RefusedCallError as refused:
                context.abort(refused.code, str(refused))
            if self.on_call is not None:
                self.on_call(name, True)
            if fault == "half_stored":
                return b"\xff\xff\xff"
            if fault == "stored_internal":
                context.abort(grpc.StatusCode.INTERNAL, "it was carried out, and yet")
            if fault == "lost_answer":
                context.abort(grpc.StatusCode.UNAVAILABLE, "cut off behind the request")
            return answer

        return handle


def _metadata(context: grpc.ServicerContext) -> dict[str, str]:
    return {key: str(value) for key, value in context.invocation_metadata()}
