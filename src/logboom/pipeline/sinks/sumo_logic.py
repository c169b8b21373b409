"""The sink `sumo_logic`: lines for an HTTP source of Sumo Logic.

"Upload logs to an HTTP Source" in its documentation. The address of the source is the credential.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from pydantic import Field

from logboom.pipeline.event.record import EventRecord
from logboom.pipeline.plan.nodes import KeyRef
from logboom.pipeline.sinks.base import CommonFields, SinkReport
from logboom.pipeline.sinks.bulk.model import secret_of
from logboom.pipeline.sinks.bulk.opening import bulk_sink_type
from logboom.pipeline.sinks.bulk.target import BulkResponse, Encoded, Item
from logboom.pipeline.sinks.http.model import GZIP_ALONE, HttpModel, HttpSink, RequestLimits, http_fields
from logboom.pipeline.sinks.http.target import HttpTarget

_LIMITS: Final = RequestLimits(1_000_000, 5_000)


class SumoLogicModel(HttpModel):
    """An HTTP source of Sumo Logic."""

    type: Literal["sumo_logic"]
    url_env: str | None = None
    """Environment variable that holds the address of the source, which is a secret."""

    url_file: str | None = None
    category: str | None = None
    """`X-Sumo-Category`; default: the source's own. The same for `host` and `name`."""

    host: str | None = None
    name: str | None = None
    fields: dict[str, str] = Field(default_factory=dict)
    """`X-Sumo-Fields`."""


class SumoLogicSink(HttpSink, frozen=True, kw_only=True, tag="sumo_logic"):
    """An HTTP source of Sumo Logic."""

    metadata: tuple[tuple[str, str], ...] = ()
    """The `X-Sumo-...` headers."""

    def open_target(self, secrets: Mapping[str, str]) -> SumoLogicTarget:
        """The source."""
        return SumoLogicTarget(self.client(secrets, dict(self.metadata)))


class SumoLogicTarget(HttpTarget):
    """One source."""

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """Encode the event as one line."""
        return Encoded(value)

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Send one request."""
        body = b"\n".join([item.payload for item in items])
        self.check(self.client.post("", body, "application/x-ndjson"))
        return BulkResponse()

    def probe(self) -> None:
        """Send an empty body."""
        self.check(self.client.post("", b"", "application/x-ndjson"))


def _compile(model: SumoLogicModel, common: CommonFields, report: SinkReport) -> SumoLogicSink | None:
    url_ref: KeyRef | None = secret_of(model, "url", report, needed=True)
    given = {"x-sumo-category": model.category, "x-sumo-host": model.host, "x-sumo-name": model.name}
    if model.fields:
        given["x-sumo-fields"] = ",".join(f"{name}={text}" for name, text in model.fields.items())
    for name, value in model.fields.items():
        if not name or "=" in name or "," in name + value:
            report.problem("fields", f"{name!r} may have no '=', and neither it nor its value a comma")
    for text in given.values():
        if text is not None and not (text.isascii() and text.isprintable()):
            report.problem("category", f"{text!r} has characters that no header may have")
    fields = http_fields(model, common, report, "", _LIMITS, url_ref=url_ref, encodings=GZIP_ALONE)
    if url_ref is None:
        return None
    metadata = tuple((name, text) for name, text in given.items() if text is not None)
    return SumoLogicSink(**fields, metadata=metadata)


SINK: Final = bulk_sink_type("sumo_logic", SumoLogicModel, SumoLogicSink, _compile)
