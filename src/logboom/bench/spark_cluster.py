"""A standalone Spark cluster on this machine: a master and workers of one core each, as processes.

Knows the scripts of the installed pyspark and what Spark writes into its logs. Must not know what runs there.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from logboom.bench.processes import family
from logboom.bench.servers import free_port
from logboom.bench.wire import BenchError
from logboom.pipeline.spark.jvm import pyspark_dir

START_S: Final = 240.0
_POLL_S: Final = 0.1
_END_S: Final = 60.0
HOST: Final = "127.0.0.1"


class StandaloneCluster:
    """Its logs and the directories of its workers are in a directory that exists."""

    def __init__(
        self, directory: Path, workers: int, *, memory: str = "1g", environment: Mapping[str, str] | None = None
    ) -> None:
        """`memory`: of each worker, for its executors' JVMs. `environment`: of all processes; default: as here."""
        self._directory = directory
        self._count = workers
        self._memory = memory
        own = {"SPARK_HOME": str(pyspark_dir()), "SPARK_LOCAL_IP": HOST}
        self._environment = {**(os.environ if environment is None else environment), **own}
        self._stack = ExitStack()
        self._port = free_port()
        self.master = f"spark://{HOST}:{self._port}"
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            where = ("--host", HOST, "--webui-port", "0")
            self._start(stack, "master", "master.Master", *where, "--port", str(self._port))
            self._wait_for("master", "New state: ALIVE")
            for number in range(1, self._count + 1):
                size = ("--cores", "1", "--memory", self._memory, "--work-dir", str(self._directory / f"work-{number}"))
                started = self._start(stack, f"worker-{number}", "worker.Worker", *size, *where, self.master)
                self.workers.append(started)
            for number in range(1, self._count + 1):
                self._wait_for(f"worker-{number}", "Successfully registered with master")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def kill_worker(self, number: int) -> None:
        """A worker, counted from 1, and its executors."""
        _kill(self.workers[number - 1].pid)

    def _start(self, stack: ExitStack, name: str, what: str, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [str(pyspark_dir() / "bin/spark-class"), f"org.apache.spark.deploy.{what}", *arguments]
        log = stack.enter_context((self._directory / f"{name}.log").open("wb"))
        process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment, start_new_session=True)
        stack.callback(_end, process)
        return process

    def _wait_for(self, name: str, line: str) -> None:
        path, deadline = self._directory / f"{name}.log", time.monotonic() + START_S
        while line not in (text := path.read_text(errors="replace")):
            if time.monotonic() > deadline:
                raise BenchError(f"the {name} of Spark did not start within {START_S:.0f} s: {text[-500:]}")
            time.sleep(_POLL_S)


def _kill(pid: int) -> None:
    for one in family(pid):
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(one, signal.SIGKILL)


def _end(process: "subprocess.Popen[bytes]") -> None:
    _kill(process.pid)
    process.wait(_END_S)
