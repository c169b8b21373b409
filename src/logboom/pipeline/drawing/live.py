"""The picture of a pipeline in a terminal, with figures at its nodes. Knows graphs and lines of text alone."""

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from logboom.pipeline.drawing.graph import Box, Graph

_COLOURS = {"source": "cyan", "transform": "white", "sink": "green"}


def live_picture(graph: Graph, lines: Mapping[str, Sequence[str]], troubled: Sequence[str]) -> RenderableType:
    """Sources on the left, sinks on the right. `lines`: what stands in each node; `troubled`: nodes to be marked."""
    table = Table.grid(padding=(0, 2))
    for _ in graph.columns:
        table.add_column(vertical="middle")
    table.add_row(*(Group(*(_panel(box, graph, lines, troubled) for box in column)) for column in graph.columns))
    return table


def _panel(box: Box, graph: Graph, lines: Mapping[str, Sequence[str]], troubled: Sequence[str]) -> Panel:
    onward = [
        f"{arrow.label + ' ' if arrow.label else ''}→ {arrow.end}" for arrow in graph.arrows if arrow.start == box.name
    ]
    text = Text("\n".join((*lines.get(box.name, ()), *onward)))
    colour = "red" if box.name in troubled else _COLOURS[box.kind]
    return Panel(text, title=Text(f"{box.name} ({box.type})"), border_style=colour, expand=False)
