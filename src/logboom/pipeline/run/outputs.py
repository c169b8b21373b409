"""The streams that a plan writes, and how the records of each place of its layout are written. Knows only layouts and
names."""

from collections.abc import Mapping

from logboom.pipeline.edge.record_encoder import OutputBinding
from logboom.pipeline.plan import names
from logboom.pipeline.plan.layout import Layout
from logboom.pipeline.plan.nodes import LogOutput, Plan


def output_streams(plan: Plan) -> set[str]:
    """All streams that the router writes for a plan."""
    return {stream for stream, _ in place_streams(Layout(plan)).values()}


def place_streams(layout: Layout) -> dict[int, tuple[str, bool]]:
    """The stream of each place that is written to the log, and whether it is a dead-letter stream."""
    outputs = _log_outputs(layout)
    found: dict[int, tuple[str, bool]] = {}
    for place in layout.finals():
        if place.kind == "direct":
            found[place.code] = (outputs[place.node].stream, False)
        elif place.kind == "edge":
            found[place.code] = (names.edge_stream(layout.plan.name, place.edge), False)
        else:
            found[place.code] = (names.dead_stream(layout.plan.name, place.node), True)
    return found


def _log_outputs(layout: Layout) -> dict[str, LogOutput]:
    """What the router itself writes, by sink."""
    outputs = {sink.name: sink.log_output for sink in layout.plan.sinks}
    return {name: output for name, output in outputs.items() if output is not None}


def bindings_of(
    layout: Layout, partitions: Mapping[str, int], limits: Mapping[str, int], edge_key: bytes | None
) -> dict[int, OutputBinding]:
    """How the records of a layout are written, by place.

    `partitions` and `limits` (largest batch in bytes) are by stream; `edge_key` is the key of all edge records.
    """
    outputs, streams = _log_outputs(layout), place_streams(layout)
    bindings: dict[int, OutputBinding] = {}
    for place in layout.finals():
        stream, dead = streams[place.code]
        output = outputs[place.node] if place.kind == "direct" else None
        bindings[place.code] = OutputBinding(
            stream=stream,
            partitions=partitions[stream],
            node=place.node,
            dead=dead,
            why=place.why,
            announced=output is not None,
            body_only=output is not None and output.body_only,
            key=None if output is None else output.key,
            fixed_key=edge_key if place.kind == "edge" else None,
            too_large=layout.oversize.get(place.code),
            max_message_bytes=limits[stream],
        )
    return bindings
