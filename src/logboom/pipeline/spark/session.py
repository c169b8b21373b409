"""The one Spark session of a pipeline: its JVM, which is started early, and the session in it.

Knows how to start a JVM and create a session in it. Must not know plans or batches. `settings` has the settings and the
reason for each.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from logboom.base.settings import split_address
from logboom.pipeline.errors import JvmEndedError, PipelineError
from logboom.pipeline.spark.causes import cause_of
from logboom.pipeline.spark.environment import environment_settings, executor_python
from logboom.pipeline.spark.gateway import SparkJvm
from logboom.pipeline.spark.jars import PACKAGES, cache_dir, spark_settings
from logboom.pipeline.spark.jvm import check_java_version, find_java, spark_jars
from logboom.pipeline.spark.jvm_archive import ClassArchive
from logboom.pipeline.spark.settings import (
    CLASS_PATH,
    CLUSTER_SETTINGS,
    JAVA_OPTIONS,
    QUIET,
    SETTINGS,
    SessionOptions,
    master_with_slots,
    memory_settings,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_OUT_OF_MEMORY: Final = (3, 52)
"""Exit codes: HotSpot's with `ExitOnOutOfMemoryError`, and `SparkExitCode.OOM` of an executor or a local driver."""
_STOPPED: Final = "stopped SparkContext"
"""A part of what Spark says to each call after a cluster has ended the application."""
_ENDED_BY_CLUSTER: Final = (
    "Spark's application was ended by its cluster, as one is whose executors fail to start again and again; the logs "
    "of the cluster's workers say why (a full disk, too little memory)"
)
_STANDALONE: Final = "spark://"
_KUBERNETES: Final = "k8s://"
_YARN_VARIABLES: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_IMAGES: Final = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")
_MASTER_CONNECT_S: Final = 5.0
_END_S: Final = 2.0
"""The JVM's sockets are closed a moment before its process ends."""
_LOWEST_PRIORITY: Final = 19
_NO_CONNECTOR: Final = (
    "Spark cannot download its Kafka connector, and Maven, which could, is not installed; install it with: apt-get "
    "install -y maven, then run: python -m logboom.pipeline.spark.jars"
)
"""Texts in Spark's error when it could not download the connector."""


@dataclass(frozen=True, slots=True)
class StartedJvm:
    """A JVM that is starting, and its settings."""

    jvm: SparkJvm
    settings: Mapping[str, str]
    archive: ClassArchive | None = None

    def close(self, *, has_worked: bool) -> None:
        """Let it end. If it writes an archive, which takes seconds of CPU, its threads get the lowest priority. A JVM
        that has run no batch is killed instead: its archive would lack most classes."""
        if self.archive is not None and self.archive.is_written:
            if not has_worked:
                self.jvm.kill()
                return
            self.archive.announce()
            with contextlib.suppress(OSError):
                for thread in os.listdir(f"/proc/{self.jvm.pid}/task"):
                    os.setpriority(os.PRIO_PROCESS, int(thread), _LOWEST_PRIORITY)
        self.jvm.close()


def start_jvm(options: SessionOptions, *, write_archive: bool = False) -> StartedJvm:
    """Start the JVM of a session and return at once. JavaMissingError, JarsError or PipelineError if that is not
    possible. `write_archive`: write the class archive when it ends, if there is none."""
    java = find_java()
    _check_master(options.master)
    problem = missing_for(options.master, options.settings, os.environ)
    if problem is not None:
        raise PipelineError(problem)
    _choose_interpreter(options)
    connector = spark_settings(local=options.is_local)
    settings = {
        **SETTINGS,
        **memory_settings(),
        **connector,
        **({} if options.is_local else CLUSTER_SETTINGS),
        **({} if options.environment is None else environment_settings(options.environment)),
        "spark.ui.enabled": str(options.ui).lower(),
        "spark.master": options.master,
        **options.settings,
    }
    if CLASS_PATH in connector and CLASS_PATH in options.settings:
        settings[CLASS_PATH] = os.pathsep.join((connector[CLASS_PATH], options.settings[CLASS_PATH]))
    archive = None
    if options.is_local and not options.settings.keys() & {JAVA_OPTIONS, CLASS_PATH} and CLASS_PATH in connector:
        class_path = [*connector[CLASS_PATH].split(os.pathsep), *spark_jars()]
        archive = ClassArchive(cache_dir().parent, "run", java, class_path, write=write_archive)
        archive.adopt()
        settings[JAVA_OPTIONS] = " ".join((settings[JAVA_OPTIONS], *archive.options))
    if archive is None or not archive.exists:  # this Java has written an archive, so its version was checked before
        check_java_version(java)
    return StartedJvm(SparkJvm(settings, silent=options.log_level == QUIET), settings, archive)


