"""Registers, opens and checks sinks that send requests, in the same way for all servers.

Cheap to import: `pipeline check` does. Must not know any particular server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from logboom.pipeline.sinks.base import CommonFields, SinkContext, SinkReport, SinkType, SinkWriter
from logboom.pipeline.sinks.bulk.model import BulkModel, BulkSink
from logboom.pipeline.sinks.read_back import ReadBack

Model = TypeVar("Model", bound=BulkModel)
Node = TypeVar("Node", bound=BulkSink)


def bulk_sink_type(
    name: str,
    model: type[Model],
    node: type[Node],
    compile: Callable[[Model, CommonFields, SinkReport], Node | None],
    *,
    needs: Callable[[Node], None] | None = None,
    writer: Callable[[Node, SinkContext], SinkWriter] | None = None,
    read_back: ReadBack[Node] | None = None,
) -> SinkType[Model, Node]:
    """Make the `SinkType` of such a sink. `needs` raises PipelineError if a required library is not installed. `writer`
    opens the sink if a `BulkWriter` does not deliver it."""

    def open_sink(sink: Node, context: SinkContext) -> SinkWriter:
        from logboom.pipeline.sinks.bulk.writer import BulkWriter

        if needs is not None:
            needs(sink)
        if writer is not None:
            return writer(sink, context)
        return BulkWriter(sink, context)

    def connect(sink: Node, context: SinkContext) -> None:
        from logboom.pipeline.sinks.bulk.connecting import try_target

        if needs is not None:
            needs(sink)
        try_target(sink, context)

    return SinkType(name, model, node, compile, open_sink, connect, read_back)
