"""The sinks behind deliveries: the Parquet archive, a stream on other brokers, the console.

Knows what each sink does with a batch of an edge's records. Must not know queries, tries or dead letters.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from logboom.pipeline.plan import names
from logboom.pipeline.plan.nodes import ConsoleSink, ParquetSink, StreamSink
from logboom.pipeline.run.delivery import Delivered
from logboom.pipeline.run.router import write_records
from logboom.pipeline.sinks.parquet.archive import Archive
from logboom.pipeline.sinks.parquet.compaction import QUIET_S, Compactor
from logboom.pipeline.sinks.parquet.staging import REPORT_COLUMN, ArchiveWriter, Report, Unreadable

REMOTE_PRODUCER_SETTINGS: Final[Mapping[str, str]] = {
    "kafka.acks": "all",
    "kafka.compression.type": "lz4",
    "kafka.linger.ms": "20",
    # Brokers of others: better to fail and be tried again in the open than to wait unseen.
    "kafka.delivery.timeout.ms": "30000",
    "kafka.request.timeout.ms": "15000",
    "kafka.max.block.ms": "15000",
}
_ALL: Final = 1_000_000
Say = Callable[[str], None]
Bury = Callable[[tuple[Unreadable, ...]], None]


class ParquetTarget:
    """Writes the archive: tasks stage files, the driver commits them."""

    def __init__(self, sink: ParquetSink, root: Path, owner: str, bury: Bury, say: Say) -> None:
        self._sink = sink
        self._say = say
        self._compacts = True
        self._archive = Archive(root, owner)
        self._compactor = Compactor(root, target_bytes=sink.target_file_bytes, compression=sink.compression)
        self._bury = bury

    @property
    def archive(self) -> Archive:
        """What has been committed."""
        return self._archive

    def deliver(self, rows: DataFrame, batch: int) -> Delivered:
        if batch <= self._archive.state.batch:  # committed before the query could note it
            return Delivered(self._sink.name, batch)
        writer = ArchiveWriter(
            sink=self._sink,
            root=str(self._archive.root),
            staging=self._archive.staging_for(batch),
            label=f"{self._archive.owner}-{batch}",
            high_water=self._archive.state.high_water,
            retried=self._archive.state.retried,
        )
        told = rows.mapInArrow(writer, f"{REPORT_COLUMN} binary").collect()
        reports = [msgspec.json.decode(bytes(row[0]), type=Report) for row in told]
        unreadable = tuple(record for report in reports for record in report.unreadable)
        if unreadable:
            self._bury(unreadable)
        manifest = self._archive.commit(batch, reports)
        return Delivered(self._sink.name, batch, rows=manifest.rows, repeats=manifest.repeats, dead=len(unreadable))

    def idle(self) -> None:
        """A moment for one finished directory."""
        self._compact(quiet_s=QUIET_S, directories_max=1)

    def finish(self) -> None:
        """Compacts everything that is there, finished or not: for a run that ends."""
        self._compact(quiet_s=0.0, directories_max=_ALL)

    def _compact(self, *, quiet_s: float, directories_max: int) -> None:
        if not self._compacts:
            return
        try:
            self._compactor.run(quiet_s=quiet_s, directories_max=directories_max)
        except OSError as error:
            # The archive is whole without it; a file system that cannot swap directories will not learn it.
            self._compacts = False
            self._say(f"{self._sink.name}: small files are left as they are: {error}")


class StreamTarget:
    """Writes a stream on other brokers; readers drop repeats by the event id."""

    def __init__(self, sink: StreamSink, bootstrap: str) -> None:
        self._sink = sink
        self._bootstrap = bootstrap

    def deliver(self, rows: DataFrame, batch: int) -> Delivered:
        text = F.col("value").cast("string")

        def field(name: str) -> Column:
            return F.get_json_object(text, f"$.{name}")

        origin = F.concat_ws("/", field("stream"), field("partition"), field("offset"))
        headers = {names.HEADER_EVENT_ID: field("event_id"), names.HEADER_ORIGIN: origin}
        pairs = [
            F.struct(F.lit(key).alias("key"), value.cast("binary").alias("value")) for key, value in headers.items()
        ]
        key = field(self._sink.key) if self._sink.key is not None else F.lit(None)
        records = rows.select(
            F.lit(self._sink.stream).alias("topic"),
            key.cast("binary").alias("key"),
            (field("body").cast("binary") if self._sink.encoding == "body" else F.col("value")).alias("value"),
            F.array(*pairs).alias("headers"),
        )
        write_records(records, self._bootstrap, REMOTE_PRODUCER_SETTINGS)
        return Delivered(self._sink.name, batch, rows=rows.count())

    def idle(self) -> None:
        """Nothing to tidy."""

    def finish(self) -> None:
        """Nothing to finish."""


class ConsoleTarget:
    """Prints events."""

    def __init__(self, sink: ConsoleSink, say: Say) -> None:
        self._sink = sink
        self._say = say

    def deliver(self, rows: DataFrame, batch: int) -> Delivered:
        asked = rows if self._sink.limit is None else rows.limit(self._sink.limit)
        count = 0
        for row in asked.select("value").toLocalIterator():
            self._say(self._line(bytes(row[0])))
            count += 1
        return Delivered(self._sink.name, batch, rows=count if self._sink.limit is None else rows.count())

    def idle(self) -> None:
        """Nothing to tidy."""

    def finish(self) -> None:
        """Nothing to finish."""

    def _line(self, value: bytes) -> str:
        if self._sink.encoding == "json":
            return value.decode(errors="replace")
        event = msgspec.json.decode(value)
        parts = (event.get(name) for name in ("time", "severity_text", "service", "host", "body"))
        return " ".join(str(part) for part in parts if part)
