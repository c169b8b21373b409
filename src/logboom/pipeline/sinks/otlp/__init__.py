"""The sink `otlp`: sends logs and metrics to receivers of the OpenTelemetry protocol, over HTTP or gRPC.

`records` and `metrics` encode messages, `exporting` sends them, `target` combines them. Presets have the addresses and
headers that vendors document. This module must stay cheap to import, because `pipeline check` imports it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

import msgspec

from logboom.base.units import MIB
from logboom.pipeline.sinks.base import CommonFields, SinkReport
from logboom.pipeline.sinks.bulk.opening import bulk_sink_type
from logboom.pipeline.sinks.grpc.opening import check_metadata, grpc_client
from logboom.pipeline.sinks.http.authorization import AuthorizedModel, AuthorizedSink, authorization_of
from logboom.pipeline.sinks.http.model import RequestLimits, header_name_fault, http_fields

if TYPE_CHECKING:
    from logboom.pipeline.sinks.bulk.target import Target
    from logboom.pipeline.sinks.otlp.exporting import Exporter

_REGION: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,98}[A-Za-z0-9])?")
_MAX_BYTES: Final = 2 * MIB
_MAX_EVENTS: Final = 2_000
_NEW_RELIC_MAX_BYTES: Final = 900_000
"""New Relic accepts payloads up to 10^6 bytes."""


class _Preset(msgspec.Struct, frozen=True):
    """Address as documented by the vendor; `{region}` is replaced by the sink's key `region`."""

    url: str
    header: str | None
    """The header that has the token; None for basic authentication."""
    scheme: str = ""
    """The text before the token in the header."""
    grpc_url: str | None = None
    """The address for gRPC; None if the vendor has none."""
    max_bytes: int = _MAX_BYTES
    """Size limit of a request before compression."""


PRESETS: Final[Mapping[str, _Preset]] = {
    "axiom": _Preset("https://api.axiom.co", "authorization", "Bearer "),
    "dynatrace": _Preset("https://{region}.live.dynatrace.com/api/v2/otlp", "authorization", "Api-Token "),
    "grafana_cloud": _Preset("https://otlp-gateway-{region}.grafana.net/otlp", None),
    "honeycomb": _Preset("https://api.honeycomb.io", "x-honeycomb-team", grpc_url="https://api.honeycomb.io:443"),
    "new_relic": _Preset(
        "https://otlp.nr-data.net",
        "api-key",
        grpc_url="https://otlp.nr-data.net:4317",
        max_bytes=_NEW_RELIC_MAX_BYTES,
    ),
    "new_relic_eu": _Preset(
        "https://otlp.eu01.nr-data.net",
        "api-key",
        grpc_url="https://otlp.eu01.nr-data.net:4317",
        max_bytes=_NEW_RELIC_MAX_BYTES,
    ),
    "signoz": _Preset(
        "https://ingest.{region}.signoz.cloud",
        "signoz-ingestion-key",
        grpc_url="https://ingest.{region}.signoz.cloud:443",
    ),
}


class OtlpModel(AuthorizedModel):
    """A receiver of the OpenTelemetry protocol."""

    type: Literal["otlp"]
    url: str | None = None
    """Address as in `OTEL_EXPORTER_OTLP_ENDPOINT`: `/v1/logs` or `/v1/metrics` is appended to it. For gRPC it is
    `http://HOST:4317`, or `https://` with TLS. Excludes `preset`."""

    transport: Literal["http", "grpc"] = "http"
    signal: Literal["logs", "metrics"] = "logs"
    """`logs`, or `metrics` for the metrics of `aggregate`."""

    preset: (
        Literal["axiom", "dynatrace", "grafana_cloud", "honeycomb", "new_relic", "new_relic_eu", "signoz"] | None
    ) = None
    """A vendor whose address and token header are known."""

    region: str | None = None
    """Your part of a preset's address: a zone, a region or an environment."""

    token_header: str | None = None
    """The header that contains only the token; default: the preset's, else `Authorization: Bearer`."""


