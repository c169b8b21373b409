"""The sink `datadog_logs`: logs for Datadog, through "Send logs" of its API reference (`POST /api/v2/logs`).

Limits of the API: 5 MB and 1,000 logs in a request before compression. A log above 1 MB is truncated by Datadog.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from logboom.pipeline.event.record import EventRecord, attributes_of
from logboom.pipeline.plan.nodes import KeyRef
from logboom.pipeline.sinks.base import CommonFields, SinkReport
from logboom.pipeline.sinks.bulk.model import secret_of
from logboom.pipeline.sinks.bulk.opening import bulk_sink_type
from logboom.pipeline.sinks.bulk.target import BulkResponse, Encoded, Item, UnfitError
from logboom.pipeline.sinks.http.model import GZIP_ALONE, HttpModel, HttpSink, RequestLimits, http_fields
from logboom.pipeline.sinks.http.target import HttpTarget
from logboom.pipeline.sinks.http.templates import Template, check_template

if TYPE_CHECKING:
    from logboom.pipeline.sinks.http.client import HttpClient

_LIMITS: Final = RequestLimits(4_900_000, 1_000)
"""Leaves space for brackets and commas."""
_LOG_MAX_BYTES: Final = 1_000_000
_encode = msgspec.json.encode


class DatadogLogsModel(HttpModel):
    """Logs for Datadog."""

    type: Literal["datadog_logs"]
    site: Literal[
        "datadoghq.com",
        "us3.datadoghq.com",
        "us5.datadoghq.com",
        "datadoghq.eu",
        "ap1.datadoghq.com",
        "ap2.datadoghq.com",
        "uk1.datadoghq.com",
        "ddog-gov.com",
        "us2.ddog-gov.com",
    ] = "datadoghq.com"
    url: str | None = None
    """Another address than the site's, such as a proxy's."""

    api_key_env: str | None = None
    api_key_file: str | None = None
    ddsource: str = "{source}"
    """Datadog's `ddsource`: the integration, which selects Datadog's own pipeline. May contain fields of the event,
    such as `{service}`."""

    ddtags: str | None = None
    """Tags, `env:prod,team:shop`. May contain fields of the event."""


class DatadogLogsSink(HttpSink, frozen=True, kw_only=True, tag="datadog_logs"):
    """Logs for Datadog."""

    api_key: KeyRef
    ddsource: str
    ddtags: str | None = None

    @property
    def credentials(self) -> tuple[tuple[str, KeyRef], ...]:
        return (("api_key", self.api_key),)

    def open_target(self, secrets: Mapping[str, str]) -> DatadogLogsTarget:
        """The intake of the site."""
        return DatadogLogsTarget(self, self.client(secrets, {"dd-api-key": secrets[self.api_key.id]}))


class DatadogLogsTarget(HttpTarget):
    """One intake."""

    def __init__(self, sink: DatadogLogsSink, client: HttpClient) -> None:
        super().__init__(client)
        self._source = Template(sink.ddsource)
        self._tags = None if sink.ddtags is None else Template(sink.ddtags)

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """Encode a log: Datadog's own fields, and the attributes beside them."""
        given: dict[str, Any] = {
            "ddsource": self._source.render(event),
            "ddtags": None if self._tags is None else self._tags.render(event),
            "hostname": event.host,
            "service": event.service,
            "message": event.body,
            "status": event.severity_text,
            "timestamp": event.time or event.observed_time,
            "trace_id": event.trace_id,
            "span_id": event.span_id,
            "logboom.event_id": event.event_id,
        }
        if event.weight != 1.0:
            given["logboom.weight"] = event.weight
        log = _encode({**attributes_of(event), **{name: text for name, text in given.items() if text is not None}})
        if len(log) > _LOG_MAX_BYTES:
            raise UnfitError(f"the log takes {len(log)} bytes, and Datadog truncates logs longer than {_LOG_MAX_BYTES}")
        return Encoded(log)

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send one request."""
        body = b"[%b]" % b",".join([item.payload for item in items])
        self.check(self.client.post("/api/v2/logs", body, "application/json"))
        return BulkResponse()

    def probe(self) -> None:
        """Send an empty list, which an intake that accepts the key answers with 202 or 400."""
        answer = self.client.post("/api/v2/logs", b"[]", "application/json")
        if answer.status != 400:
            self.check(answer)


def _compile(model: DatadogLogsModel, common: CommonFields, report: SinkReport) -> DatadogLogsSink | None:
    check_template(report, "ddsource", model.ddsource)
    if model.ddtags is not None:
        check_template(report, "ddtags", model.ddtags)
    api_key = secret_of(model, "api_key", report, needed=True)
    url = model.url or f"https://http-intake.logs.{model.site}"
    fields = http_fields(model, common, report, url, _LIMITS, encodings=GZIP_ALONE)
    if api_key is None:
        return None
    return DatadogLogsSink(
        **fields,
        api_key=api_key,
        ddsource=model.ddsource,
        ddtags=model.ddtags,
    )


SINK: Final = bulk_sink_type("datadog_logs", DatadogLogsModel, DatadogLogsSink, _compile)