def _choose_interpreter(options: SessionOptions) -> None:
    """Executors must import the kernels: with this interpreter, or with an archive that is shipped to them."""
    python = sys.executable if options.environment is None else executor_python(options.environment)
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if options.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def start_session(name: str, options: SessionOptions, started: StartedJvm | None = None) -> "SparkSession":
    """The session, in a JVM that was started with the same options or in a new one. JavaMissingError, JarsError or
    PipelineError if that is not possible."""
    started = start_jvm(options) if started is None else started
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        with _ends_told(started.jvm):
            started.jvm.attach()
    except PipelineError as error:
        if PACKAGES not in started.settings:
            raise
        raise PipelineError(_NO_CONNECTOR) from error
    builder = SparkSession.builder
    master = master_with_slots(options.master, options.extra_slots)
    own = {"spark.app.name": name, **({} if "spark.master" in options.settings else {"spark.master": master})}
    for key, value in {**started.settings, **own}.items():
        builder = builder.config(key, value)
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        with _ends_told(started.jvm):
            session = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        if _STOPPED in str(error):
            started.jvm.kill()
            raise JvmEndedError(_ENDED_BY_CLUSTER, from_outside=True) from error
        message = f"Spark does not start on the master {options.master}: {cause_of(error)}"
        is_without = PACKAGES in started.settings
        raise PipelineError(
            _NO_CONNECTOR if is_without else f"{message}; --spark-log WARN shows its messages"
        ) from error
    if threading.current_thread() is threading.main_thread():
        # A new SparkContext cancels all jobs on SIGINT; the caller decides how to handle signals.
        signal.signal(signal.SIGINT, interrupted)
    # It prints a traceback if the JVM ends, which is reported in one sentence; accumulators are not used here.
    session.sparkContext._accumulatorServer.handle_error = _say_nothing  # type: ignore[method-assign]  # noqa: SLF001
    with _ends_told(started.jvm):
        # Spark does nothing if the root logger has that level already; then the shell's filter continues to hide INFO.
        session.sparkContext.setLogLevel(QUIET)
        session.sparkContext.setLogLevel(options.log_level)
    return session


@contextlib.contextmanager
def _ends_told(jvm: SparkJvm) -> Iterator[None]:
    """Raise JvmEndedError instead of any error that occurs because the JVM has ended: py4j and PySpark have many for
    that."""
    try:
        yield
    except Exception as error:  # raised again; if the JVM has ended, as JvmEndedError
        code = None if isinstance(error, JvmEndedError) else jvm.code(_END_S)
        if code is None:
            raise
        raise JvmEndedError(_said_of(code), from_outside=code < 0) from error


def _say_nothing(request: object, client_address: object) -> None:
    return


def jvm_end(session: "SparkSession", wait_s: float = 0.0) -> str | None:
    """How the JVM of a session ended, as the beginning of a sentence; None if it runs. `wait_s`: its socket is closed a
    moment before the process ends."""
    process = session.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - see gateway.SparkJvm.attach
    try:
        code = process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None
    return _said_of(code)


def application_end(session: "SparkSession") -> str | None:
    """How a cluster ended the application of a session whose JVM runs, as the beginning of a sentence; None if it did
    not. No job can be run in that JVM any more, so it is ended too.

    A standalone master removes an application after ten executors in a row have failed, if no other one runs
    (`spark.deploy.maxExecutorRetries`); YARN and Kubernetes end one whose master or too many of whose executors fail.
    """
    if not session.sparkContext._jsc.sc().isStopped():  # noqa: SLF001 - PySpark does not have it
        return None
    process = session.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - as in jvm_end
    process.kill()
    process.wait()
    return _ENDED_BY_CLUSTER


def _said_of(code: int) -> str:
    """
    >>> _said_of(52)
    "Spark's JVM ran out of memory (--spark spark.driver.memory=8g gives it more)"
    >>> _said_of(1)
    "Spark's JVM ended with code 1"
    """
    if code == -signal.SIGKILL:
        return "Spark's JVM was killed (the kernel does this when memory runs out)"
    if code in _OUT_OF_MEMORY:
        return "Spark's JVM ran out of memory (--spark spark.driver.memory=8g gives it more)"
    return f"Spark's JVM ended with code {code}"


def warm_up(session: "SparkSession") -> None:
    """Start the Python workers, and load what every job needs, in the background."""
    threading.Thread(target=_do_nothing, args=(session,), name="warm-up", daemon=True).start()


def _do_nothing(session: "SparkSession") -> None:
    try:
        session.range(1).mapInArrow(_same, "id bigint").collect()
    except Exception:  # noqa: BLE001 - the first job of the pipeline fails in the same way, and reports it
        return


def _same(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    yield from batches


def missing_for(master: str, settings: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    """What is missing for a cluster manager, as a sentence; None if nothing is. Spark would only end with a code, or
    start and never get an executor.

    https://spark.apache.org/docs/latest/running-on-yarn.html, .../running-on-kubernetes.html
    """
    if settings.get("spark.submit.deployMode") == "cluster":
        return (
            "--spark spark.submit.deployMode=cluster: the driver runs on the machine of `run`; to run it in the "
            "cluster, start logboom in a container there"
        )
    if master == "yarn" and not environment.keys() & set(_YARN_VARIABLES):
        return "--master yarn: set HADOOP_CONF_DIR to the directory of the cluster's configuration (yarn-site.xml)"
    if master.startswith(_KUBERNETES) and not settings.keys() & set(_IMAGES):
        return (
            f"--master {master}: executors need an image with Spark and Python: "
            f"--spark {_IMAGES[0]}=REPOSITORY/IMAGE:TAG"
        )
    return None


def _check_master(master: str) -> None:
    """PipelineError if a standalone master cannot be reached: Spark itself takes a minute and reports less."""
    if not master.startswith(_STANDALONE):
        return
    faults = []
    for address in master.removeprefix(_STANDALONE).split(","):
        try:
            host, port = split_address(address)
            socket.create_connection((host, port), _MASTER_CONNECT_S).close()
        except ValueError as error:
            raise PipelineError(f"--master {master}: {error}") from error
        except OSError as error:
            faults.append(error.strerror or str(error))
        else:
            return
    raise PipelineError(f"no Spark master answers at {master} ({', '.join(dict.fromkeys(faults))})")
