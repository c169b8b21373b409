"""A graph as SVG: boxes in columns, arrows as curves. Knows only graphs; needs no fonts beyond those of a browser."""

from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from logboom.pipeline.drawing.graph import Arrow, Box, Graph

_CHARACTER: Final = 7.4
"""Upper estimate of the width of a character, in pixels."""
_BOX_HEIGHT: Final = 44
_ROW: Final = 66
_BETWEEN: Final = 90
_MARGIN: Final = 20
_LABEL_ABOVE, _LABEL_BELOW, _LABEL_HEIGHT = 6.0, 14.0, 12.0
_FILL: Final = {"source": "#e3f0ff", "transform": "#f4f4f4", "sink": "#e6f5e6"}
_STYLE: Final = (
    "text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#222}"
    ".type{font-size:11px;fill:#666}.label{font-size:11px;fill:#555;paint-order:stroke;stroke:#fff;stroke-width:3px}"
    "rect{stroke:#888;rx:6}path{fill:none;stroke:#888;stroke-width:1.4}"
)
_ARROW_END: Final = (
    '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z" style="fill:#888;stroke:none"/></marker></defs>'
)


_Column = list[Box | Arrow]
"""Boxes, and arrows that pass between them to a later column."""
_Place = tuple[float, float, float]
"""Left, top and width."""


def svg(graph: Graph, title: str) -> str:
    """The whole document."""
    arrows = _together(graph.arrows)
    columns = _with_room_for(graph, arrows)
    labels = max((len(arrow.label) for arrow in arrows), default=0)
    between = _BETWEEN + labels * _CHARACTER * 0.6
    rows = max(len(column) for column in columns)
    boxes: dict[str, _Place] = {}
    passes: dict[Arrow, list[_Place]] = {arrow: [] for arrow in arrows}
    left = float(_MARGIN)
    for column in columns:
        wide = max(_width(one) for one in column if isinstance(one, Box))
        top = _MARGIN + (rows - len(column)) * _ROW / 2
        for row, one in enumerate(column):
            place = (left, top + row * _ROW, wide)
            if isinstance(one, Box):
                boxes[one.name] = place
            else:
                passes[one].append(place)
        left += wide + between
    ways = {arrow: [boxes[arrow.start], *passes[arrow], boxes[arrow.end]] for arrow in arrows}
    width, height = left - between + _MARGIN, rows * _ROW + _MARGIN
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        _ARROW_END,
        *map(_line, ways.values()),
        *(_label(arrow.label, ways[arrow], above) for arrow, above in _labels(ways).items() if arrow.label),
        *(_box(one, boxes[one.name]) for column in graph.columns for one in column),
        "</svg>",
    ]
    return "\n".join([*parts, ""])


def _together(arrows: Sequence[Arrow]) -> list[Arrow]:
    """One arrow from a box to another, with the names of all outputs on it."""
    labels: dict[tuple[str, str], list[str]] = {}
    for arrow in arrows:
        labels.setdefault((arrow.start, arrow.end), []).append(arrow.label)
    return [Arrow(start, end, ", ".join(filter(None, found))) for (start, end), found in labels.items()]


def _with_room_for(graph: Graph, arrows: Sequence[Arrow]) -> list[_Column]:
    """The columns with an additional row for each arrow that passes through."""
    at = {box.name: (number, row) for number, column in enumerate(graph.columns) for row, box in enumerate(column)}
    columns: list[_Column] = [list(column) for column in graph.columns]
    for arrow in arrows:
        (first, start), (last, end) = at[arrow.start], at[arrow.end]
        high = [(row + 0.5) / len(graph.columns[number]) for number, row in ((first, start), (last, end))]
        for number in range(first + 1, last):
            wanted = high[0] + (high[1] - high[0]) * (number - first) / (last - first)
            columns[number].insert(round(wanted * len(columns[number])), arrow)
    return columns


def _width(box: Box) -> float:
    return max(len(box.name), len(box.type)) * _CHARACTER + 24


def _box(box: Box, place: tuple[float, float, float]) -> str:
    left, top, wide = place
    middle = left + wide / 2
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{_BOX_HEIGHT}" fill="{_FILL[box.kind]}"/>'
        f'<text x="{middle:.1f}" y="{top + 19:.1f}" text-anchor="middle">{escape(box.name)}</text>'
        f'<text class="type" x="{middle:.1f}" y="{top + 35:.1f}" text-anchor="middle">{escape(box.type)}</text>'
    )


def _labels(ways: Mapping[Arrow, Sequence[_Place]]) -> dict[Arrow, float]:
    """How far above its end each arrow has its label. Labels of arrows to the same box are ordered as the arrows
    arrive: the first above the end, all others below it."""
    found: dict[Arrow, float] = {}
    lowest: dict[str, float] = {}
    for arrow in sorted(ways, key=lambda arrow: ways[arrow][-2][1]):
        found[arrow] = lowest.get(arrow.end, _LABEL_ABOVE)
        if arrow.label:
            lowest[arrow.end] = found[arrow] - (_LABEL_ABOVE + _LABEL_BELOW if found[arrow] > 0 else _LABEL_HEIGHT)
    return found


def _line(places: Sequence[_Place]) -> str:
    """A curve through all of these places, from the right side of the first to the left side of the last."""
    middles = [top + _BOX_HEIGHT / 2 for _, top, _ in places]
    drawn = f"M{places[0][0] + places[0][2]:.1f} {middles[0]:.1f}"
    for number in range(1, len(places)):
        start, above = places[number - 1][0] + places[number - 1][2], middles[number - 1]
        end, below = places[number][0], middles[number]
        bend = min((end - start) / 2, _BETWEEN)
        drawn += f"C{start + bend:.1f} {above:.1f} {end - bend:.1f} {below:.1f} {end:.1f} {below:.1f}"
        if number < len(places) - 1:
            drawn += f"H{end + places[number][2]:.1f}"
    return f'<path d="{drawn}" marker-end="url(#end)"/>'


def _label(label: str, places: Sequence[_Place], above_end: float) -> str:
    """A label near the end of an arrow, in front of all lines."""
    x, y = places[-1][0] - 10, places[-1][1] + _BOX_HEIGHT / 2 - above_end
    return f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="end">{escape(label)}</text>'
