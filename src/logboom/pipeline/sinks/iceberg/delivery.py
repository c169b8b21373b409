"""Driver side of the Iceberg sink: writes a batch and adds it to the table in one commit.

The commit also sets the table property `logboom.batch.ID` to the batch number; ID identifies the delivery. The property
is checked before each attempt: a committed batch is not written again, even if the router was killed before it could
record the commit, or the catalog's answer was lost. The state for recognising repeats is written to the checkpoint
before the commit, under the batch number, so that it is valid exactly if the commit succeeds.

Knows Spark's mapInArrow, pyiceberg's transactions and the checkpoint. Must not know queries, attempts or dead letters.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame

from logboom.pipeline.checkpoint.files import keep_last, make_dir, write_durably
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.sinks.base import BaseWriter, Delivered, SinkContext
from logboom.pipeline.sinks.bulk.secrets import without_secrets
from logboom.pipeline.sinks.iceberg import IcebergSink
from logboom.pipeline.sinks.iceberg.catalogs import needs_pyiceberg, open_catalog, prepare_files, try_files
from logboom.pipeline.sinks.repeats.batch_dead_letters import BatchLetters
from logboom.pipeline.sinks.repeats.identity import delivery_id
from logboom.pipeline.sinks.repeats.new_events import Seen

_KEPT_STATES: Final = 10
_CONFLICTS_MAX: Final = 20
_RETRIES: Final = "commit.retry.num-retries"


def open_table(sink: IcebergSink, context: SinkContext) -> "IcebergDelivery":
    """Open the delivery. The catalog is first contacted with the first batch, so that an unreachable one does not delay
    the start.

    :raises PipelineError: pyiceberg is not installed.
    """
    needs_pyiceberg()
    return IcebergDelivery(sink, context)


def try_table(sink: IcebergSink, context: SinkContext) -> None:
    """Check that the catalog is reachable, that an existing table fits the sink, and that its object store accepts
    files.

    :raises PipelineError: with the reason why not.
    """
    needs_pyiceberg()
    tables = Tables(sink, context)
    try:
        tables.look()
    except Exception as error:  # noqa: BLE001 - pyiceberg and cloud clients raise many types
        raise PipelineError(tables.said(error)) from None


class Tables:
    """Access to the sink's table."""

    def __init__(self, sink: IcebergSink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._secrets: dict[str, str] = {}

    def _catalog(self) -> Any:
        self._secrets = {ref.id: self._context.secret(ref) for _, ref in self._sink.secret_refs}
        return open_catalog(self._sink, self._context.resolve, self._secrets)

    def look(self) -> None:
        """Raise an error if the table cannot be written. Leaves nothing behind."""
        from pyiceberg.exceptions import NoSuchTableError

        from logboom.pipeline.sinks.iceberg.columns import missing_columns

        try:
            table = self._catalog().load_table(self._sink.table)
        except NoSuchTableError:
            return  # it will be created with the first batch
        missing_columns(self._sink, table)
        try_files(table)

    def load(self) -> Any:
        """The current table. Creates it, or adds missing columns, if needed."""
        from pyiceberg.exceptions import NoSuchTableError

        from logboom.pipeline.sinks.iceberg.columns import missing_columns

        catalog = self._catalog()
        try:
            table = catalog.load_table(self._sink.table)
        except NoSuchTableError:
            table = self._made(catalog)
        prepare_files(table.io)
        missing = missing_columns(self._sink, table)
        if missing:
            with table.update_schema() as update:
                for name, kind in missing.items():
                    update.add_column((name,), kind)
        return table

    def _made(self, catalog: Any) -> Any:
        from pyiceberg.exceptions import TableAlreadyExistsError

        from logboom.pipeline.sinks.iceberg.columns import new_schema, new_spec

        names = self._sink.table
        if self._sink.path is None:
            catalog.create_namespace_if_not_exists(names[:-1])
        schema = new_schema(self._sink)
        try:
            return catalog.create_table(names, schema, partition_spec=new_spec(self._sink, schema))
        except TableAlreadyExistsError:
            return catalog.load_table(names)

    def said(self, error: Exception) -> str:
        """The message of an error, without credentials."""
        return without_secrets(str(error) or type(error).__name__, self._secrets.values())


class IcebergDelivery(BaseWriter):
    """Writes the table: tasks write data files, the driver commits them."""

    def __init__(self, sink: IcebergSink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._tables = Tables(sink, context)
        self._states = context.checkpoint / "iceberg"
        self._id = delivery_id(context.checkpoint)
        self._letters = BatchLetters(context.write_dead_letters)
        self._tried: Delivered | None = None
        """The report of the last attempt that tried to commit, in case the table has that commit."""

    def deliver(self, rows: DataFrame, batch: int) -> Delivered:
        self._letters.begin(batch)
        try:
            return self._delivered(rows, batch)
        except PipelineError as error:
            raise self._letters.failed(error) from None
        except Exception as error:  # noqa: BLE001 - pyiceberg and cloud clients raise many types
            raise self._letters.failed(PipelineError(self._tables.said(error))) from None

    def left(self, rows: DataFrame, batch: int) -> DataFrame:
        """No records if the table has the batch, even if the answer was lost; otherwise all without a dead letter."""
        try:
            is_there = self._seen(self._tables.load()).batch >= batch
        except Exception:  # noqa: BLE001 - many types; not knowing, rather a repeat than a loss
            is_there = False
        return rows.limit(0) if is_there else self._letters.left(rows, batch)

    def _delivered(self, rows: DataFrame, batch: int) -> Delivered:
        from logboom.pipeline.sinks.iceberg.writing import REPORT_COLUMN, IcebergReport, IcebergWriter

        table = self._tables.load()
        seen = self._seen(table)
        if batch <= seen.batch:  # committed by an attempt without an answer, or before the query could record it
            tried = self._tried
            return tried if tried is not None and tried.batch == batch else Delivered(self._sink.name, batch)
        writer = IcebergWriter(
            metadata=table.metadata.model_dump_json(), io=table.io, columns=self._sink.columns, seen=seen
        )
        answers = rows.mapInArrow(writer, f"{REPORT_COLUMN} binary").collect()
        reports = [msgspec.json.decode(bytes(row[0]), type=IcebergReport) for row in answers]
        parts = [report.part for report in reports]
        dead = self._letters.write([record for part in parts for record in part.unreadable])
        self._keep(seen.after(batch, parts))
        rows_written, repeats = sum(part.rows for part in parts), sum(part.repeats for part in parts)
        self._tried = Delivered(self._sink.name, batch, rows=rows_written, repeats=repeats)
        self._commit(table, batch, [file for report in reports for file in report.data_files()])
        with suppress(OSError):  # the batch is committed: errors from here on must not fail it
            keep_last(self._states, _KEPT_STATES)
        return replace(self._tried, dead=dead)

    def _seen(self, table: Any) -> Seen:
        """The delivered state at the table's last commit of this delivery."""
        committed = table.properties.get(f"logboom.batch.{self._id}")
        if committed is None:
            return Seen()
        try:
            return msgspec.json.decode(self._state(committed).read_bytes(), type=Seen)
        except FileNotFoundError:
            raise PipelineError(
                f"the table has batch {committed} of this sink, which its checkpoint does not know ({self._states}): "
                "was an older copy of the checkpoint restored?"
            ) from None

    def _state(self, batch: int | str) -> Path:
        return self._states / f"{batch}.json"

    def _keep(self, seen: Seen) -> None:
        make_dir(self._states)
        write_durably(self._state(seen.batch), msgspec.json.encode(seen))
        self._context.save()

    def _commit(self, table: Any, batch: int, files: Sequence[Any]) -> None:
        """Commit once, and retry after conflicts with other writers.

        pyiceberg's own retries are off, because they do not check whether the conflicting commit was an earlier attempt
        at this batch whose answer was lost.
        """
        from pyiceberg.exceptions import CommitFailedException

        made_for = _form(table)
        for _ in range(_CONFLICTS_MAX):
            table.metadata.properties[_RETRIES] = "0"
            try:
                self._append(table, batch, files)
            except CommitFailedException:
                table = self._tables.load()
                if self._seen(table).batch >= batch:
                    return
                if _form(table) != made_for:
                    raise PipelineError(
                        "columns or partitions of the table were changed while it was written"
                    ) from None
            else:
                return
        raise PipelineError(f"{_CONFLICTS_MAX} commits of other writers came first")

    def _append(self, table: Any, batch: int, files: Iterable[Any]) -> None:
        notes = {"logboom.sink": self._sink.name, "logboom.delivery": self._id, "logboom.batch": str(batch)}
        with table.transaction() as transaction:
            if files:
                with transaction.update_snapshot(snapshot_properties=notes).fast_append() as append:
                    for file in files:
                        append.append_data_file(file)
            transaction.set_properties({f"logboom.batch.{self._id}": str(batch)})


def _form(table: Any) -> tuple[int, int]:
    return table.metadata.current_schema_id, table.metadata.default_spec_id
