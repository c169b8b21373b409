"""The sink `console`: prints events as lines on the terminal that the pipeline runs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from pydantic import Field

from logboom.pipeline.plan.nodes import Sink
from logboom.pipeline.sinks.base import (
    BaseWriter,
    CommonFields,
    Delivered,
    SinkContext,
    SinkModel,
    SinkReport,
    SinkType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHOWN: Final = ("time", "severity_text", "service", "host", "body")


class ConsoleSinkModel(SinkModel):
    """Lines on the terminal."""

    type: Literal["console"]
    encoding: Literal["json", "text"] = "json"
    limit: int | None = Field(default=None, ge=1)


class ConsoleSink(Sink, frozen=True, kw_only=True, tag="console"):
    """Lines on the terminal."""

    encoding: Literal["json", "text"] = "json"
    limit: int | None = None
    """Lines per batch; None for all."""


class ConsoleWriter(BaseWriter):
    """Prints the events of each batch."""

    def __init__(self, sink: ConsoleSink, notify: Callable[[str], None]) -> None:
        self._sink = sink
        self._notify = notify

    def deliver(self, rows: DataFrame, batch: int) -> Delivered:
        shown = rows if self._sink.limit is None else rows.limit(self._sink.limit)
        count = 0
        for row in shown.select("value").toLocalIterator():
            self._notify(self._line(bytes(row[0])))
            count += 1
        return Delivered(self._sink.name, batch, rows=count if self._sink.limit is None else rows.count())

    def _line(self, value: bytes) -> str:
        if self._sink.encoding == "json":
            return value.decode(errors="replace")
        event = msgspec.json.decode(value)
        return " ".join(str(part) for part in map(event.get, _SHOWN) if part)


def _compile(model: ConsoleSinkModel, common: CommonFields, report: SinkReport) -> ConsoleSink:
    return ConsoleSink(**common, encoding=model.encoding, limit=model.limit)


def _open(sink: ConsoleSink, context: SinkContext) -> ConsoleWriter:
    return ConsoleWriter(sink, context.notify)


SINK: Final = SinkType("console", ConsoleSinkModel, ConsoleSink, _compile, _open)