class OtlpSink(AuthorizedSink, frozen=True, kw_only=True, tag="otlp"):
    """A receiver of the OpenTelemetry protocol."""

    token_header: str = "authorization"  # noqa: S105 - the name of a header
    token_scheme: str = "Bearer "  # noqa: S105 - what stands before the token
    transport: Literal["grpc"] | msgspec.UnsetType = msgspec.UNSET
    """The protocol of requests; HTTP by default."""
    signal: Literal["metrics"] | msgspec.UnsetType = msgspec.UNSET
    """What events are sent as; log records by default."""

    def open_target(self, secrets: Mapping[str, str]) -> Target:
        """The receiver."""
        headers = self.authorization(secrets, header=self.token_header, scheme=self.token_scheme)
        from logboom.pipeline.sinks.otlp.target import OtlpTarget

        return OtlpTarget(self._exporter(secrets, headers), has_metrics=self.signal == "metrics")

    def _exporter(self, secrets: Mapping[str, str], headers: Mapping[str, str]) -> Exporter:
        from logboom.pipeline.sinks.otlp.exporting import LOGS, METRICS, GrpcExporter, HttpExporter

        signal = METRICS if self.signal == "metrics" else LOGS
        if self.transport == "grpc":
            return GrpcExporter(grpc_client(self, secrets, headers), signal)
        return HttpExporter(self.client(secrets, headers), signal)


def _compile(model: OtlpModel, common: CommonFields, report: SinkReport) -> OtlpSink:
    preset = None if model.preset is None else PRESETS[model.preset]
    if preset is None and model.url is None:
        report.problem("url", "is missing: name the receiver, or a preset")
    if preset is not None and model.url is None and ("{region}" in preset.url) != (model.region is not None):
        needs = "is needed by" if model.region is None else "has no meaning with"
        report.problem("region", f"{needs} preset {model.preset}")
    if model.region is not None and not _REGION.fullmatch(model.region):
        report.problem("region", f"{model.region!r} is not a part of the name of a server: letters, digits and '-'")
    if model.region is not None and preset is None:
        report.problem("region", "goes with a preset")
    if model.transport == "grpc":
        _check_grpc(model, preset, report)
    authorization = authorization_of(model, report)
    if preset is not None and preset.header is None and model.auth is None:
        report.problem("auth", f"is needed by preset {model.preset}: user and password_env or password_file")
    if preset is not None and preset.header is not None and authorization["token"] is None:
        report.problem("token_env", f"is needed by preset {model.preset}, or token_file")
    if model.token_header is not None and (fault := header_name_fault(model.token_header)) is not None:
        report.problem("token_header", fault)
    url = model.url or _preset_url(model, preset)
    header, scheme = "authorization", "Bearer "
    if preset is not None and preset.header is not None:
        header, scheme = preset.header, preset.scheme
    if model.token_header is not None:
        header, scheme = model.token_header, ""
    limits = RequestLimits(_MAX_BYTES if preset is None else preset.max_bytes, _MAX_EVENTS)
    return OtlpSink(
        **http_fields(model, common, report, url, limits),
        **authorization,
        token_header=header,
        token_scheme=scheme,
        transport="grpc" if model.transport == "grpc" else msgspec.UNSET,
        signal="metrics" if model.signal == "metrics" else msgspec.UNSET,
    )


def _preset_url(model: OtlpModel, preset: _Preset | None) -> str:
    if preset is None:
        return ""
    url = preset.grpc_url if model.transport == "grpc" else preset.url
    return (url or preset.url).replace("{region}", model.region or "region")


def _check_grpc(model: OtlpModel, preset: _Preset | None, report: SinkReport) -> None:
    if preset is not None and preset.grpc_url is None and model.url is None:
        report.problem("transport", f"{model.preset} does not document grpc; leave it out")
    if model.compression == "zstd":
        report.problem("compression", "with gRPC should be gzip or none")
    check_metadata(report, model.headers)
    if model.url is not None and urlsplit(model.url).path not in ("", "/"):
        report.problem("url", "has a path, which gRPC does not use: write http://HOST:PORT, or https://")


def _check_installed(sink: OtlpSink) -> None:
    if sink.transport == "grpc":
        from logboom.pipeline.sinks.grpc.client import needs_grpc

        needs_grpc(f"the sink {sink.name}, with transport: grpc,")


SINK: Final = bulk_sink_type("otlp", OtlpModel, OtlpSink, _compile, needs=_check_installed)
