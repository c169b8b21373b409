"""Time slices of a thread's own: asked for, inherited, and nothing else of the thread's scheduling changed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.scheduling import has_time_slices, scheduling_of
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.host import shorten_time_slices, time_slices

ROOT = Path(__file__).parents[2]
FIRST = "import json, os, threading; from tests.support.scheduling import scheduling_of; from logboom.host import *"
needs_slices = pytest.mark.skipif(not has_time_slices(), reason="no time slices of a thread's own (Linux 6.12)")


def told_by(program: str) -> object:
    """What a program in a process of its own says, as JSON."""
    command = [sys.executable, "-c", f"{FIRST}\n{program}"]
    done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, text=True, timeout=WAIT_S)
    return json.loads(done.stdout)


@needs_slices
def test_the_slice_alone_changes_and_goes_back() -> None:
    program = """
os.nice(3)
before = scheduling_of()
first = shorten_time_slices(100)
short = scheduling_of()
shorten_time_slices(0)
print(json.dumps([first, short == before._replace(slice_ns=100_000), scheduling_of() == before, before.niceness]))
"""
    assert told_by(program) == [True, True, True, 3]


@needs_slices
def test_threads_and_processes_that_are_started_inherit_it() -> None:
    program = """
shorten_time_slices(200)
found = []
thread = threading.Thread(target=lambda: found.append(scheduling_of().slice_ns))
thread.start()
thread.join()
reader, writer = os.pipe()
if not os.fork():
    os.write(writer, str(scheduling_of().slice_ns).encode())
    os._exit(0)
print(json.dumps([*found, int(os.read(reader, 20))]))
"""
    assert told_by(program) == [200_000, 200_000]


@needs_slices
def test_a_policy_that_somebody_gave_is_kept() -> None:
    program = """
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
before = scheduling_of()
print(json.dumps([shorten_time_slices(100), scheduling_of() == before, before.policy == os.SCHED_BATCH]))
"""
    assert told_by(program) == [False, True, True]


@needs_slices
def test_a_helper_works_with_the_slices_of_the_system() -> None:
    program = """
import socket
from logboom.host import helper
before = scheduling_of()
shorten_time_slices(100)
found = []
helper._named = lambda name: lambda side: found.append(scheduling_of().slice_ns)
helper.main("work", socket.socketpair()[0].detach())
print(json.dumps(found == [before.slice_ns]))
"""
    assert told_by(program) is True


@needs_slices
@pytest.mark.parametrize(("slice_us", "wanted_ns"), [(None, 100_000), (500, 500_000), (0, None)])
def test_a_broker_asks_for_what_its_setting_says(tmp_path: Path, slice_us: int | None, wanted_ns: int | None) -> None:
    setting = {} if slice_us is None else {"LOGBOOM_BROKER__TIME_SLICE_US": str(slice_us)}
    with BrokerProcess(tmp_path / "data", environment=setting) as broker:
        pid = broker.ready["pid"]
        assert isinstance(pid, int)
        assert scheduling_of(pid).slice_ns == (wanted_ns or scheduling_of().slice_ns)


def test_where_the_kernel_refuses_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(time_slices, "system_call", refused)
    assert not shorten_time_slices(100)


def test_a_kernel_without_slices_of_a_threads_own_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def called(*call: object) -> int:
        calls.append(call)  # it writes no runtime
        return 0

    monkeypatch.setattr(time_slices, "system_call", called)
    assert not shorten_time_slices(100)
    assert len(calls) <= 1
