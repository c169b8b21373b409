"""Starts the JVM of Spark as a child that ends with this process and does not react to this process's signals.

Knows how PySpark finds a JVM that runs already, and POSIX signals. Must not know what the JVM is used for.

PySpark's own launcher leaves the JVM in the caller's process group with the default handler for SIGTERM: a signal to
the group (a service manager's, `timeout`'s) then stops Spark in the middle of the batch that the driver still wants to
bring to its end. Here the JVM gets a session of its own, out of reach for a terminal and for signals to the group, and
ignores SIGTERM, SIGINT and SIGHUP for managers that signal each process by itself. (HotSpot installs no handler for
these signals where they are ignored when it starts.) It still ends when the driver does, however that dies: it reads
the other end of a pipe that only the driver holds open.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from logboom.pipeline.errors import PipelineError

_IGNORING_SIGNALS: Final = ("/bin/sh", "-c", "trap '' TERM INT HUP; exec \"$@\"", "sh")
_POLL_S: Final = 0.02


def start_jvm(settings: Mapping[str, str], *, silent: bool) -> None:
    """Starts the JVM that the next session of this process uses; does nothing where one runs already.

    `settings`: Spark's, among them those that shape the JVM itself. `silent`: drops what it writes to standard error.
    """
    if SparkContext._gateway is not None:  # noqa: SLF001 - PySpark offers no other way to bring a JVM of one's own
        return
    with tempfile.TemporaryDirectory() as directory:
        told = Path(directory) / "connection"
        process = _launched(settings, told, silent=silent)
        while not told.exists():
            if process.poll() is not None:
                raise PipelineError(f"Spark's JVM ended with code {process.returncode} before it was ready")
            time.sleep(_POLL_S)
        with told.open("rb") as file:
            port, secret = read_int(file), UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), secret
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    gateway.proc = process  # keeps the pipe open as long as the gateway is used
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001


def _launched(settings: Mapping[str, str], told: Path, *, silent: bool) -> "subprocess.Popen[bytes]":
    submit = str(Path(_find_spark_home()) / "bin" / "spark-submit")
    pairs = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    # These two variables are the launcher's side of org.apache.spark.api.python.PythonGatewayServer.
    environment = {**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told)}
    return subprocess.Popen(
        (*_IGNORING_SIGNALS, submit, *pairs, "pyspark-shell"),
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL if silent else None,
        env=environment,
        start_new_session=True,
    )
