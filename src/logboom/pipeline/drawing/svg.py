"""A graph as SVG: boxes in columns, arrows as curves. Knows graphs alone; needs no font but what a browser has."""

from typing import Final
from xml.sax.saxutils import escape

from logboom.pipeline.drawing.graph import Arrow, Box, Graph

_CHARACTER: Final = 7.4
"""Width of a character of the font in use, in pixels; a little more than it has."""
_BOX_HEIGHT: Final = 44
_ROW: Final = 66
_BETWEEN: Final = 90
_MARGIN: Final = 20
_FILL: Final = {"source": "#e3f0ff", "transform": "#f4f4f4", "sink": "#e6f5e6"}
_STYLE: Final = (
    "text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#222}"
    ".type{font-size:11px;fill:#666}.label{font-size:11px;fill:#555}"
    "rect{stroke:#888;rx:6}path{fill:none;stroke:#888;stroke-width:1.4}"
)
_ARROW_END: Final = (
    '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z" style="fill:#888;stroke:none"/></marker></defs>'
)


def svg(graph: Graph, title: str) -> str:
    """The whole document."""
    labels = max((len(arrow.label) for arrow in graph.arrows), default=0)
    between = _BETWEEN + labels * _CHARACTER * 0.6
    rows = max(len(column) for column in graph.columns)
    places: dict[str, tuple[float, float, float]] = {}
    left = float(_MARGIN)
    for column in graph.columns:
        wide = max(_width(box) for box in column)
        top = _MARGIN + (rows - len(column)) * _ROW / 2
        for row, box in enumerate(column):
            places[box.name] = (left, top + row * _ROW, wide)
        left += wide + between
    width, height = left - between + _MARGIN, rows * _ROW + _MARGIN
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        _ARROW_END,
        *(_arrow(arrow, places) for arrow in graph.arrows),
        *(_box(box, places[box.name]) for column in graph.columns for box in column),
        "</svg>",
    ]
    return "\n".join([*parts, ""])


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


def _arrow(arrow: Arrow, places: dict[str, tuple[float, float, float]]) -> str:
    left, top, wide = places[arrow.start]
    start, above = left + wide, top + _BOX_HEIGHT / 2
    end, below = places[arrow.end][0], places[arrow.end][1] + _BOX_HEIGHT / 2
    bend = min((end - start) / 2, _BETWEEN)
    drawn = (
        f"M{start:.1f} {above:.1f}C{start + bend:.1f} {above:.1f} {end - bend:.1f} {below:.1f} {end:.1f} {below:.1f}"
    )
    path = f'<path d="{drawn}" marker-end="url(#end)"/>'
    if not arrow.label:
        return path
    x, y = end - 10, below - 6
    return path + f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="end">{escape(arrow.label)}</text>'
