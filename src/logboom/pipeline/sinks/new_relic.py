"""The sink `new_relic`: logs for New Relic, by "Introduction to the Log API" of its documentation (`POST /log/v1`).

Limits: 1 MB (10^6 bytes) for a request, 255 attributes for a log, 255 characters for names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from logboom.pipeline.event.record import EventRecord, attributes_of
from logboom.pipeline.plan.nodes import KeyRef
from logboom.pipeline.sinks.base import CommonFields, SinkReport
from logboom.pipeline.sinks.bulk.model import secret_of
from logboom.pipeline.sinks.bulk.opening import bulk_sink_type
from logboom.pipeline.sinks.bulk.target import BulkResponse, Encoded, Item, UnfitError
from logboom.pipeline.sinks.http.answers import HttpAnswer
from logboom.pipeline.sinks.http.model import GZIP_ALONE, HttpModel, HttpSink, RequestLimits, http_fields
from logboom.pipeline.sinks.http.target import HttpTarget
from logboom.pipeline.sinks.http.times import event_microseconds

_LIMITS: Final = RequestLimits(900_000, 2_000)
_URLS: Final[Mapping[str, str]] = {
    "us": "https://log-api.newrelic.com",
    "eu": "https://log-api.eu.newrelic.com",
    "fedramp": "https://gov-log-api.newrelic.com",
}
_ATTRIBUTES_MAX: Final = 255
_NAME_MAX: Final = 255
_encode = msgspec.json.encode


class NewRelicModel(HttpModel):
    """Logs for New Relic."""

    type: Literal["new_relic"]
    region: Literal["us", "eu", "fedramp"] = "us"
    url: str | None = None
    """Another address than the region's, such as a proxy's."""

    license_key_env: str | None = None
    license_key_file: str | None = None


class NewRelicSink(HttpSink, frozen=True, kw_only=True, tag="new_relic"):
    """Logs for New Relic."""

    license_key: KeyRef

    @property
    def credentials(self) -> tuple[tuple[str, KeyRef], ...]:
        return (("license_key", self.license_key),)

    def open_target(self, secrets: Mapping[str, str]) -> NewRelicTarget:
        """The Log API of the region."""
        return NewRelicTarget(self.client(secrets, {"api-key": secrets[self.license_key.id]}))


class NewRelicTarget(HttpTarget):
    """One Log API."""

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """Encode a log with its attributes. The event's own fields have OpenTelemetry's names."""
        given: dict[str, Any] = {
            "service.name": event.service,
            "hostname": event.host,
            "level": event.severity_text,
            "trace.id": event.trace_id,
            "span.id": event.span_id,
            "logboom.event_id": event.event_id,
        }
        if event.weight != 1.0:
            given["logboom.weight"] = event.weight
        attributes = {**attributes_of(event), **{name: text for name, text in given.items() if text is not None}}
        if len(attributes) > _ATTRIBUTES_MAX:
            raise UnfitError(f"the log has {len(attributes)} attributes, and New Relic accepts {_ATTRIBUTES_MAX}")
        longest = max(map(len, attributes))
        if longest > _NAME_MAX:
            raise UnfitError(f"an attribute has a name of {longest} characters, and New Relic accepts {_NAME_MAX}")
        log: dict[str, Any] = {"message": event.body or "", "attributes": attributes}
        micros = event_microseconds(event)
        if micros is not None:
            log["timestamp"] = micros // 1_000
        return Encoded(_encode(log))

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send one request."""
        self.check(self._post(b",".join([item.payload for item in items])))
        return BulkResponse()

    def probe(self) -> None:
        """Send no logs, which an API that accepts the key answers with 202 or 400."""
        answer = self._post(b"")
        if answer.status != 400:
            self.check(answer)

    def _post(self, logs: bytes) -> HttpAnswer:
        return self.client.post("/log/v1", b'[{"logs":[%b]}]' % logs, "application/json")


def _compile(model: NewRelicModel, common: CommonFields, report: SinkReport) -> NewRelicSink | None:
    license_key = secret_of(model, "license_key", report, needed=True)
    url = model.url or _URLS[model.region]
    fields = http_fields(model, common, report, url, _LIMITS, encodings=GZIP_ALONE)
    return None if license_key is None else NewRelicSink(**fields, license_key=license_key)


SINK: Final = bulk_sink_type("new_relic", NewRelicModel, NewRelicSink, _compile)
