"""Reads events back from a table of PostgreSQL, for `compare`. Knows psycopg; must not know how rows are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from logboom.pipeline.sinks.postgresql.errors import meaning, needs_driver
from logboom.pipeline.sinks.read_back import Held, Since, has_only_time

if TYPE_CHECKING:
    from psycopg import sql

    from logboom.pipeline.sinks.postgresql import PostgresqlSink

_PAGE_ROWS: Final = 20_000
_CONNECT_MAX_S: Final = 10


def events(sink: PostgresqlSink, secrets: Mapping[str, str], since: Since) -> Iterator[Held]:
    """The events of the table, read in pages through a server-side cursor."""
    needs_driver()
    import psycopg

    password = None if sink.password is None else secrets[sink.password.id]
    try:
        with (
            psycopg.connect(
                sink.url,
                password=password,
                connect_timeout=_CONNECT_MAX_S,
                tcp_user_timeout=sink.sending.timeout_ms,
                application_name="logboom",
                client_encoding="UTF8",
            ) as connection,
            connection.cursor(name="logboom") as cursor,
        ):
            connection.read_only = True
            cursor.itersize = _PAGE_ROWS
            cursor.execute(_query(sink), [since.text])
            for event_id, seen_ms, service in cursor:
                yield Held(event_id, service, seen_ms, time_ms=seen_ms if has_only_time(sink) else None)
    except psycopg.Error as error:
        raise meaning(error) from error


def _query(sink: PostgresqlSink) -> sql.Composed:
    from psycopg import sql

    columns: dict[str, Any] = {field: sql.Identifier(column) for column, field in sink.columns}
    seen = columns.get("observed_time") or columns["time"]
    return sql.SQL(
        "SELECT {id}::text, (extract(epoch FROM {seen}::timestamptz) * 1000)::bigint, coalesce({service}::text, '')"
        " FROM {table} WHERE {seen}::timestamptz >= %s::timestamptz"
    ).format(
        id=columns["event_id"],
        seen=seen,
        service=columns.get("service", sql.SQL("NULL")),
        table=sql.Identifier(*sink.table),
    )
