"""The sink `iceberg`: events as rows of an Apache Iceberg table, each once.

`writing` runs on executors: it converts events to columns, skips those that were delivered before, and writes data
files that no snapshot refers to yet. `delivery` runs on the driver and adds these files to the table in one commit. The
commit also stores the number of the batch in the table, which is checked before a batch is written again. `columns`
defines the columns of the table and adds missing ones. `catalogs` opens the catalog: a REST catalog, or
`hadoop_catalog`, whose tables are directories of a file system and need no server.

pyiceberg implements the format. Iceberg's own runtime for Spark does not load in Spark 4.2 (decision 33).

This module has the sink's keys and plan node and must stay cheap to import: Arrow, Spark and pyiceberg are imported
when the sink is opened.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from pydantic import Field

from logboom.base.settings import DurationMs, Settings
from logboom.base.units import MINUTE_MS
from logboom.pipeline.event.fields import COLUMNS
from logboom.pipeline.plan.locations import path_fault, url_fault
from logboom.pipeline.plan.nodes import KeyRef, Sink
from logboom.pipeline.plan.stores import is_url_of_store
from logboom.pipeline.sinks.base import CommonFields, SinkContext, SinkModel, SinkReport, SinkType, SinkWriter
from logboom.pipeline.sinks.bulk.model import secret_of

IcebergPartition = Literal["date", "hour", "service", "host", "stream", "source"]
IcebergColumnType = Literal["string", "long", "double", "boolean", "timestamptz"]
_ATTRIBUTE: Final = "attributes."
_OWN_PROPERTIES: Final = {"uri": "catalog", "warehouse": "warehouse", "type": "catalog"}
_SECRET_WORDS: Final = ("secret", "token", "password", "credential", "access-key", "sas")


class IcebergColumnModel(Settings):
    """An additional column for an attribute."""

    field: str
    """`attributes.NAME`."""

    type: IcebergColumnType = "string"


class IcebergModel(SinkModel):
    """Rows of an Iceberg table."""

    type: Literal["iceberg"]
    table: str
    """`NAMESPACE.TABLE`. Created if it does not exist."""

    path: str | None = None
    """The directory of a warehouse without a server: its tables are directories, in the layout of Hadoop's catalog."""

    catalog: str | None = None
    """The address of a REST catalog. Excludes `path`."""

    warehouse: str | None = None
    """The name of the warehouse, if the REST catalog has several."""

    token_env: str | None = None
    token_file: str | None = None
    credential_env: str | None = None
    """`CLIENT_ID:CLIENT_SECRET` for OAuth2. Excludes a token."""
    credential_file: str | None = None
    properties: dict[str, str] = Field(default_factory=dict)
    """Additional pyiceberg settings of the catalog and its files (`s3.endpoint`, `s3.region`). Must not contain
    credentials."""

    partition_by: tuple[IcebergPartition, ...] = ("date",)
    """Partitioning of a table that the sink creates; an existing table keeps its own."""

    columns: dict[str, str | IcebergColumnModel] = Field(default_factory=dict)
    """Additional columns: `attributes.NAME` as text, or with a type."""

    interval: DurationMs = Field(default=MINUTE_MS, ge=1_000, le=60 * MINUTE_MS)
    """Time between two commits, each of which makes a snapshot."""


class IcebergColumn(msgspec.Struct, frozen=True):
    """A column for an attribute."""

    name: str
    attribute: str
    type: IcebergColumnType


class IcebergSink(Sink, frozen=True, kw_only=True, tag="iceberg"):
    """Rows of an Iceberg table."""

    table: tuple[str, ...]
    """The parts of its namespace, and its name."""
    path: str | None = None
    catalog: str | None = None
    warehouse: str | None = None
    token: KeyRef | None = None
    credential: KeyRef | None = None
    properties: tuple[tuple[str, str], ...] = ()
    partition_by: tuple[IcebergPartition, ...] = ("date",)
    columns: tuple[IcebergColumn, ...] = ()
    own_interval_ms: int = MINUTE_MS

    @property
    def output_directory(self) -> str | None:
        # already reported for a path in an object store
        return (
            None
            if self.path is None or is_url_of_store(self.path)
            else "/".join((self.path.rstrip("/") or "/", *self.table))
        )

    @property
    def interval_ms(self) -> int:
        return self.own_interval_ms

    @property
    def batch_records_max(self) -> int:
        return 500_000

    @property
    def secret_refs(self) -> tuple[tuple[str, KeyRef], ...]:
        own = (("token", self.token), ("credential", self.credential))
        return tuple((key, ref) for key, ref in own if ref is not None)


