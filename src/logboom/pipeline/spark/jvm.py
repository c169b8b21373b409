"""Finding a Java that Spark can use, and saying in one sentence what to do where there is none.

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
    """Where the installed pyspark lies, found without importing it; PipelineError if it is not installed.

    Symbolic links are followed: a JVM refuses an archive of classes where one path of its class path is spelled
    otherwise, and a virtual environment may be reached by several.
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
    """JavaMissingError if a `java` is too old or does not run. It starts a JVM, which takes some 50 ms."""
    version = _java_version(command)
    if version is None or version < JAVA_MIN_VERSION:
        found = "cannot be run" if version is None else f"has version {version}"
        raise JavaMissingError(f"{command} {found}, but Spark needs Java {JAVA_MIN_VERSION} or newer; {_INSTALL}")


def _java_version(command: str) -> int | None:
    """The feature version, such as 17; None when the command does not say."""
    try:
        answer = subprocess.run([command, "-version"], capture_output=True, timeout=_VERSION_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(rb'version "(?:1\.)?([0-9]+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else None


def silence_py4j() -> None:
    """Keeps py4j from telling of a JVM that is missing with tracebacks, of which some come through the root logger,
    which it sets up for that: its exception says the same, and whoever gets that has a sentence for it."""
    for name in (None, "py4j.java_gateway"):
        logging.getLogger(name).addFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"
