"""Incremental fetch sessions as real clients use them: the broker's own counters tell whether they do."""

import subprocess
import urllib.request
from pathlib import Path

import pytest
from tests.clients.drivers import DRIVERS, Driver, DriverMissingError
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]

WITH_SESSIONS = [driver for driver in DRIVERS if driver.name in ("java", "franz-go")]


def counter(broker: BrokerProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=WAIT_S) as page:
        lines = page.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"logboom_kafka_fetch_{name} "))


@pytest.mark.parametrize("driver", WITH_SESSIONS, ids=lambda driver: driver.name)
def test_the_client_keeps_a_session_and_gives_it_back(driver: Driver, tmp_path: Path) -> None:
    with skipped_on(DriverMissingError):
        command = driver.command()
    assignor = ["range"] if driver.name == "java" else []
    with BrokerProcess(tmp_path / "data") as broker:
        produce = [*command, "produce", broker.kafka, "followed"]
        subprocess.run([*produce, "0", "300", "none"], check=True, timeout=WAIT_S, capture_output=True)
        with subprocess.Popen(
            [*command, "consume", broker.kafka, "followed", "group", "400", *assignor],
            stdout=subprocess.PIPE,
            text=True,
        ) as consumer:
            subprocess.run([*produce, "300", "100", "none"], check=True, timeout=WAIT_S, capture_output=True)
            out, _ = consumer.communicate(timeout=WAIT_S)
        assert out.splitlines()[-1].startswith("ok")
        assert counter(broker, "incremental_total") > 0
        assert counter(broker, "sessions_declined_total") == 0
        if driver.name == "java":  # it says goodbye; others leave the session to be evicted
            assert counter(broker, "sessions") == 0
