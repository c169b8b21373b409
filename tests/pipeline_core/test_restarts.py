"""When a run goes on behind the end of a JVM, and when it gives up."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import WAIT_S

from logboom.pipeline.run.restarts import ENDS_MAX, Restarts, restarts_so_far, under_way_in

BATCH, OTHER = "batch 7 of the router", "batch 3 of the sink search"


def ended(restarts: Restarts, *under_way: str, lasted_s: float = 5.0) -> Restarts:
    return restarts.after(under_way, lasted_s, "{}", ())


def test_the_same_batch_is_given_up_after_so_many_ends_in_a_row() -> None:
    restarts = Restarts()
    for _ in range(ENDS_MAX - 1):
        restarts = ended(restarts, BATCH, OTHER)
        assert restarts.given_up_for is None
    restarts = ended(restarts, BATCH)
    assert restarts.given_up_for is not None
    assert f"{ENDS_MAX} times in a row with {BATCH} running" in restarts.given_up_for
    assert restarts.count == ENDS_MAX


def test_what_was_done_meanwhile_counts_no_more() -> None:
    restarts = Restarts()
    for number in range(10 * ENDS_MAX):
        restarts = ended(restarts, f"batch {number} of the router")
        assert restarts.given_up_for is None
        assert restarts.pause_s == 1
    assert restarts.count == 10 * ENDS_MAX


def test_a_run_that_lasted_did_not_end_for_what_it_began_with() -> None:
    """A batch may wait for its sink's server for days."""
    restarts = Restarts()
    for _ in range(10 * ENDS_MAX):
        restarts = ended(restarts, OTHER, lasted_s=3_600)
        assert restarts.given_up_for is None


def test_a_jvm_that_ends_before_any_batch_is_given_up_too() -> None:
    restarts, pauses = Restarts(), []
    while restarts.given_up_for is None:
        restarts = ended(restarts, lasted_s=0)
        pauses.append(restarts.pause_s)
    assert pauses == [1, 2, 4, 8, 16, 30]
    assert restarts.given_up_for == f"{ENDS_MAX} times in a row before any batch; nothing is lost"


def test_batches_that_were_begun_and_not_committed_are_under_way(tmp_path: Path) -> None:
    router, search = tmp_path / "router", tmp_path / "deliveries" / "search" / "query"
    for directory in (router / "offsets", router / "commits", search / "offsets", search / "commits"):
        directory.mkdir(parents=True)
    for path in (
        router / "offsets" / "6",
        router / "offsets" / "7",
        router / "commits" / "6",
        search / "offsets" / "3",
    ):
        path.touch()
    assert under_way_in(tmp_path) == (BATCH, OTHER)
    (router / "commits" / "7").touch()
    assert under_way_in(tmp_path) == (OTHER,)
    (search / "commits" / "3").touch()
    assert under_way_in(tmp_path) == ()
    (tmp_path / "log" / "router" / "offsets").mkdir(parents=True)
    (tmp_path / "log" / "router" / "offsets" / "7").touch()
    assert under_way_in(tmp_path, tmp_path / "log") == (BATCH,)


PROGRAM = """
import os, sys
from logboom.pipeline.run.restarts import Restarts, allow_signals, held_signals, restarts_so_far, start_anew
before = restarts_so_far()
if before is None:
    with held_signals():
        os.kill(os.getpid(), int(sys.argv[1])) if sys.argv[1:] else None
        start_anew(Restarts().after(("one",), 1.0, "the plan", ("dropped",)))
print(os.getpid(), before.count, before.plan, before.dropped, flush=True)
allow_signals()
print("goes on", flush=True)
"""


def run_program(*arguments: str) -> tuple[int, list[str], int]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=WAIT_S)
    return process.pid, output.splitlines(), process.returncode


def test_the_process_goes_on_in_its_own_place() -> None:
    pid, lines, code = run_program()
    assert lines == [f"{pid} 1 the plan ('dropped',)", "goes on"]
    assert code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_came_meanwhile_ends_it_in_order(number: signal.Signals) -> None:
    _, lines, code = run_program(str(int(number)))
    assert [line for line in lines if line == "goes on"] == []
    assert code == 0


def test_a_hangup_that_came_meanwhile_ends_nothing() -> None:
    _, lines, code = run_program(str(int(signal.SIGHUP)))
    assert lines[-1] == "goes on"
    assert code == 0


def test_what_was_left_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert restarts_so_far() is None
    for number in ("none", "1000000"):
        monkeypatch.setenv("LOGBOOM_PIPELINE_RESTART", number)
        assert restarts_so_far() == Restarts(), "a file that is not there makes no first start of it"
    assert "LOGBOOM_PIPELINE_RESTART" not in os.environ
