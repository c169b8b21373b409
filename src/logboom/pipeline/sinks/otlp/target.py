"""An OTLP receiver as a target: sends events as log records, or the metrics of `aggregate` as data points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logboom.pipeline.event.record import EventRecord
from logboom.pipeline.sinks.bulk.target import BulkResponse, Encoded, Item
from logboom.pipeline.sinks.http.protobuf import bytes_field, text_field
from logboom.pipeline.sinks.metric_points import point_of
from logboom.pipeline.sinks.otlp.exporting import Exporter
from logboom.pipeline.sinks.otlp.metrics import metric
from logboom.pipeline.sinks.otlp.records import key_value, log_record

_SCOPE: Final = bytes_field(1, text_field(1, "logboom"))


class OtlpTarget:
    """One receiver."""

    def __init__(self, exporter: Exporter, *, has_metrics: bool) -> None:
        self._exporter = exporter
        self._has_metrics = has_metrics
        self._resources: dict[str, bytes] = {}

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """Encode a LogRecord or a Metric. Events of the same service and host share a resource."""
        payload = metric(point_of(event)) if self._has_metrics else log_record(event)
        group = f"{event.service or ''}\0{event.host or ''}"
        if group not in self._resources:
            named = (("service.name", event.service), ("host.name", event.host))
            self._resources[group] = bytes_field(1, b"".join(key_value(1, key, text) for key, text in named if text))
        return Encoded(bytes_field(2, payload), group)

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send one export. A receiver reports how many records it refuses, but not which ones: so all of the request
        become dead letters, with its reason."""
        groups: dict[str, list[bytes]] = {}
        for item in items:
            groups.setdefault(item.group, []).append(item.payload)
        parts = [
            bytes_field(1, self._resources[group] + bytes_field(2, _SCOPE + b"".join(records)))
            for group, records in groups.items()
        ]
        partial = self._exporter.export(b"".join(parts))
        if not partial.rejected:
            return BulkResponse()
        count, place = len(items), self._exporter.place
        which = f" {partial.rejected} of the {count} records of this request, perhaps this one"
        reason = (
            f"{place} refused{' it' if partial.rejected == count else which}: {partial.message or 'without a reason'}"
        )
        return BulkResponse(refused=dict.fromkeys(range(count), reason))

    def probe(self) -> None:
        """Export nothing, to check the connection."""
        self._exporter.export(b"")

    def close(self) -> None:
        """Close the connections."""
        self._exporter.close()
