"""The JVM of a session ends with what started it, however far either of them has come."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.support import needs_java
from tests.support.waiting import WAIT_S, until

from logboom.pipeline.spark.gateway import SparkJvm

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
