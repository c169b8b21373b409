"""Starts Spark's JVM as a child that ends with this process and ignores this process's signals.

Knows how PySpark finds a running JVM, and POSIX signals. Must not know what the JVM is used for, and must not import
pyspark before `attach`: Python imports that during the second in which the JVM starts.

PySpark's own launcher leaves the JVM in the caller's process group with the default handler for SIGTERM. Then a signal
to the group (from a service manager or `timeout`) stops Spark in the middle of a batch that the driver still wants to
finish. Here the JVM gets its own session, so that signals from a terminal or to the group do not reach it. It also
ignores SIGTERM, SIGINT and SIGHUP, for managers that signal each process. (HotSpot installs no handlers for signals
that are ignored when it starts.) It still ends with the driver, however that ends: it reads from a pipe whose other end
only the driver has open.
"""

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from logboom.pipeline.errors import JvmEndedError
from logboom.pipeline.spark.jvm import pyspark_dir, silence_py4j
from logboom.pipeline.spark.temp_directories import Scratch, temporary_directory

_IGNORING_SIGNALS: Final = ("/bin/sh", "-c", "trap '' TERM INT HUP; exec \"$@\"", "sh")
_POLL_S: Final = 0.02
_STDERR: Final = 2


class SparkJvm:
    """A JVM for the one session of this process, which is starting or has started."""

    def __init__(self, settings: Mapping[str, str], *, silent: bool) -> None:
        """Start the JVM and return at once. `settings`: Spark's, including those for the JVM itself. `silent`: discard
        its standard error."""
        self._scratch = Scratch(_roots(settings))
        self._connection_file = self._scratch.directories[0] / "connection"
        self._is_attached = False
        submit = str(Path(os.environ.get("SPARK_HOME") or pyspark_dir()) / "bin" / "spark-submit")
        pairs = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        # These two variables are the launcher's side of org.apache.spark.api.python.PythonGatewayServer.
        environment = {
            **os.environ,
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection_file),
            "SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {self._scratch.java_option}".strip(),
        }
        if len(self._scratch.directories) > 1:
            environment["SPARK_LOCAL_DIRS"] = ",".join(map(str, self._scratch.directories[1:]))
        self._process = subprocess.Popen(
            (*_IGNORING_SIGNALS, submit, *pairs, "pyspark-shell"),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if silent else _STDERR,  # where the run may write JSON
            stderr=subprocess.DEVNULL if silent else None,
            env=environment,
            start_new_session=True,
            pass_fds=self._scratch.locks,
        )

    @property
    def pid(self) -> int:
        """Process id of the JVM: the shell and the launcher replace themselves by it."""
        return self._process.pid

    def code(self, wait_s: float) -> int | None:
        """Exit code; None if it still runs after that time."""
        try:
            return self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return None

    def attach(self) -> None:
        """Wait until it is ready and make it PySpark's JVM; JvmEndedError if it has ended."""
        from pyspark import SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.serializers import UTF8Deserializer, read_int

        from logboom.pipeline.spark.py4j_cache import remember_classes

        silence_py4j()
        while not self._connection_file.exists():
            code = self._process.poll()
            if code is not None:
                raise JvmEndedError(f"Spark's JVM ended with code {code} before it was ready", from_outside=code < 0)
            time.sleep(_POLL_S)
        with self._connection_file.open("rb") as file:
            port, secret = read_int(file), UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]
        self._connection_file.unlink()
        self._is_attached = True
        os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), secret
        try:
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        remember_classes(gateway)
        gateway.proc = self._process  # keeps the pipe open as long as the gateway is used
        for directory in self._scratch.directories:  # after an orderly end, it has emptied these
            gateway.jvm.java.io.File(str(directory)).deleteOnExit()
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - PySpark has no other way to bring one's own

    def kill(self) -> None:
        """Kill it."""
        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._scratch.remove()

    def close(self) -> None:
        """Let it end. If nothing was attached yet, kill it."""
        if not self._is_attached:
            self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._scratch.unlock()


def _roots(settings: Mapping[str, str]) -> list[Path]:
    """Directories for temporary files: Java's, and Spark's if they are set. On a cluster, the manager sets those of
    executors."""
    java = temporary_directory()
    if not settings.get("spark.master", "local").startswith("local"):
        return [java]
    spark = os.environ.get("SPARK_LOCAL_DIRS") or settings.get("spark.local.dir", "")
    return [java, *(Path(one) for one in spark.split(",") if one)]
