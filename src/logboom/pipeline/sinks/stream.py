"""The sink `stream`: writes events as records of another stream.

The router itself writes a stream on the pipeline's own log (`StreamSink.log_output`). A stream on other brokers
(`bootstrap`) has a delivery, whose batches are written here with Spark's Kafka writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from logboom.base.settings import Bootstrap
from logboom.base.units import MIB
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.event.fields import ATTRIBUTES, is_field
from logboom.pipeline.plan import names
from logboom.pipeline.plan.nodes import EVENT_COLUMNS, KeyRef, LogOutput, Sink
from logboom.pipeline.sinks.base import (
    BaseWriter,
    CommonFields,
    Delivered,
    Refused,
    SinkContext,
    SinkModel,
    SinkReport,
    SinkType,
)
from logboom.pipeline.sinks.bulk.secrets import without_secrets
from logboom.pipeline.sinks.kafka_security import (
    KafkaSecurity,
    SaslModel,
    TlsModel,
    java_settings,
    librdkafka_settings,
    security_of,
    spark_options,
)
from logboom.pipeline.sinks.repeats.batch_dead_letters import BatchLetters
from logboom.pipeline.sql.attributes import text_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from logboom.pipeline.edge.streams import StreamAdmin

PRODUCER_SETTINGS: Final[Mapping[str, str]] = {
    "kafka.acks": "all",
    "kafka.compression.type": "lz4",
    "kafka.linger.ms": "20",
    # For other brokers it is better to fail and retry visibly than to wait for long inside the client.
    "kafka.delivery.timeout.ms": "30000",
    "kafka.request.timeout.ms": "15000",
    "kafka.max.block.ms": "15000",
}


_BUFFER_BYTES: Final = 32 * MIB


class StreamSinkModel(SinkModel):
    """Another stream."""

    type: Literal["stream"]
    stream: str
    bootstrap: Bootstrap | None = None
    encoding: Literal["json", "body"] = "json"
    key: str | None = None
    tls: TlsModel | None = None
    """TLS to the brokers of `bootstrap`; `{}` trusts what the system does."""

    sasl: SaslModel | None = None
    """The user for these brokers."""


class StreamSink(Sink, frozen=True, kw_only=True, tag="stream"):
    """Another stream. `bootstrap` is set if it is on other brokers than the sources."""

    stream: str
    bootstrap: str | None = None
    encoding: Literal["json", "body"] = "json"
    key: str | None = None
    """The text column or attribute (`attributes.NAME`) whose text is the record's key."""
    security: KafkaSecurity | msgspec.UnsetType = msgspec.UNSET

    @property
    def secret_refs(self) -> tuple[tuple[str, KeyRef], ...]:
        return () if self.security is msgspec.UNSET else self.security.secret_refs

    @property
    def output_stream(self) -> tuple[str, str | None]:
        return self.stream, self.bootstrap

    @property
    def log_output(self) -> LogOutput | None:
        if self.bootstrap is not None:
            return None
        return LogOutput(stream=self.stream, body_only=self.encoding == "body", key=self.key)


