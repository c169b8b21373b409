"""From rows at their last place to Kafka records: which stream, partition, key, value and headers.

Knows Spark's columns and the JSON form of an event. Must not know how records are written or counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from logboom.pipeline import names
from logboom.pipeline.kernels import AT
from logboom.pipeline.layout import FINAL_FROM, Layout
from logboom.pipeline.plan import EVENT_COLUMNS, StreamSink

VALUE_MAX_BYTES: Final = 1_000_000
"""A record's value; leaves room for key and headers below the 1 MiB that servers take by default."""
EVENT: Final = "event"
"""Column of `open_event`."""
BYTES_OUT: Final = "bytes_out"
_VALUE: Final = "out_value"
_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True)
class Stream:
    """Where the records of one place go."""

    name: str
    partitions: int


class Envelope:
    """Dresses the rows of one layout as records."""

    def __init__(self, layout: Layout, streams: Mapping[int, Stream]) -> None:
        self._layout = layout
        self._streams = streams
        self._places = sorted(layout.finals(), key=lambda place: place.code)
        assert [place.code for place in self._places] == list(range(FINAL_FROM, FINAL_FROM + len(self._places)))
        sinks = {sink.name: sink for sink in layout.plan.sinks if isinstance(sink, StreamSink)}
        self._sinks = {place.code: sinks[place.node] for place in self._places if place.kind == "direct"}
        self._is_dead = F.col(AT).isin(*(place.code for place in self._places if place.kind == "dead"))

    def values(self, rows: DataFrame) -> DataFrame:
        """The rows with the value each will have, those that are too large for it at their dead-letter place."""
        rows = rows.withColumn(_VALUE, self._value())
        if not self._layout.oversize:
            return rows
        dead = [self._layout.oversize.get(place.code) for place in self._places]
        large = (F.length(_VALUE) > VALUE_MAX_BYTES) & ~self._is_dead
        reason = F.concat(F.lit("the event takes "), F.length(_VALUE), F.lit(f" bytes, more than {VALUE_MAX_BYTES}"))
        # One pass: both columns look at the place the row had before.
        return rows.withColumns(
            {
                AT: F.when(large, self._looked_up(dead)).otherwise(F.col(AT)),
                "dead_reason": F.when(large, reason).otherwise(F.col("dead_reason")),
            }
        )

    def records(self, rows: DataFrame) -> DataFrame:
        """The records to be written, in the columns that Spark's Kafka sink reads."""
        cut = F.substring(F.col(_VALUE), 1, VALUE_MAX_BYTES)
        return rows.where(F.col(AT) >= FINAL_FROM).select(
            self._looked_up([self._streams[place.code].name for place in self._places]).alias("topic"),
            self._partition().alias("partition"),
            F.when(self._is_dead, F.col("key")).otherwise(self._key()).alias("key"),
            F.when(self._is_dead, cut).otherwise(F.col(_VALUE)).alias("value"),
            self._headers().alias("headers"),
        )

    @staticmethod
    def _looked_up(by_place: Sequence[str | int | None]) -> Column:
        """The value of a row's place; a table, since a chain of cases grows code that Java will not compile."""
        return F.element_at(F.array(*(F.lit(value) for value in by_place)), F.col(AT) - F.lit(FINAL_FROM - 1))

    def _value(self) -> Column:
        bodies = [code for code, sink in self._sinks.items() if sink.encoding == "body"]
        value = F.when(F.col(AT) < FINAL_FROM, F.lit(None).cast("binary"))
        value = value.when(self._is_dead & F.col("value").isNotNull(), F.col("value"))
        if bodies:
            value = value.when(F.col(AT).isin(*bodies), F.col("body").cast("binary"))
        return value.otherwise(whole_event())

    def _partition(self) -> Column:
        """By the partition of origin, so that a partition's events stay in order; by the key where there is one."""
        counts = [
            None
            if place.kind == "dead" or (place.code in self._sinks and self._sinks[place.code].key is not None)
            else self._streams[place.code].partitions
            for place in self._places
        ]
        return F.pmod(F.hash("stream").cast("bigint") + F.col("partition"), self._looked_up(counts)).cast("int")

    def _key(self) -> Column:
        key = F.lit(None).cast("binary")
        for code, sink in self._sinks.items():
            if sink.key is not None:
                key = F.when(F.col(AT) == code, _text_of(sink.key).cast("binary")).otherwise(key)
        return key

    def _headers(self) -> Column:
        """Readers of a stream drop repeats by the event id; an edge's own readers find it in the value."""
        origin = F.concat_ws("/", "stream", "partition", "offset")
        headers = F.when(self._is_dead, self._dead_headers(origin))
        if self._sinks:
            ours = _headers({names.HEADER_EVENT_ID: F.col("event_id"), names.HEADER_ORIGIN: origin})
            headers = headers.when(F.col(AT).isin(*self._sinks), ours)
        return headers.cast(_HEADERS_TYPE)

    def _dead_headers(self, origin: Column) -> Column:
        stage = self._looked_up([place.node for place in self._places])
        failed = F.concat(F.lit("a condition of "), stage, F.lit(" failed on it"))
        form = (
            F.when(F.length(_VALUE) > VALUE_MAX_BYTES, names.FORM_TRUNCATED)
            .when(F.col("value").isNotNull(), names.FORM_RAW)
            .otherwise(names.FORM_EVENT)
        )
        ours = {
            names.HEADER_REASON: F.coalesce(F.col("dead_reason"), failed),
            names.HEADER_STAGE: stage,
            names.HEADER_FORM: form,
            names.HEADER_SOURCE: F.col("source"),
            names.HEADER_ORIGIN: origin,
            names.HEADER_PIPELINE: F.lit(self._layout.plan.name),
        }
        original = F.coalesce(F.col("headers"), F.array().cast(_HEADERS_TYPE))
        return F.concat(original, _headers(ours)).cast(_HEADERS_TYPE)


