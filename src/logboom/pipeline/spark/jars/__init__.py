"""The jars of Spark's Kafka connector: pinned by pom.xml beside this file, copied once by Maven, used offline after.

Knows Maven and the cache directory. Must not know Spark's session.
`python -m logboom.pipeline.spark.jars` fills the cache; with `--progress` it tells of each file as pip does.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from logboom.base.errors import LogboomError
from logboom.pipeline.spark.settings import CLASS_PATH

POM: Final = Path(__file__).with_name("pom.xml")
_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_NAMESPACE: Final = {"m": "http://maven.apache.org/POM/4.0.0"}
if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

PACKAGES: Final = "spark.jars.packages"
_TIMEOUT_S: Final = 600
_ERROR_LINES: Final = 5
_DOWNLOADED: Final = re.compile(r"(?:\[INFO\] )?Downloaded from \S+: \S*?(?P<name>[^/\s]+) \(")
"""How Maven reports a file in batch mode."""


class JarsError(LogboomError):
    """The connector's jars are not available; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One artifact of a Maven repository."""

    group: str
    artifact: str
    version: str

    @property
    def file_name(self) -> str:
        """Maven's name for the copy."""
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def coordinates() -> tuple[Coordinate, ...]:
    """The artifacts that pom.xml pins."""
    from xml.etree import ElementTree  # imported here, because finding the copies does not need it

    root = ElementTree.parse(POM).getroot()  # noqa: S314 - our own file
    found = root.findall("m:dependencies/m:dependency", _NAMESPACE)
    return tuple(Coordinate(*(_text(entry, tag) for tag in ("groupId", "artifactId", "version"))) for entry in found)


def _text(entry: "Element", tag: str) -> str:
    text = entry.findtext(f"m:{tag}", namespaces=_NAMESPACE)
    assert text, f"pom.xml has a dependency without {tag}"
    return text


def cache_dir() -> Path:
    """Directory of the copies: in the virtual environment, else in the user's cache. It differs for each version of the
    pom. Symbolic links are resolved, as in `pyspark_dir`."""
    version = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix).resolve() / "share" / "logboom" / f"spark-jars-{version}"
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "logboom" / f"spark-jars-{version}"


def cached_jars() -> tuple[Path, ...] | None:
    """The copies; None if they are not complete."""
    paths = tuple(cache_dir() / coordinate.file_name for coordinate in coordinates())
    return paths if all(path.is_file() for path in paths) else None


def fetch_jars(on_file: Callable[[str], None] | None = None) -> tuple[Path, ...]:
    """The copies, fetched by Maven if needed; JarsError if that fails. `on_file` is called with the name of every file
    that Maven downloads."""
    if (cached := cached_jars()) is not None:
        return cached
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsError("Maven must fetch Spark's Kafka connector once; install it with: apt-get install -y maven")
    target = cache_dir()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        _copy_dependencies(maven, Path(scratch), on_file)
        target.mkdir(exist_ok=True)
        for coordinate in coordinates():
            # A second process may do the same: each file is put in place by an atomic rename.
            Path(scratch, coordinate.file_name).replace(target / coordinate.file_name)
    fetched = cached_jars()
    assert fetched is not None
    return fetched


def _copy_dependencies(maven: str, directory: Path, on_file: Callable[[str], None] | None) -> None:
    command = [maven, "-B", "-f", str(POM), _PLUGIN, f"-DoutputDirectory={directory}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        stop = threading.Timer(_TIMEOUT_S, process.kill)
        stop.start()
        assert process.stdout is not None
        errors: list[str] = []
        for line in process.stdout:
            if "ERROR" in line and len(errors) < _ERROR_LINES:
                errors.append(line.strip())
            downloaded = _DOWNLOADED.match(line)
            if downloaded is not None and on_file is not None:
                on_file(downloaded["name"])
        stop.cancel()
    if process.returncode == -signal.SIGKILL:
        raise JarsError(f"Maven did not fetch Spark's Kafka connector within {_TIMEOUT_S} s")
    if process.returncode != 0:
        raise JarsError("Maven cannot fetch Spark's Kafka connector: " + " ".join(errors))


def spark_settings(*, local: bool = False) -> dict[str, str]:
    """The setting that adds the connector: our copies, else Spark's own download (`--packages`).

    `local`: all tasks run in the driver's JVM, so the copies are on its class path, where a class archive can include
    them. For other masters they must be shipped.
    """
    try:
        jars = fetch_jars()
    except JarsError:
        if shutil.which("mvn") is not None:
            raise
        # Spark resolves the connector's dependencies by itself, without the pins of pom.xml.
        return {PACKAGES: str(coordinates()[0])}
    if local:
        return {CLASS_PATH: os.pathsep.join(str(path) for path in jars)}
    return {"spark.jars": ",".join(str(path) for path in jars)}
