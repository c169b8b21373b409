"""Spark's JVMs that serve one router after another, so that most tests of routers as processes start none.

Loading and warming up Spark takes several times the CPU time of what a router does in a test. `SPARK_HOME` says where a
router finds `bin/spark-submit`; here that is a stub which leads it to a JVM that has served others before. When the
router ends, whatever session it had in the JVM is stopped, as the JVM's own end would stop it; where that fails, the
JVM is killed.

The JVM that a router starts, and what becomes of it when the router, the JVM or both are killed, is what the tests of
kills, of the cluster, of the gateway and the README's page try: they have JVMs of their own.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.stub_server import StubServer
from tests.support.waiting import WAIT_S

_STUB = """
import os, signal, socket, sys
request = "\\0".join((str(len(sys.argv) - 2), *sys.argv[2:], *(f"{k}={v}" for k, v in os.environ.items())))
data = request.encode(errors="surrogateescape")
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
server.sendall(len(data).to_bytes(4, "big") + data)
connection = server.recv(4096)
if not connection:
    sys.exit(1)
path = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
with open(path + ".new", "wb") as file:
    file.write(connection)
os.rename(path + ".new", path)
while os.read(0, 4096):
    pass
"""
_ENVIRONMENT_OF_A_RUN = {
    "_PYSPARK_DRIVER_CONN_INFO_PATH",
    "PYTEST_CURRENT_TEST",
    "LOGBOOM_BOOTSTRAP",
    "LOGBOOM_MASK_KEY",  # of the demo, another in each run: the router reads it
    "SHOP_MASK_KEY",  # of docs/pipeline.md
    "SPARK_HOME",
    "SPARK_LOCAL_DIRS",  # removed behind the run, whose JVM goes on here
    "SPARK_SUBMIT_OPTS",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "COLUMNS",
    "NO_COLOR",
}
"""What differs between runs that a JVM does not look at."""
_OF_A_RUN = ("spark.master=", "spark.app.name=")


@dataclass(eq=False)
class _Jvm:
    """One that runs, what it was started with, and the bytes that tell a router how to reach it."""

    process: "subprocess.Popen[bytes]"
    key: tuple[str, ...]
    connection: bytes

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        assert self.process.stdin is not None
        self.process.stdin.close()

    def is_clear(self) -> bool:
        """Stops what a router has left in it; False where that cannot be done."""
        from py4j.java_gateway import GatewayParameters, JavaGateway

        port, length = int.from_bytes(self.connection[:4], "big"), int.from_bytes(self.connection[4:8], "big")
        secret = self.connection[8 : 8 + length].decode()
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret))
        try:
            contexts: Any = gateway.jvm.java.lang.Class.forName("org.apache.spark.SparkContext$")
            active = contexts.getField("MODULE$").get(None).getActive()
            if active.isDefined():
                active.get().stop()
        except Exception:  # noqa: BLE001 - whatever it is, another JVM is started
            return False
        else:
            return True
        finally:
            gateway.close()


class SparkJvms:
    """`home` is the SPARK_HOME for routers, as long as the `with` block runs."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="logboom-spark-"))
        self._stubs = StubServer(self.home / "socket", self._serve)
        self._idle: list[_Jvm] = []
        self._lock = threading.Lock()

    @property
    def environment(self) -> dict[str, str]:
        """For a router that is to use them."""
        return {**os.environ, "SPARK_HOME": str(self.home)}

    def __enter__(self) -> Self:
        stub = self.home / "stub.py"
        stub.write_text(_STUB)
        submit = self.home / "bin" / "spark-submit"
        submit.parent.mkdir()
        submit.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {stub} {self._stubs.path} "$@"\n')
        submit.chmod(0o755)
        self._stubs.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stubs.stop(WAIT_S)
        for jvm in self._idle:
            jvm.kill()
        shutil.rmtree(self.home)

    def _serve(self, connection: socket.socket) -> None:
        """Lends a JVM to the stub at the other end until that ends."""
        with connection:
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            count, *rest = os.fsdecode(connection.recv(size, socket.MSG_WAITALL)).split("\0")
            variables = dict(variable.split("=", 1) for variable in rest[int(count) :])
            jvm = self._lent(rest[: int(count)], variables)
            try:
                connection.sendall(jvm.connection)
                connection.recv(1)  # nothing comes but the end
            except OSError:
                pass
        if jvm.process.poll() is None and jvm.is_clear():
            with self._lock:
                self._idle.append(jvm)
        else:
            jvm.kill()

    def _lent(self, arguments: list[str], variables: Mapping[str, str]) -> _Jvm:
        arguments = [
            " ".join(word for word in argument.split(" ") if "ArchiveClassesAtExit" not in word)  # it is killed
            for argument in arguments
        ]
        environment = {key: value for key, value in variables.items() if key not in _ENVIRONMENT_OF_A_RUN}
        settings = sorted(argument for argument in arguments if not argument.startswith(_OF_A_RUN))
        key = (*settings, *sorted(f"{name}={value}" for name, value in environment.items()))
        with self._lock:
            for jvm in self._idle:
                if jvm.key == key and jvm.process.poll() is None:
                    self._idle.remove(jvm)
                    return jvm
        return self._started(arguments, environment, key)

    def _started(self, arguments: list[str], environment: dict[str, str], key: tuple[str, ...]) -> _Jvm:
        from logboom.pipeline.spark.jvm import pyspark_dir

        directory = Path(tempfile.mkdtemp(dir=self.home))
        file = directory / "connection"
        process = subprocess.Popen(
            (str(pyspark_dir() / "bin" / "spark-submit"), *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            env={**environment, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(file)},
            start_new_session=True,
        )
        deadline = time.monotonic() + WAIT_S
        while not file.exists():
            assert process.poll() is None, "Spark's JVM has ended before it was ready"
            assert time.monotonic() < deadline, "Spark's JVM is not ready in time"
            time.sleep(0.02)
        return _Jvm(process, key, file.read_bytes())
