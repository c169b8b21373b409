"""The table of stream settings is held against the list in Kafka's own jar: nothing is missing, types are the same."""

import subprocess
from pathlib import Path

import pytest
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S

from logboom.bench.servers.jars import java, kafka_jars
from logboom.bench.servers.process import UnavailableError
from logboom.metadata import STREAM_SETTINGS, refused_settings

LISTER = Path(__file__).with_name("TopicSettings.java")
OTHER_DEFAULTS = {"retention.ms": "-1"}
"""Where Logboom's default is not Kafka's, and is meant so: records are kept until somebody says otherwise."""


@pytest.fixture(scope="module")
def of_kafka() -> dict[str, tuple[str, str]]:
    """Type and default of every topic setting of Kafka, by name."""
    with skipped_on(UnavailableError):
        command = [java(), "-cp", f"{kafka_jars()}/*", str(LISTER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    if "compiler" in done.stderr and done.returncode:
        pytest.skip("Java without a compiler: apt-get install openjdk-17-jdk-headless")
    assert done.returncode == 0, done.stderr
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {name: (kind, default) for name, kind, default in rows}


def test_every_topic_setting_of_kafka_is_known_or_refused_with_a_reason(of_kafka: dict[str, tuple[str, str]]) -> None:
    assert len(of_kafka) > 30
    known = {setting.name for setting in STREAM_SETTINGS}
    assert of_kafka.keys() - known - refused_settings().keys() == set()
    own = {name for name in known if name.startswith("logboom.")}
    assert known - own - of_kafka.keys() == set(), "names that Kafka does not have begin with logboom."


def test_types_and_defaults_are_kafkas(of_kafka: dict[str, tuple[str, str]]) -> None:
    for setting in STREAM_SETTINGS:
        if setting.name in of_kafka:
            kind, default = of_kafka[setting.name]
            default = OTHER_DEFAULTS.get(setting.name, default.strip("[]"))
            assert (setting.name, setting.type.name, setting.default) == (setting.name, kind, default)