def _compile(model: IcebergModel, common: CommonFields, report: SinkReport) -> IcebergSink:
    table = tuple(model.table.split("."))
    if len(table) < 2 or not all(part and part not in (".", "..") and "/" not in part for part in table):
        report.problem("table", f"{model.table!r} is not NAMESPACE.TABLE")
    _check_catalog(model, report)
    columns = []
    for name, given in model.columns.items():
        column = IcebergColumnModel(field=given) if isinstance(given, str) else given
        if not column.field.startswith(_ATTRIBUTE) or column.field == _ATTRIBUTE:
            report.problem("columns", f"{name}: {column.field!r} is not attributes.NAME; the event's own are there")
        alike = [other for other in (*COLUMNS, *model.columns) if other != name and other.lower() == name.lower()]
        if alike:
            report.problem("columns", f"{name!r} differs only in case from {alike[0]!r}; many readers ignore case")
        if name in COLUMNS:
            report.problem("columns", f"{name!r} is a column of the event; give the attribute another name")
        if not name or "." in name:
            report.problem("columns", f"{name!r} is not a valid name of a column: it may have no dot")
        columns.append(IcebergColumn(name, column.field.removeprefix(_ATTRIBUTE), column.type))
    if {"date", "hour"} <= set(model.partition_by):
        report.problem("partition_by", "has date and hour; an hour of Iceberg is one of its date already")
    return IcebergSink(
        **common,
        table=table,
        path=model.path,
        catalog=None if model.catalog is None else model.catalog.rstrip("/"),
        warehouse=model.warehouse,
        token=secret_of(model, "token", report),
        credential=secret_of(model, "credential", report),
        properties=tuple(model.properties.items()),
        partition_by=tuple(dict.fromkeys(model.partition_by)),
        columns=tuple(columns),
        own_interval_ms=model.interval,
    )


def _check_catalog(model: IcebergModel, report: SinkReport) -> None:
    if (model.path is None) == (model.catalog is None):
        report.problem("path", "or catalog is needed, and only one of them: a directory, or a REST catalog")
    if model.catalog is not None and (fault := url_fault(model.catalog)) is not None:
        report.problem("catalog", f"{model.catalog!r} {fault}")
    if model.path is not None and not is_url_of_store(model.path) and (fault := path_fault(model.path)) is not None:
        report.problem("path", f"{model.path!r} {fault}")
    if model.path is not None and is_url_of_store(model.path):
        report.problem(
            "path",
            "is in an object store, where two writers could commit the same version of a table: name a REST catalog "
            "with catalog, whose warehouse may be there",
        )
    if model.path is not None:
        for key in ("warehouse", "token_env", "token_file", "credential_env", "credential_file", "properties"):
            if getattr(model, key):
                report.problem(key, "goes with a REST catalog")
    if (model.token_env or model.token_file) and (model.credential_env or model.credential_file):
        report.problem("credential_env", "and a token are two credentials; give one")
    _check_properties(model, report)


def _check_properties(model: IcebergModel, report: SinkReport) -> None:
    if model.warehouse is not None and not model.warehouse.strip():
        report.problem("warehouse", "is empty; name it, or leave the key out")
    for name, text in model.properties.items():
        if not name or not (name + text).isprintable():
            report.problem("properties", f"{name!r} has no name, or characters that no header may have")
        if name in _OWN_PROPERTIES:
            report.problem("properties", f"{name} is a key of the sink: {_OWN_PROPERTIES[name]}")
        if any(word in name.lower() for word in _SECRET_WORDS):
            report.problem(
                "properties", f"{name} is a credential and would be stored in plans; set it in the environment"
            )


def _open(sink: IcebergSink, context: SinkContext) -> SinkWriter:
    from logboom.pipeline.sinks.iceberg.delivery import open_table

    return open_table(sink, context)


def _connect(sink: IcebergSink, context: SinkContext) -> None:
    from logboom.pipeline.sinks.iceberg.delivery import try_table

    try_table(sink, context)


SINK: Final = SinkType("iceberg", IcebergModel, IcebergSink, _compile, _open, _connect)
