"""What is shown of a running pipeline: each figure is of the thing that it stands beside."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.pipeline.checkpoint.ledger import EMPTY, BatchRecord, Ledger
from logboom.pipeline.run.display import PlainDisplay, batch_line
from logboom.pipeline.run.progress import Progress


def _ledger(records: int) -> Ledger:
    return Ledger(
        records_in={"web": records},
        bytes_in=100 * records,
        copies=0,
        out={"out": records},
        bytes_out=0,
        dropped={},
        dead={},
        masked={},
    )


def _run(sizes: list[int], duration_ms: int) -> Progress:
    progress, total = Progress("p"), EMPTY
    for number, size in enumerate(sizes):
        total = total.plus(_ledger(size))
        progress.batch(
            BatchRecord(
                batch=number, plan="x", started_at="now", duration_ms=duration_ms, ledger=_ledger(size), total=total
            )
        )
    return progress


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=20), st.integers(1, 60_000))
def test_the_rate_of_a_line_is_of_the_batch_it_tells_of(sizes: list[int], duration_ms: int) -> None:
    line = batch_line(_run(sizes, duration_ms).snapshot())
    rate = sizes[-1] * 1_000 / duration_ms
    assert f"| in {sizes[-1]:,} (" in line
    assert f"| {rate:,.0f} events/s" in line


def test_an_unknown_lag_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    progress, display = _run([5], 10), PlainDisplay()
    display.show(progress.snapshot())
    progress.lag(None, 12_345)
    progress.batch(BatchRecord(batch=1, plan="x", started_at="", duration_ms=5, ledger=_ledger(2), total=_ledger(7)))
    display.show(progress.snapshot())
    first, second = capsys.readouterr().out.splitlines()
    assert "lag" not in first
    assert second.endswith("| lag 12,345")


def test_the_totals_at_the_end_are_of_the_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    close: Callable[..., None] = PlainDisplay().close
    close(_run([5, 7, 9], 10).snapshot())
    assert capsys.readouterr().out.startswith("records in 21 + copies 0 = out 21 + dropped 0 + dead 0 (balanced, 3 b")
