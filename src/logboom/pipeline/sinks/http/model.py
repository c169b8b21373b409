"""The keys of a pipeline's file that sinks over HTTP share, and their values in a plan.

Knows settings and plans. Must not know any particular product. Cheap to import: `pipeline check` does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from pydantic import Field

from logboom.pipeline.plan.locations import url_fault
from logboom.pipeline.plan.nodes import KeyRef
from logboom.pipeline.sinks.base import CommonFields, SinkReport
from logboom.pipeline.sinks.bulk.model import BulkModel, BulkSink, Sending, sending_of
from logboom.pipeline.sinks.bulk.target import GiveUpError

if TYPE_CHECKING:
    from logboom.pipeline.sinks.http.client import HttpClient

Compression = Literal["gzip", "zstd", "none"]
GZIP_ALONE: Final[tuple[Compression, ...]] = ("gzip", "none")
"""Encodings of products that document no other."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110."""
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_CREDENTIAL_HEADERS: Final = ("authorization", "proxy-authorization", "cookie")
_OWN_HEADERS: Final = (
    *("content-length", "transfer-encoding", "host", "connection", "content-encoding"),
    *("accept-encoding", "expect", "te", "trailer", "upgrade", "keep-alive", "proxy-connection", "http2-settings"),
)
"""Headers of a body, of a connection, and of answers. If a user changed them, answers could not be read."""


class HttpModel(BulkModel):
    """Keys of sinks over HTTP."""

    compression: Compression | None = None
    """Compression of requests; default: what the product accepts."""

    ca_file: str | None = None
    """Certificates (PEM) to trust instead of the system's. A relative path is relative to the pipeline's file."""

    headers: dict[str, str] = Field(default_factory=dict)
    """Additional headers of each request. Must not contain credentials."""


class HttpWay(msgspec.Struct, frozen=True, kw_only=True):
    """Address and TLS settings of a server."""

    url: str
    """The URL prefix that all requests have in common; empty if `url_ref` is set."""
    url_ref: KeyRef | None = None
    """Reference to an address that is itself a secret."""
    ca: KeyRef | None = None
    compression: Compression
    headers: tuple[tuple[str, str], ...] = ()


class HttpSink(BulkSink, frozen=True, kw_only=True):
    """A sink over HTTP."""

    http: HttpWay

    @property
    def credentials(self) -> tuple[tuple[str, KeyRef], ...]:
        """The product's credentials, by their keys in the file."""
        return ()

    @property
    def secret_refs(self) -> tuple[tuple[str, KeyRef], ...]:
        own = (("url", self.http.url_ref), ("ca_file", self.http.ca))
        return (*((key, ref) for key, ref in own if ref is not None), *self.credentials)

    def client(self, secrets: Mapping[str, str], headers: Mapping[str, str]) -> HttpClient:
        """A client for the sink's server, with these headers in addition to those of the file.

        :raises GiveUpError: an address from the environment or a file is not valid.
        """
        from logboom.pipeline.sinks.http.client import HttpClient

        http = self.http
        hidden = [*secrets.values(), *(value.split(" ")[-1] for value in headers.values())]
        url = http.url
        if http.url_ref is not None:
            url = secrets[http.url_ref.id].rstrip("/")
            if url_fault(url) is not None:  # the message leaves out the address, which is a secret
                raise GiveUpError(
                    "the address in the environment or the file is not one such as https://host:port/path"
                )
            path = urlsplit(url).path
            hidden += [path, path.rpartition("/")[2]]
        return HttpClient(
            url,
            headers={**dict(http.headers), **headers},
            ca=None if http.ca is None else secrets[http.ca.id],
            compression=http.compression,
            timeout_s=self.sending.timeout_ms / 1_000,
            hidden=hidden,
        )


class HttpFields(CommonFields):
    """The fields that all sinks over HTTP have."""

    sending: Sending
    http: HttpWay


class RequestLimits(NamedTuple):
    """The product's limits for one request, used unless the file sets others."""

    max_bytes: int
    max_events: int
    concurrency: int = 4


def http_fields(
    model: HttpModel,
    common: CommonFields,
    report: SinkReport,
    url: str,
    limits: RequestLimits,
    *,
    compression: Compression = "gzip",
    encodings: Collection[Compression] = ("gzip", "zstd", "none"),
    url_ref: KeyRef | None = None,
) -> HttpFields:
    """Make the fields for reaching a product and limiting its requests. Problems are reported."""
    way = http_way(model, report, url, compression=compression, encodings=encodings, url_ref=url_ref)
    return HttpFields(**common, sending=sending_of(model, **limits._asdict()), http=way)


def http_way(
    model: HttpModel,
    report: SinkReport,
    url: str,
    *,
    compression: Compression = "gzip",
    encodings: Collection[Compression] = ("gzip", "zstd", "none"),
    url_ref: KeyRef | None = None,
) -> HttpWay:
    """Make the address and TLS settings. Reports problems with the address, headers, and a compression that is not in
    the product's `encodings`."""
    if model.compression is not None and model.compression not in encodings:
        report.problem("compression", f"{model.compression} is not supported; choose one of {', '.join(encodings)}")
    if url_ref is None and (url or getattr(model, "url", None) is not None):
        fault = url_fault(url)
        if fault is not None:
            report.problem("url", f"{url!r} {fault}")
    seen: set[str] = set()
    for name, value in model.headers.items():
        fault = "stands there twice" if name.lower() in seen else _header_fault(name, value)
        seen.add(name.lower())
        if fault is not None:
            report.problem("headers", f"{name!r} {fault}")
    return HttpWay(
        url=url.rstrip("/"),
        url_ref=url_ref,
        ca=None if model.ca_file is None else KeyRef(file=model.ca_file),
        compression=model.compression or compression,
        headers=tuple(model.headers.items()),
    )


def header_name_fault(name: str) -> str | None:
    """What is wrong with a header name, as the end of a sentence; None if a user may set it."""
    if not _HEADER_NAME.fullmatch(name):
        return "is not a valid name of a header"
    return "is set by the sink itself" if name.lower() in _OWN_HEADERS else None


def check_header_value(report: SinkReport, key: str, value: str | None) -> None:
    """Report a key whose value is sent as a header but is not valid in one."""
    if value is not None and not _HEADER_VALUE.fullmatch(value):
        report.problem(key, f"{value!r} has characters that no header may have")


def _header_fault(name: str, value: str) -> str | None:
    if not _HEADER_VALUE.fullmatch(value):
        return "has a value with characters that no header may have"
    if name.lower() in _CREDENTIAL_HEADERS:
        return "would be stored in plans; name the credential with a key that ends with _env or _file"
    return header_name_fault(name)
