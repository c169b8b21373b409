"""The jars of Apache Kafka: pinned by kafka-pom.xml beside this file, copied once by Maven, used offline after.

Knows Maven and the cache directory. Must not know what is run with the jars.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from logboom.bench.servers.process import UnavailableError

POM: Final = Path(__file__).with_name("kafka-pom.xml")
KAFKA_VERSION: Final = "4.1.0"
_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_TIMEOUT_S: Final = 900


def cache_root() -> Path:
    """Where fetched things lie: in the virtual environment, else in the user's cache."""
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix) / "share" / "logboom"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "logboom"


def kafka_jars() -> Path:
    """The directory of the jars, fetched by Maven where they are not there yet; UnavailableError where that fails."""
    target = cache_root() / f"kafka-{KAFKA_VERSION}-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
    if target.is_dir():
        return target
    maven = shutil.which("mvn")
    if maven is None:
        raise UnavailableError("Maven must fetch Kafka's jars once; install it with: apt-get install -y maven")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        copy = Path(scratch, "jars")
        command = [maven, "-B", "-q", "-f", str(POM), _PLUGIN, f"-DoutputDirectory={copy}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"Maven did not fetch Kafka's jars within {_TIMEOUT_S} s") from error
        if done.returncode != 0:
            said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line][:3]
            raise UnavailableError("Maven cannot fetch Kafka's jars: " + " ".join(said))
        if not target.exists():  # a second process may have been quicker
            copy.rename(target)
    return target


def java() -> str:
    """The Java that runs Kafka; UnavailableError where there is none."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None or not Path(found).exists():
        raise UnavailableError(
            "Kafka needs Java 17 or newer; install it with: apt-get install -y openjdk-17-jre-headless"
        )
    return found


def java_version() -> str:
    """The first line of `java -version`."""
    said = subprocess.run([java(), "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    return (said.splitlines() or ["unknown"])[0]
