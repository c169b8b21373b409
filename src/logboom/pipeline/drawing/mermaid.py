"""A graph as Mermaid's flowchart (https://mermaid.js.org/syntax/flowchart.html). Knows only graphs."""

from logboom.pipeline.drawing.graph import Box, Graph

_SHAPES = {"source": ('(["', '"])'), "transform": ('["', '"]'), "sink": ('[("', '")]')}


def mermaid(graph: Graph) -> str:
    """The text of a flowchart from left to right."""
    boxes = [box for column in graph.columns for box in column]
    number = {box.name: f"n{at}" for at, box in enumerate(boxes)}
    lines = ["flowchart LR", *(f"  {number[box.name]}{_shape(box)}" for box in boxes)]
    for arrow in graph.arrows:
        label = f"|{arrow.label}|" if arrow.label else ""
        lines.append(f"  {number[arrow.start]} -->{label} {number[arrow.end]}")
    return "\n".join([*lines, ""])


def _shape(box: Box) -> str:
    start, end = _SHAPES[box.kind]
    return f"{start}{box.name}<br/>{box.type}{end}"
