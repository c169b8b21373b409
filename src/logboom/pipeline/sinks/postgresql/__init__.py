"""The sink `postgresql`: events as rows of a table of PostgreSQL, each once by its event id.

`target` runs on executors: COPY into a temporary table, then INSERT ... ON CONFLICT DO NOTHING into the table, in one
transaction for each request.

This module has the sink's keys and plan node and must stay cheap to import; the driver (psycopg) is imported when the
sink is opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import Field

from logboom.base.units import MIB
from logboom.pipeline.event.fields import COLUMNS, is_field
from logboom.pipeline.plan.locations import is_host
from logboom.pipeline.plan.nodes import KeyRef
from logboom.pipeline.sinks.base import CommonFields, SinkReport
from logboom.pipeline.sinks.bulk.model import BulkModel, BulkSink, secret_of, sending_of
from logboom.pipeline.sinks.bulk.opening import bulk_sink_type
from logboom.pipeline.sinks.postgresql.options import is_option, option_fault
from logboom.pipeline.sinks.read_back import Held, ReadBack, Since, has_only_time, hindrance_of_rows

if TYPE_CHECKING:
    from logboom.pipeline.sinks.bulk.target import Target

EVENT_ID: Final = "event_id"
_NAME_MAX_BYTES: Final = 63
_PORT: Final = re.compile(r":(\d{1,6})$")
_PORTS: Final = 1 << 16
_SECRET_OPTIONS: Final = ("password", "sslpassword", "passfile", "oauth_client_secret")


class PostgresqlModel(BulkModel):
    """Rows of a table."""

    type: Literal["postgresql"]
    url: str
    """`postgresql://USER@HOST:PORT/DATABASE`, with options of libpq after `?` (`sslmode=verify-full`)."""

    password_env: str | None = None
    password_file: str | None = None
    table: str
    """`TABLE` or `SCHEMA.TABLE`; it needs a unique index on the column of `event_id`."""

    columns: dict[str, str] = Field(default_factory=dict)
    """Column of the table: field of the event or `attributes.NAME`; by default each field has a column of its name."""


class PostgresqlSink(BulkSink, frozen=True, kw_only=True, tag="postgresql"):
    """Rows of a table."""

    url: str
    password: KeyRef | None = None
    table: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    """Column and field of the event."""

    @property
    def id_column(self) -> str:
        """The column that identifies a row."""
        return next(column for column, field in self.columns if field == EVENT_ID)

    @property
    def secret_refs(self) -> tuple[tuple[str, KeyRef], ...]:
        return () if self.password is None else (("password", self.password),)

    def open_target(self, secrets: Mapping[str, str]) -> Target:
        """The database."""
        from logboom.pipeline.sinks.postgresql.target import PostgresqlTarget

        return PostgresqlTarget(self, None if self.password is None else secrets[self.password.id])


def _compile(model: PostgresqlModel, common: CommonFields, report: SinkReport) -> PostgresqlSink | None:
    _check_url(model.url, report)
    table = tuple(model.table.split("."))
    if len(table) > 2 or not all(table):
        report.problem("table", f"{model.table!r} is not TABLE or SCHEMA.TABLE")
    columns = model.columns or {name: name for name in COLUMNS}
    for field in columns.values():
        if not is_field(field):
            report.unknown("columns", "field", field, [*COLUMNS, "attributes.NAME"])
    for name in (*table, *columns):
        if "\0" in name or len(name.encode()) > _NAME_MAX_BYTES:
            report.problem(
                "columns", f"{name!r} is not a valid name: PostgreSQL's have at most {_NAME_MAX_BYTES} bytes"
            )
    if EVENT_ID not in columns.values():
        report.problem("columns", "have no column for event_id, which prevents duplicate rows")
        return None
    return PostgresqlSink(
        **common,
        sending=sending_of(model, max_bytes=8 * MIB, max_events=5_000, concurrency=2),
        url=model.url,
        password=secret_of(model, "password", report),
        table=table,
        columns=tuple(columns.items()),
    )


def _check_url(url: str, report: SinkReport) -> None:
    try:
        parts = urlsplit(url)
        has_password = parts.password is not None
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else []
    except ValueError as error:
        report.problem("url", f"cannot be read: {error}")
        return
    for place in parts.netloc.rpartition("@")[2].split(","):  # libpq connects to the first server that is up
        host, port = _PORT.sub("", place), _PORT.search(place)
        wrong = port is not None and not 0 < int(port[1]) < _PORTS
        if (host and not is_host(unquote(host).strip("[]")) and not unquote(host).startswith("/")) or wrong:
            report.problem("url", f"{place!r} is not HOST:PORT")
    if parts.scheme not in ("postgresql", "postgres"):
        report.problem("url", "should be postgresql://USER@HOST:PORT/DATABASE")
    for name, value in options:
        fault = None if name in _SECRET_OPTIONS else option_fault(name, value)
        if fault is not None:
            report.problem("url", fault)
    if has_password or any(name in _SECRET_OPTIONS for name, _ in options):
        report.problem(
            "url", "has a password, which would be stored in plans; name it with password_env or password_file"
        )
    elif all(is_option(name) for name, _ in options):
        unknown = _said_of(url)  # the message contains no secret
        if unknown is not None:
            report.problem("url", unknown)


def _said_of(url: str) -> str | None:
    """libpq's opinion of the address, if libpq is installed: older versions know fewer options."""
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        return None
    try:
        conninfo_to_dict(url)
    except ProgrammingError as error:
        return f"cannot be read: {' '.join(str(error).split())}"
    return None


def _check_installed(sink: PostgresqlSink) -> None:
    from logboom.pipeline.sinks.postgresql.errors import needs_driver

    needs_driver()


def _events(sink: PostgresqlSink, secrets: Mapping[str, str], since: Since) -> Iterator[Held]:
    from logboom.pipeline.sinks.postgresql.reading import events

    return events(sink, secrets, since)


SINK: Final = bulk_sink_type(
    "postgresql",
    PostgresqlModel,
    PostgresqlSink,
    _compile,
    needs=_check_installed,
    read_back=ReadBack(_events, hindrance_of_rows, has_only_time),
)
