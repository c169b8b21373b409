"""One table of PostgreSQL as a target: a request is one transaction.

Rows are copied to a temporary table with the same column types, and inserted from there, except rows whose id the table
already has. So a row is stored once, however often it is sent. A row that the database refuses fails its request, which
is cut in halves until the row is alone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from logboom.pipeline.event.fields import FieldReader
from logboom.pipeline.event.record import EventRecord
from logboom.pipeline.sinks.bulk.target import BulkResponse, Encoded, Item, UnfitError
from logboom.pipeline.sinks.postgresql.errors import meaning, needs_driver

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    from logboom.pipeline.sinks.postgresql import PostgresqlSink

_STAGING: Final = "logboom_rows"
_CONNECT_MAX_S: Final = 10


class PostgresqlTarget:
    """A table. Each thread has a connection of its own."""

    def __init__(self, sink: PostgresqlSink, password: str | None) -> None:
        needs_driver()
        self._sink = sink
        self._password = password
        self._reader = FieldReader(tuple(field for _, field in sink.columns))
        self._timeout_ms = sink.sending.timeout_ms
        self._own = threading.local()
        self._open: set[psycopg.Connection[Any]] = set()
        self._busy: set[psycopg.Connection[Any]] = set()
        """Connections in use by a thread: libpq does not allow other threads to close them."""
        self._lock = threading.Lock()

    def encode(self, event: EventRecord, value: bytes) -> Encoded:
        """Encode one row in COPY's text format."""
        texts = [_text(column) for column in self._reader.values(event)]
        row = "\t".join("\\N" if text is None else _escaped(text) for text in texts)
        if "\0" in row:
            raise UnfitError("a field has the character NUL, which no text of PostgreSQL may have")
        return Encoded(f"{row}\n".encode(errors="replace"))

    def send(self, items: Sequence[Item]) -> BulkResponse:
        """Run one transaction."""
        import psycopg

        connection = self._connection()
        try:
            with self._working(connection), connection.transaction(), connection.cursor() as cursor:
                with cursor.copy(self._copy()) as copy:
                    copy.write(b"".join([item.payload for item in items]))
                cursor.execute(self._insert())
                inserted = cursor.rowcount
        except psycopg.Error as error:
            self._drop(connection)
            raise meaning(error) from error
        except BaseException:  # the state of the connection is unknown, so it is not used again
            self._drop(connection)
            raise
        return BulkResponse(repeats=len(items) - inserted)

    def probe(self) -> None:
        """Let the server plan the insert, which checks the table, its columns, its index and the privileges."""
        import psycopg

        connection = self._connection()
        try:
            with connection.transaction():
                connection.execute(_query("EXPLAIN {}", self._insert()))
        except psycopg.Error as error:
            raise meaning(error) from error
        finally:
            self._drop(connection)

    def close(self) -> None:
        """Close all connections. Transactions in progress fail and are rolled back."""
        with self._lock:
            connections, self._open = self._open, set()
            busy = set(self._busy)
        for connection in connections:
            if connection in busy:
                _shut(connection)
            else:
                connection.close()

    @contextlib.contextmanager
    def _working(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        with self._lock:
            self._busy.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(connection)

    def _connection(self) -> psycopg.Connection[Any]:
        import psycopg

        connection: psycopg.Connection[Any] | None = getattr(self._own, "connection", None)
        if connection is not None and not connection.closed and connection in self._open:
            return connection
        timeout_ms = self._timeout_ms
        try:
            connection = psycopg.connect(
                self._sink.url,
                password=self._password,
                autocommit=True,
                connect_timeout=max(min(timeout_ms // 1_000, _CONNECT_MAX_S), 2),
                tcp_user_timeout=timeout_ms,
                application_name="logboom",
                client_encoding="UTF8",
            )
            self._own.connection = connection
            with self._lock:
                self._open.add(connection)
            connection.execute("SELECT set_config('statement_timeout', %s, false)", [str(timeout_ms)])
            connection.execute(self._staging())
        except psycopg.Error as error:
            if connection is not None:
                self._drop(connection)
            raise meaning(error) from error
        return connection

    def _drop(self, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            self._open.discard(connection)
        self._own.connection = None
        connection.close()

    def _staging(self) -> sql.Composed:
        return _query(
            "CREATE TEMPORARY TABLE {} ON COMMIT DELETE ROWS AS SELECT {} FROM {} WITH NO DATA",
            _name(_STAGING),
            self._columns(),
            _name(*self._sink.table),
        )

    def _copy(self) -> sql.Composed:
        return _query("COPY {} ({}) FROM STDIN", _name("pg_temp", _STAGING), self._columns())

    def _insert(self) -> sql.Composed:
        columns = self._columns()
        return _query(
            "INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO NOTHING",
            _name(*self._sink.table),
            columns,
            columns,
            _name("pg_temp", _STAGING),
            _name(self._sink.id_column),
        )

    def _columns(self) -> sql.Composed:
        from psycopg import sql

        return sql.SQL(", ").join([sql.Identifier(column) for column, _ in self._sink.columns])


def _query(text: str, *parts: Any) -> sql.Composed:
    from psycopg import sql

    return sql.SQL(text).format(*parts)


def _name(*parts: str) -> sql.Identifier:
    from psycopg import sql

    return sql.Identifier(*parts)


def _text(value: Any) -> str | None:
    """A value as PostgreSQL parses it: booleans, numbers and JSON as JSON writes them."""
    if value is None or isinstance(value, str):
        return value
    return (value if isinstance(value, bytes) else msgspec.json.encode(value)).decode(errors="replace")


def _escaped(text: str) -> str:
    """A value in COPY's text format (PostgreSQL's manual, "COPY", File Formats)."""
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    for char, escape in (("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        if char in text:
            text = text.replace(char, escape)
    return text


def _shut(connection: psycopg.Connection[Any]) -> None:
    """Shut down a connection that another thread waits on, so that this thread wakes, fails, and closes it."""
    import psycopg

    with contextlib.suppress(OSError, psycopg.Error):  # already closed
        own = socket.socket(fileno=os.dup(connection.fileno()))
        with own:
            own.shutdown(socket.SHUT_RDWR)
