"""Finds a Java that Spark can use. If there is none, says in one sentence what to do.

Knows the environment and the `java` command. Must not know Spark's session or any pipeline.
"""

import importlib.util
import logging
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from logboom.base.errors import LogboomError
from logboom.pipeline.errors import PipelineError

JAVA_MIN_VERSION: Final = 17
_VERSION_TIMEOUT_S: Final = 30
_INSTALL: Final = "install it with: apt-get install -y openjdk-17-jre-headless"


class JavaMissingError(LogboomError):
    """No Java runtime that Spark can run on."""


def pyspark_dir() -> Path:
    """Directory of the installed pyspark, found without importing it; PipelineError if it is not installed.

    Symbolic links are resolved: a JVM refuses a class archive if a path of its class path is spelled differently, and a
    virtual environment may be reachable by several paths.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PipelineError("pyspark is not installed; install it with: pip install 'logboom[spark]'")
    return Path(spec.origin).resolve().parent


def spark_jars() -> list[str]:
    """Spark's own jars, in the order of a class path."""
    return sorted(str(path) for path in (pyspark_dir() / "jars").glob("*.jar"))


def java_command() -> str:
    """Path of a `java` of version 17 or newer, from JAVA_HOME or PATH; JavaMissingError if there is none."""
    command = find_java()
    check_java_version(command)
    return command


def find_java() -> str:
    """Path of a `java` of any version, from JAVA_HOME or PATH; JavaMissingError if there is none."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if command is None or not Path(command).is_file():
        raise JavaMissingError(f"the pipeline runs on Spark, which needs Java {JAVA_MIN_VERSION} or newer; {_INSTALL}")
    return command


def check_java_version(command: str) -> None:
    """JavaMissingError if `java` is too old or does not run. This starts a JVM, which takes some 50 ms."""
    version = _java_version(command)
    if version is None or version < JAVA_MIN_VERSION:
        found = "cannot be run" if version is None else f"has version {version}"
        raise JavaMissingError(f"{command} {found}, but Spark needs Java {JAVA_MIN_VERSION} or newer; {_INSTALL}")


def _java_version(command: str) -> int | None:
    """The feature version, such as 17; None if the output does not contain it."""
    try:
        answer = subprocess.run([command, "-version"], capture_output=True, timeout=_VERSION_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(rb'version "(?:1\.)?([0-9]+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else None


def silence_py4j() -> None:
    """Suppress py4j's tracebacks for a JVM that is gone, some of which it logs through the root logger: its exception
    has the same information, and callers report that."""
    for name in (None, "py4j.java_gateway"):
        logging.getLogger(name).addFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"
