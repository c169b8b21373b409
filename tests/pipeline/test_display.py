"""What is shown of a running pipeline: each figure is of the thing that it stands beside."""

import socket
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.pipeline.checkpoint.ledger import EMPTY, BatchRecord, Ledger
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.run.display import MetricsPage, PlainDisplay, balance_lines, batch_line
from logboom.pipeline.run.progress import RunProgress
from logboom.pipeline.sinks.base import Delivered


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


def _run(sizes: list[int], duration_ms: int) -> RunProgress:
    progress, total = RunProgress("p"), EMPTY
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


def test_a_long_batch_is_told_of_after_pauses_that_double(capsys: pytest.CaptureFixture[str]) -> None:
    clock, progress = [0.0], RunProgress("p")
    display = PlainDisplay(lambda: clock[0])
    told = {}
    for second in range(80):
        clock[0] = float(second)
        display.show(progress.snapshot())
        if out := capsys.readouterr().out:
            told[second] = out
    assert told == dict.fromkeys((0, 5, 15, 35, 75), "p starting Spark\n")


def test_the_end_tells_what_a_sink_has_not_delivered_and_why() -> None:
    progress = _run([5], 10)
    progress.delivered(Delivered("database", 0, rows=0, failures=1, error="password refused"))
    progress.lag("database", 5)
    assert balance_lines(progress.snapshot())[-1] == (
        "  delivered to database: 0, repeats skipped 0, dead 0, waiting 5; the next run tries again what failed: "
        "password refused"
    )


def test_sinks_keep_their_counts_when_the_plan_is_edited() -> None:
    """The events that left are counted since the start, and those that arrived have to be comparable with them."""
    progress = RunProgress("p")
    for name in ("kept", "gone"):
        progress.sink(name)
        progress.lag(name, 5)
        progress.delivered(Delivered(name, 0, rows=7, failures=1, error="down"))
    progress.edited({})
    for name in ("kept", "new"):
        progress.sink(name)
    progress.delivered(Delivered("kept", 1, rows=2))
    sinks = progress.snapshot().sinks
    assert {name: (sink.rows, sink.failures, sink.error, sink.lag) for name, sink in sinks.items()} == {
        "kept": (9, 1, None, None),
        "new": (0, 0, None, None),
    }
    progress.edited({})
    progress.sink("gone")
    assert progress.snapshot().sinks["gone"].rows == 7


def test_each_state_before_the_first_batch_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """`waiting` stood there for the minute in which Spark started on a busy machine."""
    progress, display = RunProgress("p"), PlainDisplay(lambda: 0.0)
    for state in ("waiting", "starting", "starting", "running"):
        progress.state(state)
        display.show(progress.snapshot())
    assert capsys.readouterr().out.splitlines() == [
        "p waiting for its source streams",
        "p starting Spark",
        "p running, no batch yet",
    ]


def test_what_has_nothing_to_do_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    clock, progress = [0.0], _run([5], 10)
    progress.state("running")
    progress.sink("archive")
    display = PlainDisplay(lambda: clock[0])
    display.show(progress.snapshot())
    clock[0] = 1_000.0
    display.show(progress.snapshot())
    assert len(capsys.readouterr().out.splitlines()) == 1
    progress.lag("archive", 7)
    progress.lag(None, 12)
    display.show(progress.snapshot())
    assert capsys.readouterr().out == "p running | behind batch 0 | lag 12 | archive has 7 to deliver\n"
    progress.lag("archive", 0)
    progress.lag(None, 0)
    progress.state("delivering")
    clock[0] = 2_000.0
    display.show(progress.snapshot())
    assert capsys.readouterr().out == "p delivering | behind batch 0 | lag 0\n"


def test_the_totals_at_the_end_are_of_the_whole_run(capsys: pytest.CaptureFixture[str]) -> None:
    close: Callable[..., None] = PlainDisplay().close
    close(_run([5, 7, 9], 10).snapshot())
    assert capsys.readouterr().out.startswith("records in 21 + copies 0 = out 21 + dropped 0 + dead 0 (balanced, 3 b")


def test_an_address_of_metrics_that_is_taken_is_told_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PipelineError, match=f"--http 127.0.0.1:{port}: Address already in use"):
            MetricsPage(RunProgress("shop"), ("127.0.0.1", port)).serve()
