"""The nodes of a folder as one process: who starts first, what ends all of them, what a second signal does.

`run_nodes` runs in a process of its own, since it takes over the signals; its nodes are small programs.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.app.node_programs import FAILS, NODE, STUBBORN
from tests.support.waiting import WAIT_S

from logboom.app.supervisor.folder import read_list
from logboom.app.supervisor.remote import ask_supervisor

RUN = """
import json, sys
from pathlib import Path
from logboom.app.supervisor.folder import Listeners, Folder
from logboom.app.supervisor.run import ClusterPlan, run_nodes
from logboom.base.errors import LogboomError

programs = json.loads(sys.argv[2])

def tell(*words):
    print(json.dumps(words), flush=True)

class Show:
    def log_line(self, node_id, line): tell("log", node_id, line)
    def event(self, node_id, words): tell("event", node_id, words)
    def node_ready(self, node_id, seconds): tell("node", node_id)
    def progress(self, what, seconds): tell("progress", what)
    def ready(self, processes): tell("ready", list(processes.values()))
    def stopping(self, why): tell("stopping", why)

def command(place, joining):
    tell("start", place.id, joining)
    return [sys.executable, "-c", programs[str(place.id)]]

async def missing():
    return None

async def controller():
    return 2

folder = Folder.open(Path(sys.argv[1]))
folder.lay_out([int(each) for each in programs], Listeners("127.0.0.1:0", "127.0.0.1:0", None), keep=True)
plan = ClusterPlan(folder, [int(each) for each in programs], command, False, False, 60.0, missing, controller)
try:
    run_nodes(plan, Show())
except LogboomError as error:
    tell("error", str(error))
    sys.exit(1)
"""


class Run:
    """`run_nodes` in a process, and what it tells."""

    def __init__(self, folder: Path, programs: dict[int, str]) -> None:
        command = [sys.executable, "-c", RUN, str(folder), json.dumps(programs)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.told: list[list[Any]] = []

    def lines(self) -> Iterator[list[Any]]:
        """Everything it tells from here on, as it comes."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            self.told.append(json.loads(line))
            yield self.told[-1]

    def until(self, *begin: object) -> list[Any]:
        """The next that begins so."""
        return next(each for each in self.lines() if each[: len(begin)] == list(begin))

    def end(self) -> int:
        """The exit code, once it has told everything."""
        list(self.lines())
        return self.process.wait(WAIT_S)

    def of(self, kind: str) -> list[list[Any]]:
        """What it told of a kind."""
        return [each[1:] for each in self.told if each[0] == kind]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    runs: list[Run] = []

    def start(programs: Sequence[str]) -> Run:
        runs.append(Run(tmp_path / "folder", dict(enumerate(programs, 1))))
        return runs[-1]

    yield start
    for run in runs:
        run.process.kill()
        run.process.wait(WAIT_S)
        assert run.process.stdout is not None
        run.process.stdout.close()


def test_first_node_founds_the_cluster_and_the_controller_stops_last(started: Any, tmp_path: Path) -> None:
    run = started([NODE, NODE, NODE])
    run.until("ready")
    assert run.of("start")[0] == [1, False]
    assert run.told.index(["node", 1]) < run.told.index(["start", 2, True])
    nodes = read_list(tmp_path / "folder")["nodes"]
    assert [(node["id"], node["state"]) for node in nodes] == [(1, "up"), (2, "up"), (3, "up")]
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 0
    goes = [node for node, line in run.of("log") if line == "goes"]
    assert sorted(goes) == [1, 2, 3]
    assert goes[-1] == 2
    assert {node["state"] for node in read_list(tmp_path / "folder")["nodes"]} == {"down"}

    again = started([NODE, NODE, NODE])
    again.until("ready")
    assert sorted(again.of("start")) == [[1, True], [2, True], [3, True]]
    ask_supervisor(tmp_path / "folder", "down", None, WAIT_S)
    assert again.end() == 0
    assert again.of("stopping") == [["logboom cluster down"]]


def test_a_node_that_fails_to_start_stops_the_others(started: Any) -> None:
    run = started([NODE, FAILS, NODE])
    assert run.end() == 1
    (error,) = run.of("error")
    assert error == ["node 2: it ended with exit code 3 before it was ready: no room"]
    assert [1, "goes"] in run.of("log")


def test_a_second_signal_ends_everything_at_once(started: Any) -> None:
    run = started([STUBBORN, STUBBORN])
    (_, pids) = run.until("ready")
    files = [os.pidfd_open(pid) for pid in pids]
    run.process.send_signal(signal.SIGTERM)
    run.until("log", 1, "goes")
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 128 + signal.SIGINT
    for file in files:
        assert select.select([file], [], [], WAIT_S)[0]
        os.close(file)


def test_a_slow_start_reports_what_it_waits_for(started: Any) -> None:
    never_ready = NODE.replace("print(json.dumps", "0 and print(json.dumps")
    run = started([never_ready, NODE])
    assert run.until("progress") == ["progress", "waiting for node 1, which founds the cluster"]


def test_a_stop_during_the_start_is_heard(started: Any) -> None:
    never_ready = NODE.replace("print(json.dumps", "0 and print(json.dumps")
    run = started([NODE, never_ready])
    run.until("log", 2, "comes")
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 0
    assert run.of("ready") == []