def open_event() -> Column:
    """An event as JSON in UTF-8 but for its weight and the closing brace; columns that are null are left out.

    Made before a row is copied; the weight, which sampling changes after that, is added by `whole_event`.
    """
    scalars = [
        _json_time(name) if kind == "timestamp" else F.col(name)
        for name, kind in EVENT_COLUMNS
        if kind != "variant" and name != "weight"
    ]
    text = F.to_json(F.struct(*scalars)).cast("binary")
    # Attributes are spliced in as the text they are: no need to read them only to write them again.
    head = F.concat(F.lit('{"attributes":'), F.coalesce(F.col("attributes"), F.lit("{}")), F.lit(",")).cast("binary")
    return F.concat(head, F.substring(text, F.lit(2), F.length(text) - 2))


def whole_event() -> Column:
    """The event's JSON from the column EVENT and the weight."""
    tail = F.concat(F.lit(',"weight":'), F.coalesce(F.col("weight"), F.lit(1.0)).cast("string"), F.lit("}"))
    return F.concat(F.col(EVENT), tail.cast("binary"))


def _json_time(name: str) -> Column:
    """RFC 3339 in UTC with the microseconds it has: the session's time zone is UTC."""
    return F.concat(F.replace(F.col(name).cast("string"), F.lit(" "), F.lit("T")), F.lit("Z")).alias(name)


def _text_of(key: str) -> Column:
    """A column of the event, or a field below `attributes`, as text."""
    head, _, path = key.partition(".")
    if head == "attributes" and path:
        return F.get_json_object("attributes", f"$.{path}")
    return F.col(key).cast("string")


def _headers(texts: Mapping[str, Column]) -> Column:
    return F.array(
        *(F.struct(F.lit(key).alias("key"), text.cast("binary").alias("value")) for key, text in texts.items())
    )
