"""The sink `otlp`: log records for whatever takes the OpenTelemetry protocol over HTTP, in Protocol Buffers.

"OTLP/HTTP" of the OpenTelemetry Protocol Specification 1.5, and `opentelemetry/proto/logs/v1/logs.proto`. Presets have
the addresses and headers that vendors document for it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from logboom.base.units import MIB
from logboom.pipeline.event.record import EventRecord, attributes_of
from logboom.pipeline.plan.nodes import KeyRef
from logboom.pipeline.sinks.base import CommonFields, SinkReport, SinkType
from logboom.pipeline.sinks.bulk.model import secret_of, sending_of
from logboom.pipeline.sinks.bulk.target import Answer, Encoded, Item, TryAgainError
from logboom.pipeline.sinks.http.answers import HttpAnswer
from logboom.pipeline.sinks.http.model import (
    BasicAuth,
    BasicAuthModel,
    HttpModel,
    HttpSink,
    basic_auth,
    connect_http,
    header_name_fault,
    http_way,
    open_http,
)
from logboom.pipeline.sinks.http.protobuf import bytes_field, fields_of, fixed64_field, text_field, whole_field
from logboom.pipeline.sinks.http.target import HttpTarget
from logboom.pipeline.sinks.http.times import microseconds

if TYPE_CHECKING:
    from logboom.pipeline.sinks.http.client import HttpClient

_MAX_BYTES: Final = 2 * MIB
_MAX_EVENTS: Final = 2_000
_NANOS_MAX: Final = (1 << 64) - 1
_INT_MAX: Final = 1 << 63
_REPORTED_REFUSED: Final = (400, 413, 415, 422)


class _Preset(msgspec.Struct, frozen=True):
    """What a vendor documents; `{region}` is the key `region` of the sink."""

    url: str
    header: str | None
    """The header that has the token; None for basic authentication."""
    scheme: str = ""
    """What stands before the token in it."""


PRESETS: Final[Mapping[str, _Preset]] = {
    "axiom": _Preset("https://api.axiom.co", "authorization", "Bearer "),
    "dynatrace": _Preset("https://{region}.live.dynatrace.com/api/v2/otlp", "authorization", "Api-Token "),
    "grafana_cloud": _Preset("https://otlp-gateway-{region}.grafana.net/otlp", None),
    "honeycomb": _Preset("https://api.honeycomb.io", "x-honeycomb-team"),
    "new_relic": _Preset("https://otlp.nr-data.net", "api-key"),
    "new_relic_eu": _Preset("https://otlp.eu01.nr-data.net", "api-key"),
    "signoz": _Preset("https://ingest.{region}.signoz.cloud", "signoz-ingestion-key"),
}


class OtlpModel(HttpModel):
    """A receiver of the OpenTelemetry protocol."""

    type: Literal["otlp"]
    url: str | None = None
    """What `/v1/logs` is put behind, as `OTEL_EXPORTER_OTLP_ENDPOINT` has it; or give a `preset`."""

    preset: (
        Literal["axiom", "dynatrace", "grafana_cloud", "honeycomb", "new_relic", "new_relic_eu", "signoz"] | None
    ) = None
    """A vendor, whose address and header for the token are known."""

    region: str | None = None
    """The part of a preset's address that is yours: a zone, a region or an environment."""

    token_env: str | None = None
    token_file: str | None = None
    token_header: str | None = None
    """The header that has the token as it is; default: the preset's, else `Authorization: Bearer`."""

    auth: BasicAuthModel | None = None


class OtlpSink(HttpSink, frozen=True, kw_only=True, tag="otlp"):
    """A receiver of the OpenTelemetry protocol."""

    auth: BasicAuth | None = None
    token: KeyRef | None = None
    token_header: str = "authorization"  # noqa: S105 - the name of a header
    token_scheme: str = "Bearer "  # noqa: S105 - what stands before the token

    @property
    def credentials(self) -> tuple[tuple[str, KeyRef], ...]:
        password = () if self.auth is None else (("auth", self.auth.password),)
        return password if self.token is None else (*password, ("token", self.token))

    def open_target(self, secrets: Mapping[str, str]) -> OtlpTarget:
        """The receiver."""
        headers: dict[str, str] = {}
        if self.auth is not None:
            headers["authorization"] = self.auth.header(secrets)
        elif self.token is not None:
            headers[self.token_header] = f"{self.token_scheme}{secrets[self.token.id]}"
        return OtlpTarget(self.client(secrets, headers))


class OtlpTarget(HttpTarget):
    """One receiver."""

    def __init__(self, client: HttpClient) -> None:
        super().__init__(client)
        self._resources: dict[str, bytes] = {}

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """A LogRecord; events of one service and host share a resource."""
        group = f"{event.service or ''}\0{event.host or ''}"
        if group not in self._resources:
            named = (("service.name", event.service), ("host.name", event.host))
            self._resources[group] = bytes_field(1, b"".join(_key_value(1, key, text) for key, text in named if text))
        return Encoded(bytes_field(2, log_record(event)), group)

    def send(self, items: Sequence[Item]) -> Answer:
        """One ExportLogsServiceRequest."""
        groups: dict[str, list[bytes]] = {}
        for item in items:
            groups.setdefault(item.group, []).append(item.payload)
        parts = [
            bytes_field(1, self._resources[group] + bytes_field(2, _SCOPE + b"".join(records)))
            for group, records in groups.items()
        ]
        answer = self.client.post("/v1/logs", b"".join(parts), "application/x-protobuf")
        self.check(answer, refused=_REPORTED_REFUSED)
        return self._partial(answer, len(items))

    def probe(self) -> None:
        """Exports no record."""
        self.check(self.client.post("/v1/logs", b"", "application/x-protobuf"))

    def _partial(self, answer: HttpAnswer, count: int) -> Answer:
        """A receiver says how many records it refuses, but not which: all of the request die, with its reason."""
        try:
            rejected, message = _partial_success(answer)
        except (ValueError, msgspec.DecodeError) as error:
            raise TryAgainError(f"{self.place} gave an answer that cannot be read") from error
        if not rejected:
            return Answer()
        which = "" if rejected == count else f" {rejected} of the {count} records of this request, perhaps this one"
        reason = f"{self.place} refused{which or ' it'}: {message or 'without a reason'}"
        return Answer(refused=dict.fromkeys(range(count), reason))


