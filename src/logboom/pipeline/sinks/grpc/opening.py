"""Opens the gRPC channel of a sink from the same address, certificates and headers as sinks over HTTP have.

Knows the node of such a sink. Cheap to import: `pipeline check` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from logboom.pipeline.sinks.base import SinkReport
from logboom.pipeline.sinks.http.model import HttpSink

if TYPE_CHECKING:
    from logboom.pipeline.sinks.grpc.client import GrpcClient


_METADATA_NAME: Final = re.compile(r"(?!grpc-)[0-9a-z_.-]+(?<!-bin)")
"""Names of text metadata ("gRPC over HTTP2", Custom-Metadata): `-bin` is for bytes, `grpc-` for the protocol itself."""


def check_metadata(report: SinkReport, headers: Iterable[str]) -> None:
    """Report names under `headers` that are not valid in gRPC metadata."""
    for name in headers:
        if not _METADATA_NAME.fullmatch(name.lower()):
            report.problem("headers", f"{name!r} is not a valid name of text in a gRPC call")


def grpc_client(sink: HttpSink, secrets: Mapping[str, str], headers: Mapping[str, str]) -> GrpcClient:
    """A client for the server at the sink's address, with these headers as metadata in addition to those of the
    file."""
    from logboom.pipeline.sinks.grpc.client import GrpcClient

    http = sink.http
    return GrpcClient(
        http.url,
        headers={**dict(http.headers), **headers},
        ca=None if http.ca is None else secrets[http.ca.id],
        compression="none" if http.compression == "none" else "gzip",
        timeout_s=sink.sending.timeout_ms / 1_000,
        hidden=[*secrets.values(), *(value.split(" ")[-1] for value in headers.values())],
    )
