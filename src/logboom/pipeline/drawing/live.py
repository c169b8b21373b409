"""The picture of a pipeline in a terminal, with figures at its nodes. Knows only graphs and lines of text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from logboom.pipeline.drawing.graph import Box, Graph

_COLOURS: Final = {"source": "cyan", "transform": "white", "sink": "green"}
_ANY_WIDTH: Final = 10_000


def live_picture(graph: Graph, lines: Mapping[str, Sequence[str]], troubled: Sequence[str]) -> RenderableType:
    """Boxes, sources on the left and sinks on the right; in a terminal that is too narrow, a list with sources first.

    `lines`: the text in each node; `troubled`: nodes to be marked.
    """
    return _Picture(graph, lines, frozenset(troubled))


@dataclass(frozen=True, slots=True)
class _Picture:
    graph: Graph
    lines: Mapping[str, Sequence[str]]
    troubled: frozenset[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        boxes = self._boxes()
        needed = console.measure(boxes, options=options.update(width=_ANY_WIDTH)).maximum
        yield boxes if needed <= options.max_width else self._list()

    def _boxes(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for _ in self.graph.columns:
            table.add_column(vertical="middle")
        table.add_row(*(Group(*(self._panel(box) for box in column)) for column in self.graph.columns))
        return table

    def _panel(self, box: Box) -> Panel:
        text = Text("\n".join((*self.lines.get(box.name, ()), *self._onward(box))))
        return Panel(text, title=Text(f"{box.name} ({box.type})"), border_style=self._colour(box), expand=False)

    def _list(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in ("NODE", "TYPE", "NOW", "GOES ON TO"):
            table.add_column(name, overflow="fold")
        for column in self.graph.columns:
            for box in column:
                now = Text("\n".join(self.lines.get(box.name, ())))
                table.add_row(Text(box.name, self._colour(box)), box.type, now, Text("\n".join(self._onward(box))))
        return table

    def _onward(self, box: Box) -> list[str]:
        return [
            f"{one.label + ' ' if one.label else ''}→ {one.end}" for one in self.graph.arrows if one.start == box.name
        ]

    def _colour(self, box: Box) -> str:
        return "red" if box.name in self.troubled else _COLOURS[box.kind]
