"""Latencies as an HdrHistogram, and the percentiles that the number of samples can support.

Knows microseconds; must not know where they come from.
"""

from collections.abc import Iterable, Sequence
from typing import Any

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999)
"""Reported for every run. A percentile beyond the last sample is the maximum."""
_LOWEST_US, _HIGHEST_US, _DIGITS = 1, 600_000_000, 3


def histogram_of(latencies_us: Iterable[int]) -> Any:
    """An HdrHistogram of 3 significant digits, from a microsecond to ten minutes."""
    from hdrh.histogram import HdrHistogram

    histogram = HdrHistogram(_LOWEST_US, _HIGHEST_US, _DIGITS)
    for latency in latencies_us:
        histogram.record_value(min(max(latency, _LOWEST_US), _HIGHEST_US))
    return histogram


def summary(histogram: Any) -> dict[str, Any]:
    """Percentiles and a curve in milliseconds, up to the last percentile that at least one sample lies beyond."""
    count = histogram.get_total_count()
    steps = (100 - 100 / 2 ** (n / 4) for n in range(4 * 24))
    curve = [p for p in steps if count * (100 - p) / 100 >= 1]
    return {
        "count": count,
        "percentiles_ms": {str(p): histogram.get_value_at_percentile(p) / 1_000 for p in PERCENTILES},
        "max_ms": histogram.get_max_value() / 1_000,
        "mean_ms": round(histogram.get_mean_value() / 1_000, 4),
        "curve_ms": [[round(p, 7), histogram.get_value_at_percentile(p) / 1_000] for p in curve],
        "encoded": histogram.encode().decode(),
    }


def merged(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The summary of several runs' messages together."""
    histogram = histogram_of(())
    for each in summaries:
        histogram.decode_and_add(each["encoded"])
    return summary(histogram)


def table(rows: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Heading and a row for each summary; a percentile with no sample beyond it is in brackets."""
    lines = [["", *(f"p{p:g}" for p in PERCENTILES), "max", "messages"]]
    for name, each in rows.items():
        cells = []
        for p in PERCENTILES:
            cell = _cell(each["percentiles_ms"][str(p)])
            cells.append(cell if each["count"] * (100 - p) / 100 >= 1 - 1e-9 else f"({cell})")
        lines.append([name, *cells, _cell(each["max_ms"]), f"{each['count']:,}"])
    return lines


def _cell(ms: float) -> str:
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"
