"""The soak: its ledger notices each kind of fault, its line tells growth from noise, a run of seconds holds."""

import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from logboom.bench.servers import Server
from logboom.bench.soak import SoakLoad, run_soak, write_soak
from logboom.bench.soak.ledger import Ledger
from logboom.bench.soak.load import FLOWS
from logboom.bench.soak.samples import METRICS, Samples, flatness, sample

PLACE = ("stream", 0)


def sent(count: int) -> Ledger:
    ledger = Ledger()
    for number in range(count):
        assert ledger.next_number(PLACE) == number
    return ledger


def test_what_went_well_is_no_fault() -> None:
    ledger = sent(3)
    for number in range(3):
        ledger.acked(PLACE, number, number)
        ledger.read(PLACE, number, number, "reader")
        ledger.audited(PLACE, number)
        ledger.processed("group", PLACE, number)
    ledger.processed("group", PLACE, 1)
    assert ledger.faults == []
    assert ledger.counts == {"redelivered": 1}
    assert ledger.behind({"group": ("stream",)}) == []
    assert ledger.total_acked() == 3


@pytest.mark.parametrize(
    ("number", "offset", "word"), [(4, 5, "doubled"), (6, 5, "lost")], ids=["pushed back", "pulled forward"]
)
def test_a_record_that_does_not_stand_at_its_number(number: int, offset: int, word: str) -> None:
    ledger = Ledger()
    ledger.read(PLACE, offset, number, "reader")
    assert word in ledger.faults[0]


def test_acks_out_of_order_or_at_other_offsets() -> None:
    ledger = sent(3)
    ledger.acked(PLACE, 1, 1)
    ledger.acked(PLACE, 2, 7)
    assert len(ledger.faults) == 2


def test_an_auditor_that_misses_or_sees_twice() -> None:
    ledger = sent(3)
    for offset in (0, 2, 2):
        ledger.audited(PLACE, offset)
    assert len(ledger.faults) == 2


def test_a_group_that_skips() -> None:
    ledger = sent(3)
    ledger.processed("group", PLACE, 0)
    ledger.processed("group", PLACE, 2)
    assert "skipped from offset 1 to 2" in ledger.faults[0]


def test_what_is_missing_at_the_end_is_named() -> None:
    ledger = sent(2)
    ledger.acked(PLACE, 0, 0)
    behind = ledger.behind({"group": ("stream",), "other": ("elsewhere",)})
    assert [word for word in ("not acked", "auditor", "group") if any(word in line for line in behind)] == [
        "not acked",
        "auditor",
        "group",
    ]
    assert not any("other" in line for line in behind)


def test_values_tell_their_number_and_nothing_else_fits() -> None:
    for flow in FLOWS:
        assert len(flow.value(7)) == flow.record_bytes
        assert flow.value(7)[8:] != flow.value(8)[8:]
        assert int.from_bytes(flow.value(123_456)[:8], "big") == 123_456


def samples_of(memory: list[float | None]) -> Samples:
    samples = Samples(at_s=[float(second) for second in range(len(memory))])
    samples.values = {name: list(memory) if name == "memory_mb" else [10.0] * len(memory) for name in METRICS}
    return samples


def judged(memory: list[float | None]) -> dict[str, bool]:
    return {each.metric: each.flat for each in flatness(samples_of(memory), 0, len(memory))}


def test_a_slow_leak_under_noise_is_not_flat() -> None:
    noise = [100 + 15 * math.sin(n) + (40 if n % 300 < 20 else 0) for n in range(1_800)]
    assert all(judged(list(noise)).values())
    leaking = judged([value + n / 60 for n, value in enumerate(noise)])  # a MB each minute
    assert leaking.pop("memory_mb") is False
    assert all(leaking.values())


def test_gaps_are_skipped_and_short_runs_are_not_judged() -> None:
    assert judged([None if n % 3 == 0 else 80.0 for n in range(600)])["memory_mb"]
    assert judged([80.0] * 60) == {}


@pytest.mark.in_turn(3)
def test_a_soak_of_some_seconds_holds(tmp_path: Path) -> None:
    load = SoakLoad(minutes=0.12, rate=0.3, restart_every_s=2, member_life_s=(1.0, 3.0), churn_pause_s=0.5)
    outcome = run_soak(load, tmp_path, lambda _: None)
    assert outcome.ledger.faults == []
    assert outcome.held
    assert outcome.restarts.at_s["kill -9"]
    assert outcome.ledger.counts["streams made and removed"] > 0
    assert outcome.scanned == outcome.ledger.total_acked()
    folder = write_soak(tmp_path / "out", outcome)
    assert json.loads((folder / "result.json").read_text())["held"] is True
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "the broker's data is gone"


def test_a_process_that_ended_and_was_not_waited_for_gives_an_empty_sample(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is still in the process table
        server = cast("Server", SimpleNamespace(pid=ended.pid, running=True, data=tmp_path))
        samples, stop, asked = Samples(), threading.Event(), 0

        def acked() -> int:
            nonlocal asked
            asked += 1
            if asked == 2:  # at the end of the first sample
                stop.set()
            return asked

        sample(server, acked, samples, stop)
    assert {name: samples.values[name] for name in METRICS} == {name: [None] for name in METRICS}
