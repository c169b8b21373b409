"""Unmodified clients: produce, consume, groups, admin, and a broker killed and started again in mid-flight."""

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.drivers import DRIVERS, Driver, DriverMissingError
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S

# One group: the drivers are built once, and not by two workers at the same time.
pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]

QUICK = {"LOGBOOM_BROKER__GROUPS__INITIAL_REBALANCE_DELAY_MS": "0"}
"""A group of one member does not wait for others; what that delay does is tested in tests/groups."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("clients"), environment=QUICK) as process:
        yield process


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.name)
def driver(request: pytest.FixtureRequest) -> Driver:
    return built(request.param)


def built(chosen: Driver) -> Driver:
    with skipped_on(DriverMissingError):
        chosen.command()
    return chosen


def run(driver: Driver, *arguments: object) -> str:
    """The last line a driver prints: it begins with "ok" where everything came back as the driver wanted it."""
    command = [*driver.command(), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    last = done.stdout.splitlines()[-1]
    assert last.startswith("ok"), done.stdout
    return last


@pytest.fixture(scope="module")
def killed_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, dict[str, Exception]]]:
    """A broker killed after every client had written and read in it; by client, what went wrong before that."""
    wrong: dict[str, Exception] = {}
    with BrokerProcess(tmp_path_factory.mktemp("killed"), environment=QUICK) as process:
        for driver in DRIVERS:
            try:
                driver.command()
            except DriverMissingError:
                continue  # its own test is skipped
            topic, codecs = f"round-{driver.name}", ",".join(driver.codecs)
            try:
                run(driver, "produce", process.kafka, topic, 0, 300, codecs)
                run(driver, "consume", process.kafka, topic, "same", 300 * len(driver.codecs), *_assignor(driver))
            except (AssertionError, subprocess.TimeoutExpired) as error:
                wrong[driver.name] = error
        process.kill9()
        process.restart()
        yield process, wrong


def test_every_codec_goes_round_and_a_kill_takes_nothing(
    driver: Driver, killed_broker: tuple[BrokerProcess, dict[str, Exception]]
) -> None:
    """Records of every codec come back; after a kill -9 the group goes on where it was, with another assignor too."""
    broker, wrong = killed_broker
    if driver.name in wrong:
        raise wrong[driver.name]
    topic = f"round-{driver.name}"
    assert run(driver, "produce", broker.kafka, topic, 300 * len(driver.codecs), 500, "none").startswith("ok")
    assert run(driver, "consume", broker.kafka, topic, "same", 500, *_assignor(driver, "cooperative")).startswith("ok")


def test_admin(driver: Driver, broker: BrokerProcess) -> None:
    """Its admin client makes, widens, describes and deletes a topic, and finds each time what it asked for."""
    if not driver.admin:
        pytest.skip(f"the driver for {driver.name} has no admin verb")
    assert run(driver, "admin", broker.kafka, f"admin-{driver.name}-{uuid.uuid4().hex[:6]}").startswith("ok")


def test_the_java_client_tells_refusals_by_name_and_goes_on(broker: BrokerProcess) -> None:
    """Too large, above the segment, too far ahead, a name that cannot be: each once; what is sent between is kept."""
    java = next(driver for driver in DRIVERS if driver.name == "java")
    assert run(built(java), "refused", broker.kafka, f"refused-{uuid.uuid4().hex[:6]}").startswith("ok")


@pytest.mark.in_turn(3)
def test_killed_and_started_again_in_mid_flight(driver: Driver, tmp_path: Path) -> None:
    """kill -9 while the client sends: it goes on by itself, and each record is there once and in order."""
    if not driver.waits_for_brokers:
        pytest.skip(f"{driver.name} ends by itself when its only broker is away")
    count = 4_000
    with BrokerProcess(tmp_path / "data", environment=QUICK) as broker:
        run(driver, "produce", broker.kafka, "flight", 0, 1, "none")
        command = [*driver.command(), "produce", broker.kafka, "flight", "1", str(count - 1), "lz4"]
        # Without a buffer: `communicate` does not see what a buffered `readline` has read ahead.
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as sending:
            assert sending.stdout is not None
            assert sending.stdout.readline().startswith(b"sent"), "the client sent nothing"
            broker.kill9()
            broker.restart()
            out, err = sending.communicate(timeout=WAIT_S)
        assert sending.returncode == 0, err.decode()[-4000:]
        assert out.splitlines()[-1].startswith(b"ok")
        run(driver, "consume", broker.kafka, "flight", "after", count, *_assignor(driver))


def _assignor(driver: Driver, name: str = "range") -> tuple[str, ...]:
    return (name,) if driver.name in ("java", "confluent") else ()