class RemoteStreamWriter(BaseWriter):
    """Writes a stream on other brokers. Its readers can drop repeats by the event id in the headers."""

    def __init__(self, sink: StreamSink, bootstrap: str, context: SinkContext) -> None:
        self._sink = sink
        self._bootstrap = bootstrap
        self._context = context
        self._letters = BatchLetters(context.write_dead_letters)
        self._admin: tuple[StreamAdmin, Mapping[str, str]] | None = None
        """An admin client with the settings it was created with."""

    def deliver(self, rows: DataFrame, batch: int) -> Delivered:
        from logboom.pipeline.spark.causes import cause_of

        self._letters.begin(batch)
        try:
            return self._delivered(rows, batch)
        except Exception as error:  # noqa: BLE001 - Spark and clients raise many types, and may name credentials
            secrets = [self._context.secret(ref) for _, ref in self._sink.secret_refs]
            raise self._letters.failed(PipelineError(without_secrets(cause_of(error), secrets))) from None

    def left(self, rows: DataFrame, batch: int) -> DataFrame:
        """All records of a batch that is given up, except those with a dead letter."""
        return self._letters.left(rows, batch)

    def _delivered(self, rows: DataFrame, batch: int) -> Delivered:
        from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

        from logboom.pipeline.edge.letters import usable_bytes
        from logboom.pipeline.spark.kafka import write_records

        limit = self._admin_now().limits([self._sink.stream])[self._sink.stream]
        key_bytes = 0 if self._sink.key is None else F.coalesce(F.length("key"), F.lit(0))
        fits = F.coalesce(F.length("record"), F.lit(0)) + key_bytes <= usable_bytes(limit)
        records = self._records(rows)
        # written before sending: if the attempt fails after this, sending is repeated
        sent_count = records.where(fits).count()
        dead = self._refused(records.where(~fits).drop("key", "headers"), limit)
        sent = records.where(fits).select("key", F.col("record").alias("value"), "headers", "topic")
        # Java's producer has its own limit, and sends nothing that is larger than its buffer.
        sizes = {
            "kafka.max.request.size": str(limit + MIB),
            "kafka.buffer.memory": str(max(2 * limit, _BUFFER_BYTES)),
        }
        security = self._sink.security
        secured = {} if security is msgspec.UNSET else spark_options(java_settings(security, self._context.secret))
        write_records(sent, self._bootstrap, {**PRODUCER_SETTINGS, **sizes, **secured})
        return Delivered(self._sink.name, batch, rows=sent_count, dead=dead)

    def _admin_now(self) -> StreamAdmin:
        """An admin client with the current credentials."""
        from logboom.pipeline.edge.streams import StreamAdmin

        settings = _admin_settings(self._sink, self._context)
        if self._admin is None or self._admin[1] != settings:
            self._admin = StreamAdmin(self._bootstrap, settings), settings
        return self._admin[0]

    def _refused(self, records: DataFrame, limit: int) -> int:
        """Write events that are too large for the stream to the dead letters, one at a time: they are large and few."""
        dead = 0
        for row in records.toLocalIterator():
            reason = (
                f"the event takes {len(row['record'])} bytes, more than {self._sink.stream} accepts in one record "
                f"(max.message.bytes is {limit})"
            )
            place = (row["edge"], row["partition"], row["offset"])
            dead = self._letters.write([Refused(*place, bytes(row["value"]), reason)])
        return dead

    def _records(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

        text = F.col("value").cast("string")

        def field(name: str) -> Column:
            return F.get_json_object(text, f"$.{name}")

        origin = F.concat_ws("/", field("stream"), field("partition"), field("offset"))
        headers = {names.HEADER_EVENT_ID: field("event_id"), names.HEADER_ORIGIN: origin}
        pairs = [
            F.struct(F.lit(key).alias("key"), value.cast("binary").alias("value")) for key, value in headers.items()
        ]
        name = self._sink.key
        if name is None:
            key = F.lit(None)
        elif name.startswith(ATTRIBUTES):
            key = F.expr(text_sql(name.removeprefix(ATTRIBUTES)))  # of the column `attributes`, as in conditions
            rows = rows.withColumn("attributes", F.try_parse_json(field("attributes")))
        else:
            key = field(name)
        return rows.select(
            F.lit(self._sink.stream).alias("topic"),
            key.cast("binary").alias("key"),
            (field("body").cast("binary") if self._sink.encoding == "body" else F.col("value")).alias("record"),
            F.array(*pairs).alias("headers"),
            F.col("topic").alias("edge"),
            "partition",
            "offset",
            "value",
        )


def _compile(model: StreamSinkModel, common: CommonFields, report: SinkReport) -> StreamSink:
    problem = names.stream_name_problem(model.stream) or names.written_stream_problem(model.stream)
    if problem is not None:
        report.problem("stream", problem)
    keys = [column for column, kind in EVENT_COLUMNS if kind == "string"]
    is_attribute = model.key is not None and model.key.startswith(ATTRIBUTES) and is_field(model.key)
    if model.key is not None and model.key not in keys and not is_attribute:
        report.unknown("key", "text column", model.key, [*keys, "attributes.NAME"])
    if model.bootstrap is None:
        for key in ("on_failure", "attempts"):
            if getattr(model, key) is not None:
                report.problem(key, "has no meaning here: the pipeline always waits for a stream on its own log")
        for key in ("tls", "sasl"):
            if getattr(model, key) is not None:
                report.problem(key, "goes with bootstrap, the address of other brokers")
    return StreamSink(
        **common,
        stream=model.stream,
        bootstrap=model.bootstrap,
        encoding=model.encoding,
        key=model.key,
        security=security_of(model.tls, model.sasl, report),
    )


def _admin_settings(sink: StreamSink, context: SinkContext) -> dict[str, str]:
    return {} if sink.security is msgspec.UNSET else librdkafka_settings(sink.security, context.secret)


def _open(sink: StreamSink, context: SinkContext) -> RemoteStreamWriter:
    assert sink.bootstrap is not None, "the router writes a stream on its own log"
    return RemoteStreamWriter(sink, sink.bootstrap, context)


def _connect(sink: StreamSink, context: SinkContext) -> None:
    if sink.bootstrap is None:
        return
    from logboom.pipeline.edge.streams import LogUnreachableError, StreamAdmin

    try:
        StreamAdmin(sink.bootstrap, _admin_settings(sink, context)).partitions()
    except LogUnreachableError as error:
        told = (
            ""
            if sink.security is msgspec.UNSET
            else ", or none accepts the credential, or its certificate is not trusted"
        )
        raise PipelineError(f"no broker answers at {sink.bootstrap}{told}") from error


SINK: Final = SinkType("stream", StreamSinkModel, StreamSink, _compile, _open, _connect)
