"""The JVM of a session ends with what started it, however far either of them has come."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.pipeline.support import fill_disk, needs_java
from tests.support.server import free_port
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.errors import JvmEndedError
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.run.restarts import Restarts
from logboom.pipeline.run.runner import Runner, RunOptions
from logboom.pipeline.spark.gateway import SparkJvm
from logboom.pipeline.spark.jvm import JavaMissingError

pytestmark = [pytest.mark.spark, needs_java]

STARTS_ONE = """
import os, signal, sys
from logboom.pipeline.spark.gateway import SparkJvm
print(SparkJvm({}, silent=True).pid, flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("met", ["the shell", "the JVM"])
def test_a_jvm_that_is_closed_while_it_comes_up_ends(met: str) -> None:
    """At different points of its start: the process is the launcher's shell first, and becomes the JVM."""
    jvm = SparkJvm({}, silent=True)
    if met == "the JVM":
        until(lambda: Path(f"/proc/{jvm.pid}/comm").read_text() == "java\n", "the JVM begins")
    jvm.close()
    assert not _is_alive(jvm.pid)


@pytest.mark.parametrize("how", ["killed", "returns"])
def test_a_jvm_whose_driver_ends_while_it_comes_up_ends(how: str) -> None:
    """It reads the end of its standard input: `until` fails where it lives on."""
    done = subprocess.run(
        [sys.executable, "-c", STARTS_ONE, how], stdout=subprocess.PIPE, env=os.environ, timeout=WAIT_S, check=False
    )
    pid = int(done.stdout)
    until(lambda: not _is_alive(pid), "the end of the JVM")


def test_what_a_jvm_has_left_is_removed_by_the_next_start_and_nothing_of_one_that_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "java"))
    settings = {"spark.local.dir": f"{tmp_path / 'one'},{tmp_path / 'two'}"}
    killed, living = (SparkJvm(settings, silent=True) for _ in range(2))
    left, kept = (_directories(tmp_path, jvm.pid) for jvm in (killed, living))
    assert (len(left), len(kept)) == (3, 3)
    for directory in left:
        (directory / "blockmgr-1").mkdir()
    os.kill(killed.pid, signal.SIGKILL)
    # What the driver holds is closed with the driver, which dies here as far as these directories are concerned.
    killed._scratch.unlock()
    living._scratch.unlock()
    until(lambda: all(map(_is_unlocked, left)), "the JVM is gone, and all its threads")
    third = SparkJvm(settings, silent=True)
    assert not any(directory.exists() for directory in left)
    assert all(directory.exists() for directory in kept)
    for jvm in (killed, living, third):
        jvm.kill()
    assert not [*tmp_path.glob("*/*")]


def _is_unlocked(directory: Path) -> bool:
    """Whether no process holds its lock: threads of a killed process end one after the other."""
    found = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(found)
    return True


def _directories(root: Path, pid: int) -> list[Path]:
    """Those that a process holds open below a directory."""
    held = set[Path]()
    for number in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it opens and closes others meanwhile
            held.add(Path(os.readlink(number)))
    return sorted(path for path in held if path.is_relative_to(root))


def test_a_full_disk_of_temporary_files_is_told_in_a_sentence(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(small_disk / "filler")
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    with pytest.raises(JvmEndedError, match=f"there is no space for Spark's temporary files in {small_disk} "):
        SparkJvm({}, silent=True)


STARTS_A_SESSION = """
import os, signal
from logboom.pipeline.errors import JvmEndedError
from logboom.pipeline.spark.gateway import SparkJvm
from logboom.pipeline.spark.session import start_jvm, start_session
from logboom.pipeline.spark.settings import SessionOptions
options = SessionOptions(master="local[1]")
started = start_jvm(options)
attach = started.jvm.attach
def attach_and_kill():
    attach()
    os.kill(started.jvm.pid, signal.SIGKILL)
SparkJvm.attach = lambda jvm: attach_and_kill()
try:
    start_session("tests", options, started)
except JvmEndedError as error:
    print(error.end, error.from_outside)
"""


def test_a_jvm_that_is_killed_while_its_session_is_made_is_told_as_that() -> None:
    """A run that has gone on behind the end of another one goes on behind this one too."""
    done = subprocess.run(
        [sys.executable, "-c", STARTS_A_SESSION], stdout=subprocess.PIPE, text=True, timeout=WAIT_S, check=False
    )
    assert done.stdout == "Spark's JVM was killed (the kernel does this when memory runs out) True\n"


def _plan(directory: Path) -> Plan:
    parts = "transforms: {t: {type: parse, inputs: [in], rules: [{format: text}]}}\n"
    parts += "sinks: {out: {type: console, inputs: [t]}}\n"
    text = f"name: p\ncheckpoint: {directory}\nsources: {{in: {{type: stream, stream: s}}}}\n{parts}"
    return compile_pipeline(text, "p.yaml")


def test_a_first_start_is_repeated_only_if_it_was_ended_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was started with would end the next one too, such as an option that no JVM has."""
    monkeypatch.setattr(Restarts, "pause_s", 0.0)
    plan = _plan(tmp_path)
    runner = Runner(plan, RunOptions(bootstrap="127.0.0.1:9092"), Mock())
    with pytest.raises(JvmEndedError):
        runner.next_start(JvmEndedError("Spark's JVM ended with code 1"))
    again = runner.next_start(JvmEndedError("Spark's application was ended by its cluster", from_outside=True))
    assert again is not None
    assert (again.count, again.plan) == (1, plan.to_json())


def test_a_run_without_a_java_says_so_before_it_waits_for_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    runner = Runner(_plan(tmp_path), RunOptions(bootstrap=f"127.0.0.1:{free_port()}"), Mock())
    with pytest.raises(JavaMissingError, match="needs Java 17 or newer"):
        runner.run()


STOPS_A_SESSION = """
from logboom.pipeline.spark.session import application_end, jvm_end, start_session
from logboom.pipeline.spark.settings import SessionOptions
session = start_session("tests", SessionOptions(master="local[1]"))
print(application_end(session))
session.sparkContext._jsc.sc().stop()
print(application_end(session))
print(jvm_end(session))
"""


def test_an_application_that_a_cluster_ends_is_told_and_ends_its_jvm() -> None:
    """Spark stops its context then and the JVM lives on, so that each later call failed with a page of Java."""
    done = subprocess.run(
        [sys.executable, "-c", STOPS_A_SESSION], stdout=subprocess.PIPE, text=True, timeout=WAIT_S, check=False
    )
    nothing, ended, jvm = done.stdout.splitlines()
    assert nothing == "None"
    assert ended.startswith("Spark's application was ended by its cluster")
    assert jvm.startswith("Spark's JVM was killed")
