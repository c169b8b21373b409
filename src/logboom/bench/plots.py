"""The pictures of a run: bars, percentile curves, lines over sizes and over time.

Knows matplotlib, imported where it is used so that everything else starts without it; must not know what was measured.
Every function writes one PNG and returns its path.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

COLOURS = ("#1b6ca8", "#d1495b", "#8d2d3f", "#2a9d6f", "#14583f", "#7d6b91", "#c98b2b", "#555555")
NINES = ((2, "50"), (10, "90"), (100, "99"), (1e3, "99.9"), (1e4, "99.99"), (1e5, "99.999"), (1e6, "99.9999"))
DPI = 120
_MARKS = ("#2a9d6f", "#d1495b", "#7d6b91")
_SHOWN_FROM = 20.0
"""Percentile at which the curves begin."""
_DECADES_MS = (0.01, 0.1, 1, 10, 100, 1_000, 10_000, 100_000)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _saved(figure: Any, target: Path) -> Path:
    figure.savefig(target, dpi=DPI)
    _pyplot().close(figure)
    return target


def _plain(number: float) -> str:
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.3g}"


def _short(number: float) -> str:
    """A number on an axis: 250K, 1.2M."""
    for least, unit in ((1e6, "M"), (1e3, "K")):
        if number >= least:
            return f"{number / least:g}{unit}"
    return f"{number:g}"


def bars(target: Path, title: str, values: Mapping[str, float], unit: str) -> Path:
    """A bar for each name, in `picture.png` of the folder `target`."""
    figure, axes = _pyplot().subplots(figsize=(7, 0.8 + 0.5 * len(values)), layout="constrained")
    drawn = axes.barh(list(values), list(values.values()), color=COLOURS[0])
    axes.bar_label(drawn, labels=[_plain(value) for value in values.values()], padding=4)
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(title)
    return _saved(figure, target / "picture.png")


def grouped_bars(
    target: Path, title: str, panels: Mapping[str, Mapping[str, Sequence[float]]], unit: str, colours: Mapping[str, str]
) -> Path:
    """A panel for each case; in it a bar for each name at the median of its samples, each sample a dot."""
    import statistics

    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    tallest = max(len(panel) for panel in panels.values())
    size = (6.2 * columns, rows * (1.1 + 0.42 * tallest) + 0.5)
    figure, grid = _pyplot().subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for axes, (name, panel) in zip(grid.flat, panels.items(), strict=False):
        middle = [statistics.median(samples) for samples in panel.values()]
        axes.barh(list(panel), middle, color=[colours[each] for each in panel], height=0.66)
        reach = max((max(samples) for samples in panel.values()), default=0.0) or 1.0
        for at, (samples, value) in enumerate(zip(panel.values(), middle, strict=True)):
            axes.plot(samples, [at] * len(samples), "o", color="black", markersize=3, alpha=0.55, clip_on=False)
            axes.text(max([*samples, value]) + reach * 0.02, at, _plain(value), va="center", fontsize=9)
        axes.set_xlim(0, reach * 1.18)
        axes.invert_yaxis()
        axes.set_title(name, fontsize=10)
        axes.set_xlabel(unit, fontsize=9)
        axes.locator_params(axis="x", nbins=6)
        axes.xaxis.set_major_formatter(lambda value, _: _short(value))
        axes.spines[["top", "right"]].set_visible(False)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    figure.suptitle(title)
    return _saved(figure, target)


def _percentile_axes(axes: Any, lines: Mapping[str, Sequence[Sequence[float]]], colours: Mapping[str, str]) -> None:
    right = 10.0
    for name, points in lines.items():
        across = [100 / (100 - p) for p, _ in points]
        axes.plot(across, [ms for _, ms in points], label=name, color=colours[name], linewidth=1.6)
        right = max([right, *across])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([at for at, _ in NINES], [label for _, label in NINES])
    axes.minorticks_off()
    axes.set_xlim(100 / (100 - _SHOWN_FROM), right * 1.3)
    axes.set_yticks(_DECADES_MS, [f"{each:,g}" for each in _DECADES_MS])
    axes.set_xlabel("percentile of messages")
    axes.grid(alpha=0.3)


def _heights(axes: Any, lines: Iterable[Sequence[Sequence[float]]]) -> None:
    """From the decade below all points to that above them; axes that share heights follow."""
    heights = [ms for points in lines for p, ms in points if ms > 0 and p >= _SHOWN_FROM] or [1.0]
    axes.set_ylim(10 ** math.floor(math.log10(min(heights))), 10 ** math.ceil(math.log10(max(heights) * 1.01)))


def curves(target: Path, title: str, lines: Mapping[str, Sequence[Sequence[float]]]) -> Path:
    """Percentile curves over "nines", milliseconds on a log axis, in `picture.png` of the folder `target`."""
    figure, axes = _pyplot().subplots(figsize=(8, 4.8), layout="constrained")
    _percentile_axes(axes, lines, dict(zip(lines, COLOURS * (1 + len(lines) // len(COLOURS)), strict=False)))
    _heights(axes, lines.values())
    axes.set_ylabel("latency, ms")
    axes.set_title(title)
    axes.legend()
    return _saved(figure, target / "picture.png")


def curve_panels(
    target: Path, title: str, panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], colours: Mapping[str, str]
) -> Path:
    """Percentile curves in a panel for each case, on the same axes, with one legend."""
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    figure, grid = _pyplot().subplots(
        rows, columns, figsize=(6.2 * columns, 3.8 * rows + 0.8), layout="constrained", squeeze=False, sharey=True
    )
    handles: dict[str, Any] = {}
    for axes, (name, lines) in zip(grid.flat, panels.items(), strict=False):
        _percentile_axes(axes, lines, colours)
        axes.set_title(name, fontsize=10)
        drawn, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, drawn, strict=True))
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    _heights(grid[0][0], [points for lines in panels.values() for points in lines.values()])
    for row in grid:
        row[0].set_ylabel("latency, ms")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    figure.suptitle(title)
    return _saved(figure, target)


def size_lines(
    target: Path, title: str, panels: Mapping[str, Mapping[str, Mapping[int, float]]], colours: Mapping[str, str]
) -> Path:
    """MB/s over the size of a message, both on log axes; a panel for each direction."""
    figure, grid = _pyplot().subplots(
        1, len(panels), figsize=(6.2 * len(panels), 4.6), layout="constrained", squeeze=False, sharey=True
    )
    handles: dict[str, Any] = {}
    for axes, (name, lines) in zip(grid.flat, panels.items(), strict=True):
        sizes = sorted({size for points in lines.values() for size in points})
        for label, points in lines.items():
            order = sorted(points)
            (drawn,) = axes.plot(order, [points[n] for n in order], "o-", color=colours[label], markersize=4)
            handles[label] = drawn
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [_size(size) for size in sizes])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("size of a message")
        axes.set_title(name, fontsize=10)
        axes.grid(alpha=0.3)
    grid[0][0].set_ylabel("MB/s of values")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    figure.suptitle(title)
    return _saved(figure, target)


def _size(size: int) -> str:
    if size >= 1_000_000:
        return f"{size / 1_000_000:.2g} MB"
    return f"{size / 1024:g} KB" if size >= 1024 else f"{size} B"


def timelines(
    target: Path,
    title: str,
    seconds: Sequence[float],
    panels: Mapping[str, Sequence[float | None]],
    marks: Mapping[str, Sequence[float]],
) -> Path:
    """One panel over time for each series, with upright lines where something was done; None leaves a gap."""
    figure, grid = _pyplot().subplots(
        len(panels), 1, figsize=(10, 1.7 * len(panels) + 0.8), layout="constrained", squeeze=False, sharex=True
    )
    unit, per = ("minutes", 60) if seconds and seconds[-1] > 300 else ("seconds", 1)
    across = [second / per for second in seconds]
    for axes, (name, values) in zip(grid.flat, panels.items(), strict=True):
        axes.plot(across, [float("nan") if value is None else value for value in values], linewidth=1, color=COLOURS[0])
        for (label, times), colour in zip(marks.items(), _MARKS, strict=False):
            for number, at in enumerate(times):
                axes.axvline(at / per, color=colour, linewidth=0.8, alpha=0.7, label=label if number == 0 else None)
        axes.set_ylabel(name, fontsize=9)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    grid[-1][0].set_xlabel(unit)
    if any(marks.values()):
        grid[0][0].legend(loc="upper right", fontsize=8)
    figure.suptitle(title)
    return _saved(figure, target)
