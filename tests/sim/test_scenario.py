"""A node under faults keeps its promises, and one that does not is found out."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.waiting import WAIT_S

from logboom.base.ports import File
from logboom.broker.disk.inline_commit import InlineCommit
from logboom.broker.group_commit import FlushTarget
from logboom.sim.device import DiskTiming
from logboom.sim.disk import SimDisk, SimFile
from logboom.sim.faults import FAULTS
from logboom.sim.scenario import Scenario, run_seed

_ROOT = Path(__file__).parent.parent.parent
SEEDS = int(os.environ.get("LOGBOOM_SIM_SEEDS", "4"))
SHORT = Scenario(troubled_s=4.0)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_acknowledged_is_kept_whatever_goes_wrong(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.violations == ()
    assert outcome.records_acked > 100
    assert outcome.records_final + outcome.records_deleted >= outcome.records_acked


def test_small_rounds_are_made_on_the_loop_and_by_the_thread_where_the_disk_is_slow() -> None:
    """The default way of small group commits is simulated too, and left at the first sign of a slow disk."""
    quiet = replace(
        SHORT,
        partitions=1,
        trimmed_partitions=0,
        aged_partitions=0,
        idempotent_producers=1,
        plain_producers=0,
        members=0,
        made_streams=0,
        faults=("cut",),
        disk_timing=DiskTiming(write_nowait_refused=0.0, begin_sync_refused=0.0),
    )
    quick = run_seed(1, quiet)
    slow = run_seed(1, replace(quiet, faults=("slow",), trouble_pause_max_s=0.1))
    assert quick.violations == slow.violations == ()
    assert quick.inline_flush_rounds > 0.6 * quick.flush_rounds
    assert 0 < slow.inline_flush_rounds < 0.6 * slow.flush_rounds


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_by_itself_is_survived(fault: str) -> None:
    outcome = run_seed(len(fault), replace(SHORT, faults=(fault,), trouble_pause_max_s=0.5))
    assert outcome.violations == ()
    assert set(outcome.faults) == {fault}
    assert outcome.records_acked > 0


_TELL_TRACE = """
import json, sys
from tests.sim.test_scenario import told_trace
print(json.dumps(told_trace(int(sys.argv[1]))))
"""


def told_trace(seed: int) -> list[object]:
    """What a run says of itself, and how many lines its trace has."""
    lines: list[str] = []
    outcome = run_seed(seed, Scenario(troubled_s=3.0), lines.append)
    return [outcome.digest, outcome.events, len(lines), outcome.records_acked, list(outcome.violations)]


def test_the_same_seed_gives_the_same_trace_in_every_process() -> None:
    """This one, in which much else has run, and a new one, which orders sets otherwise."""
    script = [sys.executable, "-c", _TELL_TRACE, "11"]
    environment = {**os.environ, "PYTHONHASHSEED": "4242"}
    done = subprocess.run(
        script, env=environment, cwd=_ROOT, capture_output=True, text=True, check=True, timeout=WAIT_S
    )
    first, again, other = told_trace(11), json.loads(done.stdout.splitlines()[-1]), told_trace(12)
    assert first == again
    assert first[0] != other[0]
    assert first[1] == first[2]


class LyingFile(SimFile):
    """Says that it is synced, and is not: a disk with a volatile cache, or a broker that does not wait for it."""

    def sync(self) -> None:
        pass

    def begin_sync(self, done: Callable[[OSError | None], None]) -> bool:
        asyncio.get_running_loop().call_soon(done, None)
        return True


class LyingDisk(SimDisk):
    """Tells the truth of everything but records."""

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        records = path.startswith("streams/work-") and path.endswith(".log")
        return LyingFile(self, path, self.nodes[path]) if records else file


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    "planted",
    [replace(SHORT, make_disk=LyingDisk), replace(SHORT, stream_config={"logboom.flush": "none"})],
    ids=["a sync that does nothing", "acks that do not wait for it"],
)
def test_a_broker_that_acks_before_its_records_are_durable_is_found_out(planted: Scenario) -> None:
    for seed in range(3):
        outcome = run_seed(seed, replace(planted, faults=("power",), trouble_pause_max_s=1.0))
        assert outcome.violations, f"seed {seed} found nothing"
        assert outcome.last_lines


class AcksTooEarly(InlineCommit):
    """Calls a round durable as soon as its sync has begun."""

    def begin(self, round_bytes: Mapping[FlushTarget, int]) -> dict[FlushTarget, int]:
        end_of_sync, self._sync_ended = self._sync_ended, self._ignore  # type: ignore[method-assign]
        left = super().begin(round_bytes)
        self._sync_ended = end_of_sync  # type: ignore[method-assign]
        for target in round_bytes:
            if target not in left:
                asyncio.get_running_loop().call_soon(end_of_sync, target, None)
        return left

    def _ignore(self, target: FlushTarget, error: OSError | None) -> None:
        pass


class BelievesFailedSyncs(InlineCommit):
    """Takes a sync that failed for one that succeeded."""

    def _sync_ended(self, target: FlushTarget, error: OSError | None) -> None:
        super()._sync_ended(target, None)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("wrong", "fault", "found_by"), [(AcksTooEarly, "power", 0), (BelievesFailedSyncs, "eio", 8)])
def test_wrong_commits_on_the_loop_are_found_out(
    monkeypatch: pytest.MonkeyPatch, wrong: type[InlineCommit], fault: str, found_by: int
) -> None:
    """`found_by`: a seed that finds it, as of November 2026."""
    busy = replace(
        SHORT,
        partitions=1,
        trimmed_partitions=0,
        aged_partitions=0,
        plain_producers=1,
        consumers=0,
        members=0,
        made_streams=0,
        producer_pause_max_s=0.01,
        faults=(fault,),
        trouble_pause_max_s=0.5,
        disk_timing=DiskTiming(sync_s=(5e-3, 45e-3)),
    )
    with monkeypatch.context() as patched:
        patched.setattr("logboom.broker.disk.flusher.InlineCommit", wrong)
        found = next((seed for seed in range(found_by, 20) if run_seed(seed, busy).violations), None)
    assert found is not None
    assert run_seed(found, busy).violations == ()
