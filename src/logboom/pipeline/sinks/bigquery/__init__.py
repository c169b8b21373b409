"""The sink `bigquery`: rows of a table of BigQuery, by the Storage Write API over gRPC.

With `delivery: exactly_once` each task writes to a stream of its own (type PENDING), which the driver commits. With
`at_least_once` tasks write to the table's default stream. `rows` encodes events, `calls` makes the API's calls,
`target` sends rows from executors; `committing` and `delivery` run on the driver for `exactly_once`.

See "Storage Write API" in BigQuery's documentation: "Use the default stream for at-least-once semantics", "Write to a
pending stream". A request contains a Protocol Buffers description of its rows, and the rows in that form. If BigQuery
refuses rows, it writes none of the request, and its answer has a reason for each refused row (`row_errors`).

This module has the sink's keys and plan node. It must stay cheap to import.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from pydantic import Field

from logboom.base.settings import Settings
from logboom.pipeline.event.fields import COLUMNS, is_field
from logboom.pipeline.sinks.base import CommonFields, SinkContext, SinkReport, SinkWriter
from logboom.pipeline.sinks.bulk.model import Sending, secret_of
from logboom.pipeline.sinks.bulk.opening import bulk_sink_type
from logboom.pipeline.sinks.grpc.opening import check_metadata, grpc_client
from logboom.pipeline.sinks.http.google import GoogleModel, GoogleSink
from logboom.pipeline.sinks.http.model import GZIP_ALONE, RequestLimits, http_fields

if TYPE_CHECKING:
    from logboom.pipeline.sinks.bigquery.calls import WriteApi
    from logboom.pipeline.sinks.bigquery.committing import Committer
    from logboom.pipeline.sinks.bulk.target import Target

BigQueryKind = Literal["string", "long", "double", "boolean"]
_Kind = Literal["string", "long", "double", "boolean", "time"]
Delivery = Literal["exactly_once", "at_least_once"]
_SCOPE: Final = "https://www.googleapis.com/auth/bigquery.insertdata"
_LIMITS: Final = RequestLimits(8_000_000, 5_000)
_COMMIT_INTERVAL_MS: Final = 10_000
"""10,000 streams may be created per hour, project and region ("Quotas and limits"). A commit takes one for each
partition that has rows."""
_COMMIT_RECORDS_MAX: Final = 500_000
_COLUMN_NAME_MAX: Final = 300
_NAMES: Final = {
    "project": (re.compile(r"[a-z0-9.:-]{4,63}"), "4 to 63 small letters, digits and '-'"),
    "dataset": (re.compile(r"[A-Za-z0-9_]{1,1024}"), "letters, digits and '_'"),
    "table": (re.compile(r"[A-Za-z0-9_-]{1,1024}"), "letters, digits, '_' and '-'"),
}
"""Rules for names, by key ("Naming datasets", "Table naming"), limited to characters that need no escaping in
requests."""
_KINDS: Final[Mapping[str, _Kind]] = {
    "time": "time",
    "observed_time": "time",
    "severity_number": "long",
    "partition": "long",
    "offset": "long",
    "weight": "double",
}
"""Column types of the event's own fields; other fields are strings."""


class BigQueryColumnModel(Settings):
    """A column for a field."""

    field: str
    """A field of the event, or `attributes.NAME`."""

    type: BigQueryKind = "string"
    """Type of an attribute's column. Use `string` also for columns of type JSON, NUMERIC, DATE and TIMESTAMP, which
    BigQuery parses from text."""


class BigQueryModel(GoogleModel):
    """Rows of a table of BigQuery."""

    type: Literal["bigquery"]
    dataset: str
    table: str
    columns: dict[str, str | BigQueryColumnModel] = Field(default_factory=dict)
    """Field of the event or `attributes.NAME`, by column. By default each field has a column of its name."""

    delivery: Delivery = "exactly_once"
    """Through streams that are committed with each batch, or through the default stream, whose rows are visible at
    once."""

    url: str = "https://bigquerystorage.googleapis.com"


class BigQueryColumn(msgspec.Struct, frozen=True):
    """A column of the table."""

    name: str
    field: str
    kind: _Kind