def _partial_success(answer: HttpAnswer) -> tuple[int, str]:
    """How many records were refused, and why."""
    if answer.headers.get("content-type", "").startswith("application/json"):
        told = msgspec.json.decode(answer.body or b"{}", type=dict[str, Any]).get("partialSuccess") or {}
        return int(told.get("rejectedLogRecords", 0)), str(told.get("errorMessage", ""))
    rejected, message = 0, ""
    for field, partial in fields_of(answer.body):
        if field == 1 and isinstance(partial, bytes):
            for inner, value in fields_of(partial):
                if inner == 1 and isinstance(value, int):
                    rejected = value
                elif inner == 2 and isinstance(value, bytes):
                    message = value.decode("utf-8", errors="replace")
    return rejected, message


def log_record(event: EventRecord) -> bytes:
    """A LogRecord; what its own fields cannot hold is an attribute."""
    parts: list[bytes] = []
    attributes = attributes_of(event)
    for field, time, name in ((1, event.time, "logboom.time"), (11, event.observed_time, "logboom.observed_time")):
        if time is None:
            continue
        nanos = microseconds(time) * 1_000
        if 0 <= nanos <= _NANOS_MAX:
            parts.append(fixed64_field(field, nanos.to_bytes(8, "little")))
        else:
            attributes[name] = time
    if event.severity_number:
        parts.append(whole_field(2, event.severity_number))
    if event.severity_text is not None:
        parts.append(text_field(3, event.severity_text))
    if event.body is not None:
        parts.append(bytes_field(5, any_value(event.body)))
    attributes["logboom.event_id"] = event.event_id
    if event.weight != 1.0:
        attributes["logboom.weight"] = event.weight
    parts += [_key_value(6, name, value) for name, value in attributes.items()]
    for field, digits, length in ((9, event.trace_id, 32), (10, event.span_id, 16)):
        if digits is not None and len(digits) == length:
            parts.append(bytes_field(field, bytes.fromhex(digits)))
    return b"".join(parts)


def _key_value(field: int, key: str, value: Any) -> bytes:
    return bytes_field(field, text_field(1, key) + bytes_field(2, any_value(value)))


def any_value(value: Any) -> bytes:
    """An AnyValue; nothing is in it for null, and a whole number of more than 64 bits is a text."""
    if isinstance(value, str):
        return text_field(1, value)
    if isinstance(value, bool):
        return whole_field(2, int(value))
    if isinstance(value, int):
        return whole_field(3, value) if -_INT_MAX <= value < _INT_MAX else text_field(1, str(value))
    if isinstance(value, float):
        return fixed64_field(4, struct.pack("<d", value))
    if isinstance(value, list):
        return bytes_field(5, b"".join(bytes_field(1, any_value(each)) for each in value))
    if isinstance(value, dict):
        return bytes_field(6, b"".join(_key_value(1, key, each) for key, each in value.items()))
    return b""


_SCOPE: Final = bytes_field(1, text_field(1, "logboom"))


def _compile(model: OtlpModel, common: CommonFields, report: SinkReport) -> OtlpSink:
    preset = None if model.preset is None else PRESETS[model.preset]
    if preset is None and model.url is None:
        report.problem("url", "is missing: name the receiver, or a preset")
    if preset is not None and model.url is None and ("{region}" in preset.url) != (model.region is not None):
        needs = "is needed by" if model.region is None else "has no meaning with"
        report.problem("region", f"{needs} preset {model.preset}")
    token = secret_of(model, "token", report)
    if token is not None and model.auth is not None:
        report.problem("auth", "and a token are two credentials; give one")
    if preset is not None and preset.header is None and model.auth is None:
        report.problem("auth", f"is needed by preset {model.preset}: user and password_env or password_file")
    if preset is not None and preset.header is not None and token is None:
        report.problem("token_env", f"is needed by preset {model.preset}, or token_file")
    if model.token_header is not None and (fault := header_name_fault(model.token_header)) is not None:
        report.problem("token_header", fault)
    url = model.url or ("" if preset is None else preset.url.replace("{region}", model.region or "region"))
    header, scheme = "authorization", "Bearer "
    if preset is not None and preset.header is not None:
        header, scheme = preset.header, preset.scheme
    if model.token_header is not None:
        header, scheme = model.token_header, ""
    return OtlpSink(
        **common,
        sending=sending_of(model, max_bytes=_MAX_BYTES, max_events=_MAX_EVENTS),
        http=http_way(model, report, url),
        auth=basic_auth(model.auth, report, "auth"),
        token=token,
        token_header=header,
        token_scheme=scheme,
    )


SINK: Final = SinkType("otlp", OtlpModel, OtlpSink, _compile, open_http, connect_http)
