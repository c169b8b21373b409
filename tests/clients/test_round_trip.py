"""Unmodified clients: produce, consume, groups, admin, and a broker killed and started again in mid-flight."""

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.drivers import DRIVERS, Driver, DriverMissingError
from tests.support.server import BrokerProcess

# One group: the drivers are built once, and not by two workers at the same time.
pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]

WAIT_S = 150


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("clients")) as process:
        yield process


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.name)
def driver(request: pytest.FixtureRequest) -> Driver:
    return built(request.param)


def built(chosen: Driver) -> Driver:
    try:
        chosen.command()
    except DriverMissingError as missing:
        pytest.skip(str(missing))
    return chosen


def run(driver: Driver, *arguments: object) -> str:
    command = [*driver.command(), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert done.stdout.splitlines()[-1].startswith("ok"), done.stdout
    return done.stdout


def test_every_codec_goes_round(driver: Driver, broker: BrokerProcess) -> None:
    topic = f"round-{driver.name}-{uuid.uuid4().hex[:6]}"
    for part, codec in enumerate(driver.codecs):
        run(driver, "produce", broker.kafka, topic, part * 300, 300, codec)
    group = f"group-{topic}"
    run(driver, "consume", broker.kafka, topic, group, 300 * len(driver.codecs), *_assignor(driver))
    run(driver, "produce", broker.kafka, topic, 300 * len(driver.codecs), 50, "none")
    run(driver, "consume", broker.kafka, topic, group, 50, *_assignor(driver, "cooperative"))


def test_admin(driver: Driver, broker: BrokerProcess) -> None:
    if not driver.admin:
        pytest.skip(f"the driver for {driver.name} has no admin verb")
    run(driver, "admin", broker.kafka, f"admin-{driver.name}-{uuid.uuid4().hex[:6]}")


def test_the_java_client_tells_refusals_by_name_and_goes_on(broker: BrokerProcess) -> None:
    """Too large, above the segment, too far ahead, a name that cannot be: each once; what is sent between is kept."""
    java = next(driver for driver in DRIVERS if driver.name == "java")
    run(built(java), "refused", broker.kafka, f"refused-{uuid.uuid4().hex[:6]}")


def test_killed_and_started_again_in_mid_flight(driver: Driver, tmp_path: Path) -> None:
    """kill -9 while the client sends: it goes on by itself, and each record is there once and in order."""
    if not driver.waits_for_brokers:
        pytest.skip(f"{driver.name} ends by itself when its only broker is away")
    count = 4_000
    with BrokerProcess(tmp_path / "data") as broker:
        run(driver, "produce", broker.kafka, "flight", 0, 1, "none")
        command = [*driver.command(), "produce", broker.kafka, "flight", "1", str(count - 1), "lz4"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sending:
            assert sending.stdout is not None
            assert sending.stdout.readline().startswith("sent"), "the client sent nothing"
            broker.kill9()
            broker.restart()
            out, err = sending.communicate(timeout=WAIT_S)
        assert sending.returncode == 0, err[-4000:]
        assert out.splitlines()[-1].startswith("ok")
        run(driver, "consume", broker.kafka, "flight", "after", count, *_assignor(driver))


def test_killed_between_two_runs(driver: Driver, tmp_path: Path) -> None:
    """What a client was told is there for the next one, its group's position too."""
    with BrokerProcess(tmp_path / "data") as broker:
        run(driver, "produce", broker.kafka, "flight", 0, 500, "zstd")
        run(driver, "consume", broker.kafka, "flight", "same", 500, *_assignor(driver))
        broker.kill9()
        broker.restart()
        run(driver, "produce", broker.kafka, "flight", 500, 500, "none")
        run(driver, "consume", broker.kafka, "flight", "same", 500, *_assignor(driver))


def _assignor(driver: Driver, name: str = "range") -> tuple[str, ...]:
    return (name,) if driver.name in ("java", "confluent") else ()