class BigQuerySink(GoogleSink, frozen=True, kw_only=True, tag="bigquery"):
    """Rows of a table of BigQuery."""

    dataset: str
    table: str
    columns: tuple[BigQueryColumn, ...]

    delivery: Delivery | msgspec.UnsetType = msgspec.UNSET
    """The default is for plans of versions that had only the default stream."""

    @property
    def is_committed(self) -> bool:
        """Whether rows become visible by a commit, so that each is written once."""
        return self.delivery == "exactly_once"

    @property
    def batch_records_max(self) -> int:
        return _COMMIT_RECORDS_MAX if self.is_committed else super().batch_records_max

    def open_target(self, secrets: Mapping[str, str]) -> Target:
        """Opens the table, with tokens of the service account."""
        from logboom.pipeline.sinks.bigquery.rows import RowEncoder
        from logboom.pipeline.sinks.bigquery.target import DefaultStreamTarget, PendingStreamTarget

        rows = RowEncoder(self.columns)
        if not self.is_committed:
            return DefaultStreamTarget(self._api(secrets), rows)
        return PendingStreamTarget(self._api(secrets), rows, self._retry_for_s)

    def open_committer(self, secrets: Mapping[str, str]) -> Committer:
        """Makes the object that commits the rows of tasks."""
        from logboom.pipeline.sinks.bigquery.committing import Committer

        return Committer(self._api(secrets), self._retry_for_s)

    @property
    def _retry_for_s(self) -> float:
        return self.sending.retry_for_ms / 1_000

    def _api(self, secrets: Mapping[str, str]) -> WriteApi:
        from logboom.pipeline.sinks.bigquery.calls import WriteApi

        table = f"projects/{self.project}/datasets/{self.dataset}/tables/{self.table}"
        return WriteApi(table, grpc_client(self, secrets, {}), self.tokens(secrets, _SCOPE))


def _compile(model: BigQueryModel, common: CommonFields, report: SinkReport) -> BigQuerySink | None:
    for part, (form, rule) in _NAMES.items():
        text = getattr(model, part)
        if not form.fullmatch(text):
            report.problem(part, f"{text[:100]!r} is not a valid name of a {part}: {rule}")
    seen: set[str] = set()
    for name in model.columns:
        if name.lower() in seen:
            report.problem("columns", f"{name!r} differs only in case from another column; BigQuery ignores case")
        seen.add(name.lower())
    columns = []
    for name, given in (model.columns or {name: name for name in COLUMNS}).items():
        column = BigQueryColumnModel(field=given) if isinstance(given, str) else given
        if not is_field(column.field):
            report.unknown("columns", "field", column.field, [*COLUMNS, "attributes.NAME"])
        if not name.isascii() or not name.isidentifier() or len(name) > _COLUMN_NAME_MAX:
            report.problem(
                "columns", f"{name[:100]!r} is not a valid name of a column: letters, digits and '_', at most 300"
            )
        kind = column.type if column.field not in COLUMNS else _KINDS.get(column.field, "string")
        columns.append(BigQueryColumn(name, column.field, kind))
    check_metadata(report, model.headers)
    key = secret_of(model, "key", report, needed=True)
    fields = http_fields(model, common, report, model.url, _LIMITS, encodings=GZIP_ALONE)
    if model.delivery == "exactly_once":
        fields["sending"] = _in_order(fields["sending"], model, report)
    if key is None:
        return None
    return BigQuerySink(
        **fields,
        project=model.project,
        dataset=model.dataset,
        table=model.table,
        columns=tuple(columns),
        key=key,
        delivery=model.delivery,
    )


def _in_order(sending: Sending, model: BigQueryModel, report: SinkReport) -> Sending:
    """Sending limits for committed rows: a stream accepts one request at a time."""
    if model.concurrency is not None and model.concurrency > 1:
        report.problem(
            "concurrency",
            "needs `delivery: at_least_once`: with exactly_once each partition has a stream, which accepts one "
            "request at a time",
        )
    has_age = "max_age" in model.batch.model_fields_set
    max_age_ms = sending.max_age_ms if has_age else _COMMIT_INTERVAL_MS
    return msgspec.structs.replace(sending, concurrency=1, max_age_ms=max_age_ms)


def _open(sink: BigQuerySink, context: SinkContext) -> SinkWriter:
    from logboom.pipeline.sinks.bigquery.delivery import CommittingWriter
    from logboom.pipeline.sinks.bulk.writer import BulkWriter

    return CommittingWriter(sink, context) if sink.is_committed else BulkWriter(sink, context)


def _check_installed(sink: BigQuerySink) -> None:
    from logboom.pipeline.sinks.grpc.client import needs_grpc

    needs_grpc("the sink bigquery")


SINK: Final = bulk_sink_type("bigquery", BigQueryModel, BigQuerySink, _compile, needs=_check_installed, writer=_open)
